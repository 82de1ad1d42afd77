# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx._modules import import_attr as import_attr
from torchx._modules import load_module as load_module
