"""Import path of the command ``torchx runopts`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdRunopts(WrappedCommand):
    """The command ``torchx runopts``."""

    command_name = "runopts"


face(__name__)
