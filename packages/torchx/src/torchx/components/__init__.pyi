# Type stub: the names of the module beside it.
from torchx.components import component_test_base as component_test_base
from torchx.components import dist as dist
from torchx.components import interpret as interpret
from torchx.components import metrics as metrics
from torchx.components import serve as serve
from torchx.components import structured_arg as structured_arg
from torchx.components import train as train
from torchx.components import utils as utils
