# Type stub: the names of the module beside it.
from torchx.runtime.tracking import api as api
from torchx_apps.results import FsspecResultTracker as FsspecResultTracker
from torchx_apps.results import ResultTracker as ResultTracker
