"""The id of this launcher process, shared with the jobs it starts and the events it records."""

from __future__ import annotations

import os

from torchx_specs.settings import ENV_TORCHX_INTERNAL_SESSION_ID

#: The id once it is settled; it stays for the life of the process.
CURRENT_SESSION_ID: str | None = None


def get_torchx_session_id() -> str | None:
    """Returns the id if it is settled or given by the environment, else None."""
    return CURRENT_SESSION_ID or os.environ.get(ENV_TORCHX_INTERNAL_SESSION_ID) or None


def get_session_id_or_create_new() -> str:
    """Returns the id: that of the environment when first asked, or a new random one."""
    global CURRENT_SESSION_ID
    if CURRENT_SESSION_ID is None:
        CURRENT_SESSION_ID = get_torchx_session_id() or _uuid4()
    return CURRENT_SESSION_ID


def _uuid4() -> str:
    # written out: importing uuid takes longer than most dry runs
    number = bytearray(os.urandom(16))
    number[6] = number[6] & 0x0F | 0x40
    number[8] = number[8] & 0x3F | 0x80
    text = number.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
