"""The session id of this process; the jobs and events of this process contain it."""

from __future__ import annotations

import os
import threading

from torchx_specs.settings import ENV_TORCHX_INTERNAL_SESSION_ID

#: The session id; None until the first use, then constant in this process.
CURRENT_SESSION_ID: str | None = None
_lock = threading.Lock()


def get_torchx_session_id() -> str | None:
    """Return the session id of this process or its environment; None if there is none yet."""
    return CURRENT_SESSION_ID or os.environ.get(ENV_TORCHX_INTERNAL_SESSION_ID) or None


def get_session_id_or_create_new() -> str:
    """Return the session id; the first call reads the environment, or creates a random id."""
    global CURRENT_SESSION_ID
    with _lock:
        if CURRENT_SESSION_ID is None:
            CURRENT_SESSION_ID = get_torchx_session_id() or _uuid4()
        return CURRENT_SESSION_ID


def _uuid4() -> str:
    # The module uuid is not used, because importing it takes longer than most dry runs.
    number = bytearray(os.urandom(16))
    number[6] = number[6] & 0x0F | 0x40
    number[8] = number[8] & 0x3F | 0x80
    text = number.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
