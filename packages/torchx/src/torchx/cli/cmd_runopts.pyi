# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx_cli.output.colors import ENDC as ENDC
from torchx_cli.output.colors import GREEN as GREEN
from torchx_runner.api import get_runner as get_runner

class CmdRunopts(_WrappedCommand_): ...
