# Type stub: the names of the module beside it.
from torchx_runner.events.api import SourceType as SourceType
from torchx_runner.events.api import TorchxEvent as TorchxEvent
