"""Checks that the script or module of a component is where the job runs."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDryRunInfo, ProgramFile
from torchx_specs.workspace.api import METADATA_KEY
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_specs.schedulers import Scheduler

logger = logging.getLogger(__name__)

#: The options of schedulers for the directory in which a job runs.
_DIRECTORIES = ("job_dir", "jobdir")


def check_scripts(scheduler: Scheduler[Any], infos: Iterable[AppDryRunInfo[Any]]) -> None:
    """Log a warning if a job's script is neither in the workspace nor in the working directory.

    A job that runs in a copy of its workspace does not see the working directory. If the job has no
    other files, this is an error. A module is checked only if its package is in one of these
    folders, because it may be installed. A component records the script or module as a
    :class:`~torchx_specs.model.app.ProgramFile` of the role.

    Args:
        scheduler: The scheduler of the dry runs.
        infos: Dry runs.

    Raises:
        RequestError: A job cannot find its script.
    """
    warnings: dict[str, None] = {}
    for info in infos:
        for problem in _problems(scheduler, info):
            # The lines of setup may make the file.
            if scheduler.has_only_local_files(info) and not info.cfg.get("setup"):
                raise RequestError(f"{problem}; correct the path, which is relative to the folder")
            warnings[problem] = None
    for problem in warnings:
        logger.warning("%s; the job fails unless its image has this file", problem)


def _problems(scheduler: Scheduler[Any], info: AppDryRunInfo[Any]) -> Iterator[str]:
    given = info._run_input
    for number, role in enumerate(given.app.roles if given else ()):
        program = ProgramFile.of(role)
        # With a record of a build, the image or folder was built before. A caller may have changed
        # the arguments.
        if given is None or program is None or METADATA_KEY in role.metadata:
            continue
        if not any(program.name in str(arg) for arg in role.args):
            continue
        workspace = (given.workspace if number == 0 else None) or role.workspace or Workspace({})
        if isinstance(workspace, str):
            workspace = Workspace.from_str(workspace)
        # Files on another file system, and in folders below the root, are not checked.
        if any("://" in source or target for source, target in workspace.projects.items()):
            continue
        places = [os.path.expanduser(source) for source in workspace.projects]
        is_copied = places and workspace.required and scheduler.copies_workspaces()
        if scheduler.has_only_local_files(info) and not is_copied:
            places += [os.curdir, *(str(info.cfg.get(key) or "") for key in _DIRECTORIES)]
        folders = list(dict.fromkeys(os.path.abspath(place) for place in places if place))
        if program.name and folders and not _is_found(*program, folders):
            yield f"{program.kind} '{program.name}' is not in {' or '.join(folders)}"


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
