"""Import path of the command ``torchx status`` in older TorchX releases."""

from torchx.cli._names import face

face(__name__, CmdStatus="status")
