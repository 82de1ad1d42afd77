# Type stub: the names of the module beside it.
from torchx._legacy_cli import LOCAL_SCHEDULER_WARNING_MSG as LOCAL_SCHEDULER_WARNING_MSG
from torchx._legacy_cli import MISSING_COMPONENT_ERROR_MSG as MISSING_COMPONENT_ERROR_MSG
from torchx._legacy_cli import torchx_run_args_from_argparse as torchx_run_args_from_argparse
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.argparse_util import ArgOnceAction as ArgOnceAction
from torchx.cli.argparse_util import torchxconfig_run as torchxconfig_run
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx.schedulers._factories import get_default_scheduler_name as get_default_scheduler_name
from torchx.schedulers._factories import get_scheduler_factories as get_scheduler_factories
from torchx_cli.launch.run_request import TorchXRunArgs as TorchXRunArgs
from torchx_cli.launch.run_request import torchx_run_args_from_json as torchx_run_args_from_json
from torchx._legacy_logs import get_logs as get_logs
from torchx._legacy_logs import tee_logs as tee_logs
from torchx_runner.api import Runner as Runner
from torchx_runner.api import get_runner as get_runner
from torchx_runner.components.finder import get_builtin_source as get_builtin_source
from torchx_runner.components.finder import get_components as get_components
from torchx_runner.config.api import load_sections as load_sections
from torchx.util.types import none_throws as none_throws
from torchx_specs.errors import ComponentNotFoundException as ComponentNotFoundException
from torchx_specs.errors import ComponentValidationException as ComponentValidationException
from torchx_specs.model.constants import TORCHX_CONTEXT_NAME as TORCHX_CONTEXT_NAME
from torchx_specs.workspace.spec import Workspace as Workspace

class CmdBuiltins(_WrappedCommand_): ...
class CmdRun(_WrappedCommand_): ...
