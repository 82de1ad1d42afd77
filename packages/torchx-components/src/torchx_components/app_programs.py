"""Names of the modules that contain the programs of torchx-apps.

A component cannot know which modules the job's image contains. It assumes that the image has the
same distributions as this machine:

* If ``torchx`` is installed, the module is in ``torchx.apps``. The published images and images
  built from ``images/Dockerfile`` have it, and images of older TorchX releases as well.
* Otherwise the module is in ``torchx_apps``.
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
    except ValueError:  # torchx is imported, but its __spec__ is None
        return True
    # find_spec() also finds a directory named torchx in the working directory, without an origin.
    return spec is not None and spec.origin is not None
