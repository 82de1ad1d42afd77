"""Imports ``torchx_sweep``, which is in a distribution of its own and depends on this package."""

from __future__ import annotations

import importlib
from typing import Any

from torchx_specs.errors import RequestError


def sweep_module() -> Any:
    """Return the module ``torchx_sweep``.

    Raises:
        RequestError: ``torchx-sweep`` is not installed.
    """
    try:
        # Not an import statement, because this package must not depend on torchx_sweep.
        return importlib.import_module("torchx_sweep")
    except ModuleNotFoundError as e:
        if e.name != "torchx_sweep":
            raise
        raise RequestError("torchx-sweep is not installed; run: pip install torchx-sweep") from e
