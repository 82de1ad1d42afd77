"""Special values, limits, names of environment variables, and well-known metadata keys."""

from __future__ import annotations

from typing import Final

ALL: Final = "all"
#: Default of :attr:`Role.entrypoint <torchx_specs.Role>`.
MISSING: Final = "<MISSING>"
NONE: Final = "<NONE>"
UNKNOWN: Final = "<UNKNOWN>"
NA: Final = "<<NA>>"
#: The text that replaces a secret in text that people read.
MASK: Final = "***"

#: Environment variable of each replica: the host of rank 0. The macro ``rank0_env`` is replaced by
#: this name.
ENV_RANK0_HOST: Final = "TORCHX_RANK0_HOST"

#: Environment variable: the name of the program that submits jobs (``cli_run`` for ``torchx run``).
TORCHX_CONTEXT_NAME: Final = "TORCHX_CONTEXT_NAME"

#: The largest number of replicas of a role; Kubernetes has the same limit for an indexed Job.
MAX_REPLICAS: Final = 100_000

#: The key in :attr:`Role.metadata` of a role whose success ends the app, such as a client or a
#: driver: once all replicas of all such roles have succeeded, the other roles are stopped and count
#: as done. A failure before that counts.
ENDS_APP_KEY: Final = "torchx/ends_app"

#: The number of MB in one GiB, for ``memMB=4 * GiB``.
GiB: Final = 1024


class app_metadata:  # noqa: N801 - a namespace of keys, spelt as upstream's module
    """Well-known keys of :attr:`AppDef.metadata`."""

    CONTEXT: Final = "torchx/context"
    VERSION: Final = "torchx/version"
    SCHEDULER: Final = "torchx/scheduler"
    ROLES_PREFIX: Final = "torchx/roles."
