"""Import path of the command ``torchx configure`` in older TorchX releases."""

from torchx.cli._wrapped import face

face(__name__, CmdConfigure="configure")
