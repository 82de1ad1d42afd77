"""Import path of the command ``torchx list`` in older TorchX releases."""

from torchx.cli._names import face

face(__name__, CmdList="list")
