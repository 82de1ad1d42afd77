"""Keep waiting tasks from starting, so that they can be deleted before they run.

``qdel`` alone may end a task that has started since the last query. Once the qmaster has accepted
``qhold`` for a job, it starts none of the job's tasks. A running task continues: its hold takes
effect only if Grid Engine reschedules the task. So this module holds the jobs, and then checks that
all tasks wait.
"""

from __future__ import annotations

from torchx_sched_sge.client import Sge, SgeError, UnreachableError
from torchx_sched_sge.queries import Task, all_tasks
from torchx_sched_sge.records import Entry

# The hold that the owner of a job may set and remove.
_USER_HOLD = ("-h", "u")
_MISSING = "does not exist"


def hold_unless_started(sge: Sge, entry: Entry) -> bool:
    """Hold the jobs of an app, and return whether all tasks wait and none has ever started.

    If a task has started between the first query and the hold, the jobs are released.

    Args:
        sge: The client.
        entry: The app's index entry.

    Raises:
        SgeError: Grid Engine refuses the hold, or cannot be reached.
    """
    if not _never_started(entry, all_tasks(sge)):
        return False
    _change_hold(sge, "qhold", entry)
    if _never_started(entry, all_tasks(sge)):
        return True
    release(sge, entry)
    return False


def release(sge: Sge, entry: Entry) -> None:
    """Remove the user holds of an app's jobs; jobs that have ended are not an error.

    Raises:
        SgeError: Grid Engine refuses, or cannot be reached.
    """
    _change_hold(sge, "qrls", entry)


def _change_hold(sge: Sge, command: str, entry: Entry) -> None:
    for job in entry.jobs:
        try:
            sge.run_idempotent(command, *_USER_HOLD, job)
        except UnreachableError:
            raise
        except SgeError as e:
            if _MISSING not in str(e):
                raise


def _never_started(entry: Entry, tasks: dict[tuple[str, int], Task]) -> bool:
    """Return whether all tasks of an app wait, and Grid Engine has not rescheduled one of them.

    A task that has ended is missing in ``tasks``. A rescheduled task has an ``R`` in its state.
    """
    own = [
        tasks.get((role.job, number))
        for role in entry.roles
        for number in range(1, role.num_replicas + 1)
    ]
    return bool(own) and all(
        task is not None and task.is_waiting and not set("RE") & set(task.state) for task in own
    )
