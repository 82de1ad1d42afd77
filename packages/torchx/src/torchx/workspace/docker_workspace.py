"""Import path of the docker workspace in older TorchX releases."""

from torchx._forward import forward_backend

forward_backend(
    __name__,
    "torchx_workspace_docker.docker_workspace",
    extra="docker",
    distribution="torchx-workspace-docker",
)
