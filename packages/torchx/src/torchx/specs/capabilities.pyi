# Type stub: the names of the module beside it.
from torchx_specs.model.resources import Resource as Resource
from torchx_specs.resources.capabilities import CapabilityKey as CapabilityKey
