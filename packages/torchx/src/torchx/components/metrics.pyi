# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_components.metrics import tensorboard as tensorboard
