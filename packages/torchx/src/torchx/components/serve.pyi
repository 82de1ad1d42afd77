# Type stub: the names of the module beside it.
from torchx_components.serve import torchserve as torchserve
