# Type stub: the names of the module beside it.
from torchx_apps.distributed import has_cuda_devices as has_cuda_devices
from torchx_apps.distributed import init_pg as init_pg
from torchx_apps.distributed import is_local_rank0 as is_local_rank0
from torchx_apps.distributed import is_rank0 as is_rank0
from torchx_apps.distributed import local_cuda_device as local_cuda_device
from torchx_apps.distributed import local_device as local_device
from torchx_apps.distributed import local_rank as local_rank
from torchx_apps.distributed import on_local_rank0_first as on_local_rank0_first
from torchx_apps.distributed import on_rank0_first as on_rank0_first
from torchx_apps.distributed import rank as rank
from torchx_apps.distributed import world_size as world_size
