"""Import path of the scheduler ``aws_batch`` in older TorchX releases."""

from torchx._forward import forward_backend

forward_backend(
    __name__,
    "torchx_sched_aws.batch.scheduler",
    extra="aws",
    distribution="torchx-sched-aws",
    legacy=[
        "torchx._legacy_aws",
        "torchx_sched_aws.batch.request",
        "torchx_sched_aws.batch.describe",
        "torchx_sched_aws.batch.states",
        "torchx_sched_aws.tags",
    ],
)
