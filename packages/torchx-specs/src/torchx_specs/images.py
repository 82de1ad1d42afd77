"""The image that components use when none is given."""

from __future__ import annotations

import os
from typing import Final

from torchx_specs.settings import ENV_TORCHX_IMAGE

#: The last image that upstream published.
PUBLISHED_IMAGE: Final = "ghcr.io/pytorch/torchx:0.7.0"


def get_image() -> str:
    """Returns the image named by ``$TORCHX_IMAGE``, else the last one published upstream."""
    return os.environ.get(ENV_TORCHX_IMAGE) or PUBLISHED_IMAGE


IMAGE: str = get_image()
