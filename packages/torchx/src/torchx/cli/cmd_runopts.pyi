# Type stub: the names of the module beside it.
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx_cli.output.colors import ENDC as ENDC
from torchx_cli.output.colors import GREEN as GREEN
from torchx_runner.api import get_runner as get_runner

class CmdRunopts(_WrappedCommand_): ...
