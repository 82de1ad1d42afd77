"""Import path of the command ``torchx status`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdStatus(WrappedCommand):
    """The command ``torchx status``."""

    command_name = "status"


face(__name__)
