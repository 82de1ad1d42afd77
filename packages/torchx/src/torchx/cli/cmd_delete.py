"""Import path of the command ``torchx delete`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdDelete(WrappedCommand):
    """The command ``torchx delete``."""

    command_name = "delete"


face(__name__)
