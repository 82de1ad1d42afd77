# Type stub: the names of the module beside it.
from torchx._modules import import_attr as import_attr
from torchx._modules import load_module as load_module
