"""Names of the modules that components run for the programs of torchx-apps.

A component does not know the content of the job's image, so it chooses the module like this:

* If the ``torchx`` distribution is installed, use ``torchx.apps``. The published images, images
  built from ``images/Dockerfile`` and this machine have it. Older releases use the same names.
* Otherwise use ``torchx_apps``, because only our single distributions are in use.
"""

from __future__ import annotations

_MODULES = {
    "copy": ("torchx.apps.utils.copy_main", "torchx_apps.copy"),
    "booth": ("torchx.apps.utils.booth_main", "torchx_apps.booth"),
    "process_monitor": ("torchx.apps.utils.process_monitor", "torchx_apps.process_monitor"),
    "serve": ("torchx.apps.serve.serve", "torchx_apps.serve"),
}


def program_module(program: str) -> str:
    """Return the module of the program ``copy``, ``booth``, ``process_monitor`` or ``serve``."""
    in_facade, own = _MODULES[program]
    return in_facade if _has_facade() else own


def _has_facade() -> bool:
    from importlib.util import find_spec

    try:
        spec = find_spec("torchx")
    except ValueError:  # it was imported without a module specification
        return True
    # A directory named torchx in the working directory is found too, but has no origin.
    return spec is not None and spec.origin is not None
