"""Older path of ``aws_sagemaker``."""

from __future__ import annotations

from torchx._backend import forward_backend

forward_backend(
    __name__, "torchx_sched_aws.sagemaker.scheduler", extra="aws", distribution="torchx-sched-aws"
)
