# Type stub: the names of the module beside it.
from torchx._legacy_cli import ID_FORMAT as ID_FORMAT
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx._legacy_logs import get_logs as get_logs
from torchx._legacy_logs import print_log_lines as print_log_lines
from torchx._legacy_logs import validate as validate
from torchx_cli.logs.reader import prefix_line as _prefix_line_
from torchx_cli.logs.replicas import find_role_replicas as find_role_replicas
from torchx_cli.output.colors import ENDC as ENDC
from torchx_cli.output.colors import GREEN as GREEN
from torchx_runner.api import Runner as Runner
from torchx_runner.api import get_runner as get_runner
from torchx.util.types import none_throws as none_throws
from torchx_specs.model.handles import make_app_handle as make_app_handle
from torchx_specs.model.status import is_started as is_started
from torchx_specs.schedulers.api import Stream as Stream

class CmdLog(_WrappedCommand_): ...
_prefix_line = _prefix_line_
