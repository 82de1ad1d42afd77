"""Launch jobs with files that exist only in a notebook.

In IPython and Jupyter, the import adds the cell magic ``%%workspacefile``, which writes files to
the workspace that :func:`get_workspace` returns. In other programs, the import adds no magic.
"""

from __future__ import annotations

import sys
from typing import Any

from torchx_notebook.files import WORKSPACE, get_workspace, workspacefile, write_file

__all__ = [
    "WORKSPACE",
    "get_workspace",
    "load_ipython_extension",
    "workspacefile",
    "write_file",
]


def load_ipython_extension(shell: Any) -> None:
    """Add the magic to an ``InteractiveShell``; ``%load_ext torchx_notebook`` calls this."""
    shell.register_magic_function(workspacefile, magic_kind="cell", magic_name="workspacefile")


def _running_shell() -> Any:
    # A process in a shell of IPython has imported IPython.
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


_shell = _running_shell()
if _shell is not None:
    load_ipython_extension(_shell)
