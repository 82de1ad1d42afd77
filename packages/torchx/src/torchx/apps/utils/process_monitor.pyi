# Type stub: the names of the module beside it.
from torchx_apps.process_monitor import TIMEOUT_EXIT_CODE as TIMEOUT_EXIT_CODE
from torchx_apps.process_monitor import main as main
from torchx_apps.process_monitor import parse_args as parse_args
