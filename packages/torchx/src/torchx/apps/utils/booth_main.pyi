# Type stub: the names of the module beside it.
from torchx_apps.booth import main as main
from torchx_apps.booth import parse_args as parse_args
from torchx_apps.results import FsspecResultTracker as FsspecResultTracker
