"""Import path of the CUDA helpers in older TorchX releases."""

from torchx._forward import forward

forward(__name__, names={"has_cuda_devices": "torchx_apps.distributed"})
