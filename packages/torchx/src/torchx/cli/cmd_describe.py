"""Import path of the command ``torchx describe`` in older TorchX releases."""

from torchx.cli._names import face

face(__name__, CmdDescribe="describe")
