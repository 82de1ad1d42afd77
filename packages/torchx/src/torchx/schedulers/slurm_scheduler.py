"""Import path of the scheduler ``slurm`` in older TorchX releases."""

from torchx._forward import forward_backend

forward_backend(
    __name__,
    "torchx_sched_slurm.scheduler",
    extra="slurm",
    distribution="torchx-sched-slurm",
    legacy=["torchx._legacy_slurm"],
)
