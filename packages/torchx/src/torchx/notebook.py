"""Older path of the notebook magics; they come with ``torchx-notebook``."""

from __future__ import annotations

from torchx._forward import forward, install_hint

forward(__name__, "torchx_notebook", missing=install_hint("notebook", "torchx-notebook"))
