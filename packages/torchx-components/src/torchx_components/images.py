"""The default image of components."""

from __future__ import annotations

import os
from typing import Final

from torchx_specs.settings import ENV_TORCHX_IMAGE

#: The last image that upstream (pytorch/torchx) published.
PUBLISHED_IMAGE: Final = "ghcr.io/pytorch/torchx:0.7.0"


def get_image() -> str:
    """Return ``$TORCHX_IMAGE``, or :data:`PUBLISHED_IMAGE` if the variable is unset or empty."""
    return os.environ.get(ENV_TORCHX_IMAGE) or PUBLISHED_IMAGE


IMAGE: str = get_image()
