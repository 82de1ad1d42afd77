"""Find the snapshots of workspaces that no job uses, for ``torchx workspace prune``.

The snapshots are beside the records of jobs (:mod:`.job_dirs`). A job runs in its snapshot, so a
snapshot may also have files that jobs wrote; such a snapshot is kept.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial

from torchx_kit.workspace.pruning import DEFAULT_AGE, remove_folder, tree_size
from torchx_kit.workspace.tree import tree_digest, workspace_files
from torchx_sched_slurm.job_files.job_dirs import EVERY_FILE, SNAPSHOTS, local_path
from torchx_sched_slurm.job_files.records import SlurmEntry
from torchx_sched_slurm.job_files.script import RECORDS, SCRIPT
from torchx_sched_slurm.scheduler import SlurmScheduler
from torchx_specs.errors import WorkspaceError
from torchx_specs.model.status import is_terminal
from torchx_specs.workspace.pruning import Prunable, PruneQuery
from torchx_specs.workspace.spec import Workspace

_NAME = re.compile(r"([0-9a-f]{32})(-\d+)?")


def unused_snapshots(query: PruneQuery) -> Iterator[Prunable]:
    """Yield the snapshots beside the records of known jobs and in the current directory.

    A snapshot that must be kept has a reason and cannot be removed. Snapshots that no job uses are
    left out until they are old enough.

    Args:
        query: The user's request, with the minimum age.

    Raises:
        BatchError: The queue cannot be queried.
    """
    scheduler = SlurmScheduler("prune")
    entries = scheduler._slurm_entries()
    folders = {os.path.dirname(one.record) for one in entries if one.record and not one.array}
    folders.add(os.path.join(local_path(""), RECORDS))
    folders = {folder for folder in folders if _is_own_folder(os.path.join(folder, SNAPSHOTS))}
    if not folders:
        return
    uses = _uses(scheduler)
    age = DEFAULT_AGE if query.older_than is None else query.older_than
    for folder in sorted(folders):
        scripts = {
            mark: _read(os.path.join(folder, mark, SCRIPT))
            for mark in sorted(os.listdir(folder))
            if mark != SNAPSHOTS
        }
        for name in sorted(os.listdir(os.path.join(folder, SNAPSHOTS))):
            path = os.path.join(folder, SNAPSHOTS, name)
            if not _NAME.fullmatch(name) or not _is_own_folder(path):
                continue
            used = os.stat(path).st_mtime
            reason = next(filter(None, _reasons(name, folder, scripts, uses)), "")
            if not reason and time.time() - used <= age:
                continue
            if not reason and not _is_unchanged(path, name):
                reason = "jobs have written or changed files in it"
            remove = None if reason else partial(remove_folder, path, partial(_is_unused, used))
            yield Prunable(path, tree_size(path), remove, used, reason)


def _uses(scheduler: SlurmScheduler) -> dict[str, str]:
    """Return why the snapshot of a job must stay, by the mark; empty if the job has ended."""
    entries = scheduler._slurm_entries()
    known = {**scheduler._interrupted(entries), **{entry.app_id: entry for entry in entries}}
    found = {entry.mark: "" for entry in known.values() if entry.deleted and not entry.array}
    for app in scheduler.list():
        app_id = SlurmEntry.split_id(app.app_id)[0]
        if app_id in known:
            use = "" if is_terminal(app.state) else f"job {app_id} uses it"
            mark = known[app_id].mark
            found[mark] = found.get(mark) or use
    return found


def _reasons(
    name: str, folder: str, scripts: Mapping[str, str | None], uses: Mapping[str, str]
) -> Iterator[str]:
    """Yield why a snapshot must stay, for each job that may use it; empty if the job has ended.

    Args:
        name: The name of the snapshot; scripts may have the full path only with escapes.
        folder: The directory of the records.
        scripts: The scripts of the jobs by mark; None if it cannot be read.
        uses: The result of :func:`_uses`.
    """
    for mark, script in scripts.items():
        record = os.path.join(folder, mark)
        if script is None:
            yield f"the record {record} cannot be read; its job may use the snapshot"
        elif name in script:
            yield uses.get(mark, f"the end of the job of {record} is not known")


def _read(path: str) -> str | None:
    """Return the text of a job's script, '' if there is none, or None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError:
        return None


def _is_own_folder(path: str) -> bool:
    try:
        return not os.path.islink(path) and os.stat(path).st_uid == os.geteuid()
    except OSError:
        return False


def _is_unchanged(path: str, name: str) -> bool:
    """Return True if a snapshot has only the files of its workspace, and compiled Python code."""
    try:
        files = workspace_files(Workspace({path: ""}), (), EVERY_FILE)
        kept = [entry for entry in files if "__pycache__" not in entry.path.split("/")]
        return tree_digest(kept)[:32] == name[:32]
    except WorkspaceError:
        return False


def _is_unused(used: float, path: str) -> bool:
    """Return True if no submission has used a snapshot since ``used`` (seconds since 1970)."""
    return os.stat(path).st_mtime == used
