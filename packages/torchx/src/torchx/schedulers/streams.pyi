# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_kit.logs.streams import Tee as Tee
