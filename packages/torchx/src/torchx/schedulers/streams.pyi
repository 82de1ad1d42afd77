# Type stub: the names of the module beside it.
from torchx_kit.logs.streams import Tee as Tee
