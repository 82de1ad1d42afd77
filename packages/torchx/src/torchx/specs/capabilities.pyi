# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_specs.model.resources import Resource as Resource
from torchx_specs.resources.capabilities import CapabilityKey as CapabilityKey
