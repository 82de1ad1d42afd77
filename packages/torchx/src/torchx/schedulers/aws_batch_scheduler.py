"""Import path of the scheduler ``aws_batch`` in older TorchX releases."""

from __future__ import annotations

from torchx._backend import forward_backend

forward_backend(
    __name__, "torchx_sched_aws.batch.scheduler", extra="aws", distribution="torchx-sched-aws"
)
