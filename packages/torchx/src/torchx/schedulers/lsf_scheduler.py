"""Import path of the scheduler ``lsf`` in older TorchX releases."""

from torchx._forward import forward_backend

forward_backend(
    __name__,
    "torchx_sched_lsf.scheduler",
    extra="lsf",
    distribution="torchx-sched-lsf",
    legacy=["torchx._legacy_lsf"],
)
