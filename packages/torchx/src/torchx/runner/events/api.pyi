# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_runner.events.api import SourceType as SourceType
from torchx_runner.events.api import TorchxEvent as TorchxEvent
