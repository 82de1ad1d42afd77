"""Import path of the scheduler ``aws_sagemaker`` in older TorchX releases."""

from torchx._forward import forward_backend

forward_backend(
    __name__,
    "torchx_sched_aws.sagemaker.scheduler",
    extra="aws",
    distribution="torchx-sched-aws",
    legacy=[
        "torchx_sched_aws.sagemaker.states",
    ],
)
