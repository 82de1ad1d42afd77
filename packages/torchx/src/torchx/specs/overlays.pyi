# Type stub: the names of the module beside it.
from torchx_specs.overlays import DEL as DEL
from torchx_specs.overlays import JOIN as JOIN
from torchx_specs.overlays import OverlaySpec as OverlaySpec
from torchx_specs.overlays import PUT as PUT
from torchx_specs.overlays import apply_overlay as apply_overlay
from torchx_specs.overlays import get_overlay as get_overlay
from torchx_specs.overlays import set_overlay as set_overlay
from torchx_specs.overlays import validate_overlay as validate_overlay
