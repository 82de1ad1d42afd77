"""Import path of the commands ``torchx run`` and ``torchx builtins`` in older TorchX releases."""

from torchx.cli._names import face
from torchx.cli._wrapped import WrappedCommand


class CmdBuiltins(WrappedCommand):
    """The command ``torchx builtins``."""

    command_name = "builtins"


class CmdRun(WrappedCommand):
    """The command ``torchx run``."""

    command_name = "run"


face(__name__)
