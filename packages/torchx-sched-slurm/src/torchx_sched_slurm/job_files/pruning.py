"""Find the snapshots of workspaces that no job uses, for ``torchx workspace prune``.

The snapshots are beside the records of jobs (:mod:`.job_dirs`). A job runs in its snapshot, so a
snapshot may also have files that jobs wrote; such a snapshot is kept.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from torchx_kit.batch.entries import Entry, Index
from torchx_kit.workspace.pruning import DEFAULT_AGE, remove_folder, tree_size
from torchx_kit.workspace.tree import tree_digest, workspace_files
from torchx_sched_slurm.job_files.job_dirs import EVERY_FILE, SNAPSHOTS, local_path
from torchx_sched_slurm.job_files.records import SlurmEntry, SlurmRecord
from torchx_sched_slurm.job_files.script import RECORDS, SCRIPT
from torchx_sched_slurm.jobs import SlurmJob
from torchx_sched_slurm.system import Slurm
from torchx_specs.errors import WorkspaceError
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
    entries: dict[str, Entry] = {}
    tasks: dict[str, dict[str, Entry]] = {}
    index: Any = Index("slurm", SlurmEntry)
    for entry in index.entries():
        if entry.element is not None:
            tasks.setdefault(entry.mark, {})[str(entry.element)] = entry
        elif entry.record:
            entries[entry.mark] = entry
    folders = {os.path.dirname(entry.record) for entry in entries.values()}
    folders.add(os.path.join(local_path(""), RECORDS))
    folders = {folder for folder in folders if _is_own_folder(os.path.join(folder, SNAPSHOTS))}
    if not folders:
        return
    slurm = Slurm()
    queued = {
        job.parts[0].mark
        for job in slurm.listing(None)[0].values()
        if isinstance(job, SlurmJob) and not slurm.phase_of(job).has_ended
    }
    age = DEFAULT_AGE if query.older_than is None else query.older_than
    for folder in sorted(folders):
        jobs = _Jobs(slurm, folder, entries, tasks, queued)
        for name in sorted(os.listdir(os.path.join(folder, SNAPSHOTS))):
            path = os.path.join(folder, SNAPSHOTS, name)
            if not _NAME.fullmatch(name) or not _is_own_folder(path):
                continue
            used = os.stat(path).st_mtime
            reason = jobs.use_of(path)
            if not reason and time.time() - used <= age:
                continue
            if not reason and not _is_unchanged(path, name):
                reason = "jobs have written or changed files in it"
            remove = None if reason else partial(remove_folder, path, partial(_is_unused, used))
            yield Prunable(path, tree_size(path), remove, used, reason)


class _Jobs:
    """The jobs whose records are in one directory.

    Args:
        slurm: The client.
        folder: The directory of records.
        entries: The jobs in the index, by mark.
        tasks: The tasks of arrays that have entries of their own, by mark and number of the task.
        queued: The marks of jobs in Slurm's queue that have not ended.
    """

    def __init__(
        self,
        slurm: Slurm,
        folder: str,
        entries: dict[str, Entry],
        tasks: dict[str, dict[str, Entry]],
        queued: set[str],
    ) -> None:
        self._slurm = slurm
        self._folder = folder
        self._entries = entries
        self._tasks = tasks
        self._queued = queued
        self._scripts: dict[str, str | None] = {}
        for mark in os.listdir(folder):
            if mark != SNAPSHOTS:
                self._scripts[mark] = _read(os.path.join(folder, mark, SCRIPT))

    def use_of(self, snapshot: str) -> str:
        """Return a message that names a job that may use a snapshot; empty if no job may use it."""
        name = os.path.basename(snapshot)  # the script may have the full path only with escapes
        for mark, script in sorted(self._scripts.items()):
            record = os.path.join(self._folder, mark)
            if script is None:
                return f"the record {record} cannot be read; its job may use the snapshot"
            if name in script and not self._has_ended(mark, record):
                entry = self._entries.get(mark)
                job = f"job {entry.app_id}" if entry else f"the job of {record}"
                if mark in self._queued:
                    return f"{job} uses it"
                hint = f" (torchx status slurm://torchx/{entry.app_id} finds out)" if entry else ""
                return f"the end of {job} is not known{hint}"
        return ""

    def _has_ended(self, mark: str, record: str) -> bool:
        if mark in self._queued:
            return False
        # A job that is not in this queue may still run on another cluster.
        entry = self._entries.get(mark)
        if entry is not None and entry.names:
            own = self._tasks.get(mark, {})
            return all(
                self._has_record_of_end(own.get(task), os.path.join(record, task))
                for task in map(str, range(len(entry.names)))
            )
        return self._has_record_of_end(entry, record)

    def _has_record_of_end(self, entry: Entry | None, record: str) -> bool:
        """Return True if the index or the record shows that a job or a task has ended."""
        if entry is not None and (entry.final or entry.cancelled or entry.deleted):
            return True
        outcome = SlurmRecord(self._slurm.host, record).outcome
        return outcome is not None and outcome.state != "REQUEUED"


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
