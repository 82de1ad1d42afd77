"""Import path of the command ``torchx tracker`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdTracker(WrappedCommand):
    """The command ``torchx tracker``."""

    command_name = "tracker"


face(__name__)
