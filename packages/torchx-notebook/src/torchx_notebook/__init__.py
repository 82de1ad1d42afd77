"""Makes files of a notebook available to jobs, in a workspace, and shows jobs and sweeps.

Importing this module in IPython or Jupyter adds magics: ``%torchx run train.py`` and ``%%torchx``
run the command, and ``%%workspacefile`` writes the text of a cell to a file in a workspace, which
``get_workspace()`` returns. ``show(handle)`` shows a job or a sweep below the cell until it has
ended.
"""

from __future__ import annotations

import sys
from typing import Any

from torchx_notebook.files import WORKSPACE, get_workspace, workspacefile, write_file
from torchx_notebook.magics import Job, completer, torchx
from torchx_notebook.views import show

__all__ = [
    "WORKSPACE",
    "Job",
    "get_workspace",
    "load_ipython_extension",
    "show",
    "torchx",
    "workspacefile",
    "write_file",
]


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to an ``InteractiveShell``; ``%load_ext torchx_notebook`` calls this."""
    shell.register_magic_function(workspacefile, magic_kind="cell", magic_name="workspacefile")
    shell.register_magic_function(torchx, magic_kind="line_cell", magic_name="torchx")
    shell.set_hook("complete_command", completer, re_key=r"%+torchx")


# If IPython is not imported, this process does not run in an IPython shell.
_ipython = sys.modules.get("IPython")
_shell = _ipython.get_ipython() if _ipython is not None else None
if _shell is not None:
    load_ipython_extension(_shell)
