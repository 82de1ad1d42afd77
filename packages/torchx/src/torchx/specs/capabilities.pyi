# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_specs.capabilities import CapabilityKey as CapabilityKey
from torchx_specs.resources import Resource as Resource
