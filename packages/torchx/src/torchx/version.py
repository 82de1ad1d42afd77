"""Version of the distribution, and the default image of components."""

from __future__ import annotations

from torchx.util.entrypoints import load as load
from torchx_components import images
from torchx_components.images import get_image
from torchx_specs.version import __version__ as __version__

_version = __version__


def _get_torchx_image(version: str) -> str:
    """Return the default image, by default that of the built-in components.

    An entry point ``get_torchx_image`` in the group ``torchx.version`` replaces it: the entry
    point's function gets ``version``, and returns the image.
    """
    return str(
        load("torchx.version", "get_torchx_image", default=lambda _version: get_image())(version)
    )


def _image() -> str:
    from torchx_specs.plugins.entry_points import entry_points

    if entry_points("torchx.version"):
        # The built-in components read this attribute when they are imported.
        images.IMAGE = _get_torchx_image(__version__)
    return images.IMAGE


TORCHX_IMAGE: str = _image()
