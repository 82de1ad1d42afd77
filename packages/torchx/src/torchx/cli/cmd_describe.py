"""Import path of the command ``torchx describe`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdDescribe(WrappedCommand):
    """The command ``torchx describe``."""

    command_name = "describe"


face(__name__)
