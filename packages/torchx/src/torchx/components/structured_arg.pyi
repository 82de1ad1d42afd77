# Type stub: the names of the module beside it.
from torchx_components.structured_arg import StructuredJArgument as StructuredJArgument
from torchx_components.structured_arg import StructuredNameArgument as StructuredNameArgument
