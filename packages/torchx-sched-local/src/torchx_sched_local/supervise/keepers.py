"""Checks whether an app's supervisor or guard lives, if the records of their pids are damaged."""

from __future__ import annotations

import itertools
import os

from torchx_sched_local.supervise.processes import process_table


def is_kept(folder: str, journal: str, app_id: str) -> bool:
    """Return True if the supervisor or the guard of an app lives.

    If too many files are open to find this out, return True as well.

    The command lines of guards and of supervisor processes contain the app's folder and id. On
    Linux, a process that has the journal open for appending is found too. It is the supervisor of
    an attached app, whose guard may be shared with other apps.

    Args:
        folder: The path of the app's folder, as in the index and in command lines.
        journal: The app's journal.
        app_id: The app's id.
    """
    path = os.path.realpath(journal)
    pids = [os.getpid(), *process_table.pids_of_user()]
    try:
        return any(
            (folder, app_id) in _pairs(process_table.read_command(pid))
            or process_table.appends_to(pid, path)
            for pid in pids
        )
    except OSError:  # too many open files
        return True


def _pairs(command: list[str]) -> set[tuple[str, str]]:
    return set(itertools.pairwise(command))
