# Type stub: the names of the module beside it.
from torchx_apps.results import FsspecResultTracker as FsspecResultTracker
from torchx_apps.results import ResultTracker as ResultTracker
