# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_apps.process_monitor import TIMEOUT_EXIT_CODE as TIMEOUT_EXIT_CODE
from torchx_apps.process_monitor import main as main
from torchx_apps.process_monitor import parse_args as parse_args
