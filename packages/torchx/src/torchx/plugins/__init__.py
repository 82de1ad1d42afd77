"""The plugin API of older TorchX releases: ``@register.…`` in ``torchx_plugins.*`` packages.

New plugins use the hooks of :mod:`torchx_specs.hookspecs`. :mod:`torchx.bridges` passes the plugins
that are registered here to the same hooks.
"""

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx.plugins._registration import EIGHTH as EIGHTH
    from torchx.plugins._registration import HALF as HALF
    from torchx.plugins._registration import QUARTER as QUARTER
    from torchx.plugins._registration import SIXTEENTH as SIXTEENTH
    from torchx.plugins._registration import WHOLE as WHOLE
    from torchx.plugins._registration import PluginType as PluginType
    from torchx.plugins._registration import halve_mem_down_to as halve_mem_down_to
    from torchx.plugins._registration import powers_of_two_gpus as powers_of_two_gpus
    from torchx.plugins._registration import register as register
    from torchx.plugins._registration import resource_tags as resource_tags
    from torchx.plugins._registry import PluginRegistry as PluginRegistry
    from torchx.plugins._registry import RegistrationError as RegistrationError
    from torchx.plugins._registry import registry as registry

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx.plugins._registration": (
            "EIGHTH",
            "HALF",
            "PluginType",
            "QUARTER",
            "SIXTEENTH",
            "WHOLE",
            "halve_mem_down_to",
            "powers_of_two_gpus",
            "register",
            "resource_tags",
        ),
        "torchx.plugins._registry": ("PluginRegistry", "RegistrationError", "registry"),
    },
)
