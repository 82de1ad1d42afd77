# Type stub: the names of the module beside it.
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx.schedulers._factories import get_scheduler_factories as get_scheduler_factories
from torchx_runner.config.api import dump as dump

class CmdConfigure(_WrappedCommand_): ...
