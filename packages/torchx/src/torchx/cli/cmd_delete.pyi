# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import AppHandleSubCommand as AppHandleSubCommand
from torchx_runner.api import Runner as Runner

class CmdDelete(_WrappedCommand_): ...
