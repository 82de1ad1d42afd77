"""Literal values with a meaning of their own, and well-known metadata keys."""

from __future__ import annotations

from typing import Final

ALL: Final = "all"
#: Default of :attr:`Role.entrypoint <torchx_specs.Role>`: nobody set it.
MISSING: Final = "<MISSING>"
NONE: Final = "<NONE>"
UNKNOWN: Final = "<UNKNOWN>"
NA: Final = "<<NA>>"

#: Environment variable, in each replica, with the host of the first one: what the macro
#: ``rank0_env`` names.
ENV_RANK0_HOST: Final = "TORCHX_RANK0_HOST"

#: Environment variable naming what started this process (the command sets ``cli_run``).
TORCHX_CONTEXT_NAME: Final = "TORCHX_CONTEXT_NAME"

#: memMB of one GiB.
GiB: Final = 1024


class app_metadata:  # noqa: N801 - a namespace of keys, spelt as upstream's module
    """Keys under which the launcher describes itself in :attr:`AppDef.metadata`."""

    CONTEXT: Final = "torchx/context"
    VERSION: Final = "torchx/version"
    SCHEDULER: Final = "torchx/scheduler"
    ROLES_PREFIX: Final = "torchx/roles."
