"""Import path of the scheduler ``kubernetes_mcad`` in older TorchX releases."""

from __future__ import annotations

from torchx._backend import forward_backend

forward_backend(
    __name__, "torchx_sched_mcad.scheduler", extra="kubernetes", distribution="torchx-sched-mcad"
)
