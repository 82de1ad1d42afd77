# Type stub: the names of the module beside it.
from torchx_apps.distributed import has_cuda_devices as has_cuda_devices
