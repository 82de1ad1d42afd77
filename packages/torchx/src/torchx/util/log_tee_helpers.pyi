# Written by `python tools/faces.py write`: what type checkers see of the module.
from torchx_cli.logs.log_lines import _prefix_line as _prefix_line
from torchx_cli.logs.log_lines import find_role_replicas as _find_role_replicas_
from torchx_cli.logs.log_lines import tee_logs as tee_logs
from torchx_specs.components.types import none_throws as none_throws

_find_role_replicas = _find_role_replicas_
