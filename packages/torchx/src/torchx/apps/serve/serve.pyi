# Type stub: the names of the module beside it.
from torchx_apps.serve import TORCHSERVE_PARAMS as TORCHSERVE_PARAMS
from torchx_apps.serve import get_routable_ip_to as get_routable_ip_to
from torchx_apps.serve import main as main
from torchx_apps.serve import parse_args as parse_args
from torchx_apps.serve import rand_id as rand_id
