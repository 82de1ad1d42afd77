# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_specs.model.constants import GiB as GiB
from torchx_specs.model.resources import Resource as Resource
from torchx_specs.named_resources_generic import NAMED_RESOURCES as NAMED_RESOURCES
