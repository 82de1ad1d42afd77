"""Import path of the command ``torchx list`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdList(WrappedCommand):
    """The command ``torchx list``."""

    command_name = "list"


face(__name__)
