# Type stub: the names of the module beside it.
from torchx._legacy_logs import tee_logs as tee_logs
from torchx_cli.logs.reader import prefix_line as _prefix_line_
from torchx_cli.logs.replicas import find_role_replicas as _find_role_replicas_
from torchx.util.types import none_throws as none_throws

_find_role_replicas = _find_role_replicas_
_prefix_line = _prefix_line_
