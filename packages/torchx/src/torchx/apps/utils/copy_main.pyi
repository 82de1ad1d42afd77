# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_apps.copy import main as main
from torchx_apps.copy import parse_args as parse_args
