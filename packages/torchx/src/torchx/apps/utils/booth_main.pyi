# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_apps.booth import main as main
from torchx_apps.booth import parse_args as parse_args
from torchx_apps.results import FsspecResultTracker as FsspecResultTracker
