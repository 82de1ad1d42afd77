# Type stub: the names of the module beside it.
from torchx_components.metrics import tensorboard as tensorboard
