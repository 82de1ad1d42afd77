# Type stub: the names of the module beside it.
from torchx._legacy_cli import parse_list_arg as parse_list_arg
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import AppHandleSubCommand as AppHandleSubCommand
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx_runner.api import Runner as Runner
from torchx_runner.api import get_runner as get_runner
from torchx_specs.model.handles import parse_app_handle as parse_app_handle
from torchx_specs.model.status import AppStatus as AppStatus

class CmdStatus(_WrappedCommand_): ...
