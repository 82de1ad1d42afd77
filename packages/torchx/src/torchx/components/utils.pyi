# Type stub: the names of the module beside it.
from torchx_components.utils import binary as binary
from torchx_components.utils import booth as booth
from torchx_components.utils import copy as copy
from torchx_components.utils import echo as echo
from torchx_components.utils import hydra as hydra
from torchx_components.utils import python as python
from torchx_components.utils import sh as sh
from torchx_components.utils import touch as touch
