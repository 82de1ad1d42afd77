# Type stub: the names of the module beside it.
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import AppHandleSubCommand as AppHandleSubCommand
from torchx_runner.api import Runner as Runner

class CmdDelete(_WrappedCommand_): ...
