# Type stub: the names of the module beside it.
from torchx_components.dist import _TORCH_DEBUG_FLAGS as _TORCH_DEBUG_FLAGS
from torchx_components.dist import ddp as ddp
from torchx_components.dist import parse_nnodes as parse_nnodes
from torchx_components.dist import spmd as spmd
from torchx_components.dist import torchrun as torchrun
from torchx_components.shell_words import Unquoted as _noquote_
from torchx_components.shell_words import joined as _args_join_
from torchx_components.structured_arg import StructuredJArgument as StructuredJArgument
from torchx_components.structured_arg import StructuredNameArgument as StructuredNameArgument
from torchx_components.structured_arg import main_name as _get_role_name_
from torchx_specs.model.templates import macros as macros

_args_join = _args_join_
_noquote = _noquote_
get_role_name = _get_role_name_
