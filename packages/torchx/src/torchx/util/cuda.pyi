# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_apps.cuda import has_cuda_devices as has_cuda_devices
