# Type stub: the names of the module beside it.
from torchx.runner.events import api as api
from torchx.runner.events import handlers as handlers
from torchx_runner.events.api import SourceType as SourceType
from torchx_runner.events.api import TorchxEvent as TorchxEvent
from torchx_runner.events.api import log_event as log_event
from torchx_runner.events.api import record as record
from torchx_runner.events.handlers import get_logging_handler as get_logging_handler
from torchx_runner.session_id import get_session_id_or_create_new as get_session_id_or_create_new
