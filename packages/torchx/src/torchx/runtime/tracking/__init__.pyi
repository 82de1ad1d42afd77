# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx.runtime.tracking import api as api
from torchx_apps.results import FsspecResultTracker as FsspecResultTracker
from torchx_apps.results import ResultTracker as ResultTracker
