"""Import path of the scheduler ``local_docker`` in older TorchX releases."""

from torchx._forward import forward_backend

forward_backend(
    __name__, "torchx_sched_docker.scheduler", extra="docker", distribution="torchx-sched-docker"
)
