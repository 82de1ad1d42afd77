# Type stub: the names of the module beside it.
from torchx.plugins._registration import PluginType as PluginType
from torchx.plugins._registry import registry as registry
from torchx_runner.events.handlers import get_logging_handler as get_logging_handler
