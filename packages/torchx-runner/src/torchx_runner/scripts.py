"""Checks that the script or module of a built-in component is where the job runs."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchx_runner.components.finder import get_component
from torchx_specs.errors import RequestError, TorchXError
from torchx_specs.workspace.api import METADATA_KEY
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDryRunInfo
    from torchx_specs.schedulers import Scheduler

logger = logging.getLogger(__name__)

#: The components that run a script or a module, and its options.
_COMPONENTS = frozenset({"dist.ddp", "dist.spmd", "dist.torchrun", "utils.python"})
_OPTIONS = {"--script": "script", "-m": "module", "--m": "module"}
#: The options of schedulers for the directory in which a job runs.
_DIRECTORIES = ("job_dir", "jobdir")


def check_script(scheduler: Scheduler[Any], info: AppDryRunInfo[Any]) -> None:
    """Log a warning if a job's script is neither in the workspace nor in the working directory.

    If the job has no other files, this is an error. A module is checked only if its package is in
    one of these folders, because it may be installed.

    Args:
        scheduler: The scheduler of the dry run.
        info: A dry run.

    Raises:
        RequestError: The job cannot find the script.
    """
    given = info._run_input
    call = given.call if given else None
    if given is None or call is None or not _runs_program(call.component):
        return
    if METADATA_KEY in given.app.roles[0].metadata:  # the image or folder was built before
        return
    kind, name = _program(call.arguments)
    is_only_local = scheduler.has_only_local_files(info)
    workspace = given.workspace or given.app.roles[0].workspace or Workspace({})
    if isinstance(workspace, str):
        workspace = Workspace.from_str(workspace)
    # Files on another file system, and in folders below the root, are not checked.
    if any("://" in source or target for source, target in workspace.projects.items()):
        return
    places = list(workspace.projects)
    if is_only_local:
        places += [os.curdir, *(str(info.cfg.get(key) or "") for key in _DIRECTORIES)]
    folders = list(dict.fromkeys(os.path.abspath(place) for place in places if place))
    if not name or not folders or _is_found(kind, name, folders):
        return
    problem = f"{kind} '{name}' is not in {' or '.join(folders)}"
    if is_only_local and not info.cfg.get("setup"):  # the lines of setup may make the file
        raise RequestError(f"{problem}; correct the path, which is relative to the folder")
    logger.warning("%s; the job fails unless its image has this file", problem)


def _runs_program(component: str) -> bool:
    """Return whether a component is a built-in one that runs a script or module."""
    if component not in _COMPONENTS:
        return False
    try:
        function = get_component(component).fn
    except TorchXError:  # it was installed when the app was made
        return False
    # A plugin may replace a built-in component.
    return function.__module__.partition(".")[0] == "torchx_components"


def _program(arguments: Sequence[str]) -> tuple[str, str]:
    """Return the kind of a component's program, and its name; empty texts without one."""
    words = iter(arguments)
    for word in words:
        option, equals, value = word.partition("=")
        if word == "--":
            break
        if option in _OPTIONS:
            return _OPTIONS[option], value if equals else next(words, "")
    return "", ""


def _is_found(kind: str, name: str, folders: Sequence[str]) -> bool:
    """Return whether a folder may have the script or module; True for what cannot be checked."""
    if kind == "script":
        if "$" in name or os.path.isabs(name):  # a macro, or a file of the job's machine
            return True
        return any(os.path.exists(os.path.join(folder, name)) for folder in folders)
    package, *_ = parts = name.split(".")
    is_local = any(os.path.exists(os.path.join(f, package, "__init__.py")) for f in folders)
    paths = [os.path.join(folder, *parts) for folder in folders]
    return not is_local or any(
        os.path.isdir(path) or glob.glob(f"{glob.escape(path)}.*") for path in paths
    )
