# Type stub: the names of the module beside it.
from torchx_apps.cuda import has_cuda_devices as has_cuda_devices
