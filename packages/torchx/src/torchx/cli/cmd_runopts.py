"""Import path of the command ``torchx runopts`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdRunopts="runopts")
