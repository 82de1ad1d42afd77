"""Import path of the command ``torchx describe`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdDescribe="describe")
