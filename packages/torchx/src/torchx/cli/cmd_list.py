"""Import path of the command ``torchx list`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdList="list")
