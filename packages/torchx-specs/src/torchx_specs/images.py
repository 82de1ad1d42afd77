"""The default image of components."""

from __future__ import annotations

import os
from typing import Final

from torchx_specs.settings import ENV_TORCHX_IMAGE

#: The last published image of upstream.
PUBLISHED_IMAGE: Final = "ghcr.io/pytorch/torchx:0.7.0"


def get_image() -> str:
    """Return ``$TORCHX_IMAGE``, or the last published image of upstream."""
    return os.environ.get(ENV_TORCHX_IMAGE) or PUBLISHED_IMAGE


IMAGE: str = get_image()
