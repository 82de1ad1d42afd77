"""Import path of the command ``torchx runopts`` in older TorchX releases."""

from torchx.cli._names import face

face(__name__, CmdRunopts="runopts")
