# Type stub: the names of the module beside it.
from torchx_specs.model.constants import GiB as GiB
from torchx_specs.model.resources import Resource as Resource
from torchx_specs.named_resources_generic import NAMED_RESOURCES as NAMED_RESOURCES
