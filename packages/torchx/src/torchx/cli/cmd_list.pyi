# Type stub: the names of the module beside it.
from torchx._legacy_cli import HANDLE_HEADER as HANDLE_HEADER
from torchx._legacy_cli import NAME_HEADER as NAME_HEADER
from torchx._legacy_cli import STATUS_HEADER as STATUS_HEADER
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.argparse_util import ArgOnceAction as ArgOnceAction
from torchx.cli.argparse_util import torchxconfig_list as torchxconfig_list
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx.schedulers._factories import get_default_scheduler_name as get_default_scheduler_name
from torchx.schedulers._factories import get_scheduler_factories as get_scheduler_factories
from torchx_runner.api import get_runner as get_runner

class CmdList(_WrappedCommand_): ...
