# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_components.structured_arg import StructuredJArgument as StructuredJArgument
from torchx_components.structured_arg import StructuredNameArgument as StructuredNameArgument
