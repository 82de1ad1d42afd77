# Type stub: the names of the module beside it.
from torchx_specs.settings import ENV_TORCHXCONFIG as ENV_TORCHXCONFIG
from torchx_specs.settings import ENV_TORCHX_IMAGE as ENV_TORCHX_IMAGE
from torchx_specs.settings import ENV_TORCHX_INTERNAL_SESSION_ID as ENV_TORCHX_INTERNAL_SESSION_ID
from torchx_specs.settings import ENV_TORCHX_JOB_ID as ENV_TORCHX_JOB_ID
from torchx_specs.settings import ENV_TORCHX_PARENT_RUN_ID as ENV_TORCHX_PARENT_RUN_ID
from torchx_specs.settings import ENV_TORCHX_TRACKERS as ENV_TORCHX_TRACKERS
