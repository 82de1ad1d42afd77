# Type stub: the names of the module beside it.
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import AppHandleSubCommand as AppHandleSubCommand
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx_runner.api import Runner as Runner
from torchx_runner.api import get_runner as get_runner

class CmdCancel(_WrappedCommand_): ...
