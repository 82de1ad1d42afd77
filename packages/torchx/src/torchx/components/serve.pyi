# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_components.serve import torchserve as torchserve
