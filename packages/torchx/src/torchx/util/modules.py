"""Import modules and attributes by name."""

from __future__ import annotations

import importlib
import logging
from types import ModuleType
from typing import Any

logger = logging.getLogger(__name__)


def load_module(path: str) -> ModuleType | Any | None:
    """Return the module ``pkg.mod`` or the attribute ``pkg.mod:attr``, or None after an error.

    The error is logged as a warning, unless the module does not exist.
    """
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
        return getattr(module, attribute) if attribute else module
    except ModuleNotFoundError as e:
        if not e.name or not (module_name + ".").startswith(e.name + "."):
            logger.warning("cannot load %s: %s", path, e)
    except Exception as e:
        logger.warning("cannot load %s: %s: %s", path, type(e).__name__, e)
    return None


def import_attr(name: str, attr: str, default: Any) -> Any:
    """Return attribute ``attr`` of the module ``name``, or ``default`` if there is no such module.

    Raises:
        AttributeError: The module has no such attribute.
    """
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as e:
        if not e.name or not (name + ".").startswith(e.name + "."):
            raise
        return default
    return getattr(module, attr)
