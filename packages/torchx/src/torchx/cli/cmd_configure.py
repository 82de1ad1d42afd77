"""Import path of the command ``torchx configure`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdConfigure(WrappedCommand):
    """The command ``torchx configure``."""

    command_name = "configure"


face(__name__)
