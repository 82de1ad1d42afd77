"""Import path of the command ``torchx cancel`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdCancel(WrappedCommand):
    """The command ``torchx cancel``."""

    command_name = "cancel"


face(__name__)
