"""Import path of the command ``torchx status`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdStatus="status")
