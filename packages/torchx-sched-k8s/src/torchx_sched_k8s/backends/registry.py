"""The backends of the scheduler ``kubernetes``."""

from __future__ import annotations

from torchx_sched_k8s.backends.backend import Backend
from torchx_sched_k8s.backends.batch import BATCH
from torchx_sched_k8s.backends.jobset import JOBSET
from torchx_sched_k8s.backends.volcano import VOLCANO

#: The backends by the value of the option ``job_api``. The first one needs no operator.
BACKENDS: dict[str, Backend] = {one.name: one for one in (BATCH, JOBSET, VOLCANO)}
