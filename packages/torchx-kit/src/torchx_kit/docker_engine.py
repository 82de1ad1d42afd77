"""Error messages about the Docker Engine that ``DOCKER_HOST`` names."""

from __future__ import annotations

import os

from torchx_specs.errors import one_line
from torchx_specs.redaction import masked_text

_DEFAULT_ADDRESS = "unix:///var/run/docker.sock"


def engine_address() -> str:
    """Return the address of the Docker Engine, without a password."""
    return masked_text(os.environ.get("DOCKER_HOST") or _DEFAULT_ADDRESS)


def no_engine_message(action: str, error: Exception) -> str:
    """Return the message for an engine that does not answer.

    Args:
        action: The action that failed, as in "cannot ACTION".
        error: The error of the docker library.
    """
    return (
        f"cannot {action}: no answer from the Docker Engine at {engine_address()}"
        f" ({one_line(error)}); start it, or set DOCKER_HOST to its address"
    )
