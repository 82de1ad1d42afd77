# Type stub: the names of the module beside it.
from torchx_apps.copy import main as main
from torchx_apps.copy import parse_args as parse_args
