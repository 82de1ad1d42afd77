# Type stub: the names of the module beside it.
from torchx_specs.model.constants import NA as NA
from torchx_specs.model.constants import TORCHX_CONTEXT_NAME as TORCHX_CONTEXT_NAME
from torchx_specs.model.constants import app_metadata as app_metadata
