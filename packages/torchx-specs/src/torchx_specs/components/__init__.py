"""Component arguments: from the command line to typed values.

- :mod:`.converters` has the table of types, with a converter that parses and checks each type
- :mod:`.signature` reads a component's parameters
- :mod:`.parser` parses the command line, and combines it with values from configuration
- :mod:`.materialize` calls the component
- :mod:`.help` writes the text of ``--help``
- :mod:`.docstrings` parses the docstring of a component
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchx_specs.lazy_imports import attach

if TYPE_CHECKING:
    from torchx_specs.components.converters import SUPPORTED_TYPES as SUPPORTED_TYPES
    from torchx_specs.components.converters import converter_for as converter_for
    from torchx_specs.components.help import component_help as component_help
    from torchx_specs.components.materialize import ComponentArgs as ComponentArgs
    from torchx_specs.components.materialize import (
        component_args_from_str as component_args_from_str,
    )
    from torchx_specs.components.materialize import materialize_appdef as materialize_appdef
    from torchx_specs.components.materialize import parse_args as parse_args
    from torchx_specs.components.parser import ComponentHelpRequested as ComponentHelpRequested
    from torchx_specs.components.signature import ComponentParameter as ComponentParameter
    from torchx_specs.components.signature import ComponentSignature as ComponentSignature
    from torchx_specs.components.signature import read_signature as read_signature

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "torchx_specs.components.converters": "SUPPORTED_TYPES converter_for",
        "torchx_specs.components.help": "component_help",
        "torchx_specs.components.materialize": (
            "ComponentArgs component_args_from_str materialize_appdef parse_args"
        ),
        "torchx_specs.components.parser": "ComponentHelpRequested",
        "torchx_specs.components.signature": "ComponentParameter ComponentSignature read_signature",
    },
)
