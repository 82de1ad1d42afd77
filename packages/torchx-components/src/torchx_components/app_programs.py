"""Which module a component has Python run for the programs of torchx-apps.

A component cannot know what the image of the job holds, so this settles what holds for most:

* Users of the ``torchx`` distribution run on the image published upstream, on images built from
  it, on one built from this repository's ``docker/Dockerfile``, and on their own machine with
  ``local_cwd``. All of these have ``torchx.apps``, and only the last two have ``torchx_apps``.
  It is also what older releases emit, and what is compared in tests of code that uses them.
* Where ``torchx`` is not installed (a choice of our distributions only), there is no
  ``torchx.apps`` on this machine; an image for such users has ``torchx_apps``.
"""

from __future__ import annotations

_MODULES = {
    "copy": ("torchx.apps.utils.copy_main", "torchx_apps.copy"),
    "booth": ("torchx.apps.utils.booth_main", "torchx_apps.booth"),
    "process_monitor": ("torchx.apps.utils.process_monitor", "torchx_apps.process_monitor"),
    "serve": ("torchx.apps.serve.serve", "torchx_apps.serve"),
}


def module_of(program: str) -> str:
    """Returns the module to run for ``copy``, ``booth``, ``process_monitor`` or ``serve``."""
    in_facade, own = _MODULES[program]
    return in_facade if _has_facade() else own


def _has_facade() -> bool:
    from importlib.util import find_spec

    try:
        spec = find_spec("torchx")
    except ValueError:  # imported in a way that left no specification: it is there
        return True
    # A folder of that name in the working directory is found too, and has no origin.
    return spec is not None and spec.origin is not None
