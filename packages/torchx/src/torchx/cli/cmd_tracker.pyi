# Type stub: the names of the module beside it.

class CmdTracker(_WrappedCommand_): ...
from torchx.cli._wrapped import WrappedCommand as _WrappedCommand_
from torchx.cli.cmd_base import SubCommand as SubCommand
from torchx_runner.config.api import get_configured_trackers as get_configured_trackers
from torchx_specs.trackers.api import TrackerBase as TrackerBase
from torchx_tracker.trackers import build_trackers as build_trackers
