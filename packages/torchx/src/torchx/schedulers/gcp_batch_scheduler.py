"""Import path of the scheduler ``gcp_batch`` in older TorchX releases, which no release has now."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from torchx._forward import refuse_names

create_scheduler: Callable[..., NoReturn]

refuse_names(
    __name__, "there is no scheduler 'gcp_batch'; use the scheduler 'kubernetes' on GKE, or 'slurm'"
)
