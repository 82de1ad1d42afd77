"""The default image of components."""

from __future__ import annotations

import os

from torchx_specs.settings import ENV_TORCHX_IMAGE
from torchx_specs.settings import PUBLISHED_IMAGE as PUBLISHED_IMAGE


def get_image() -> str:
    """Return ``$TORCHX_IMAGE``, or :data:`PUBLISHED_IMAGE` if the variable is unset or empty."""
    return os.environ.get(ENV_TORCHX_IMAGE) or PUBLISHED_IMAGE


IMAGE: str = get_image()
