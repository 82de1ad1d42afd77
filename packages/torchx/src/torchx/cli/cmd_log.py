"""Import path of the command ``torchx log`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdLog="log")
