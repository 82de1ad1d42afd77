"""Import path of the command ``torchx log`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdLog(WrappedCommand):
    """The command ``torchx log``."""

    command_name = "log"


face(__name__)
