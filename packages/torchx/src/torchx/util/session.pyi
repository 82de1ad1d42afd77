# Type stub: the names of the module beside it.
from typing import Any
from torchx_runner.session_id import CURRENT_SESSION_ID as CURRENT_SESSION_ID
from torchx_runner.session_id import get_session_id_or_create_new as get_session_id_or_create_new
from torchx_runner.session_id import get_torchx_session_id as get_torchx_session_id

TORCHX_INTERNAL_SESSION_ID: Any
