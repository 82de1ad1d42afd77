"""Job arrays: many apps by one ``sbatch --array``; ``123_4`` is the id of task 4.

The record of the array contains the batch script, the commands of all tasks
(:mod:`torchx_kit.jobs.arrays`) and the names of the apps. The record of task 4 is the sub-directory
``4`` of the array's record. If the submission of the array is interrupted, the names of the apps
identify the tasks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torchx_kit.batch.arrays import BatchArrays
from torchx_kit.jobs.arrays import range_numbers, ranges
from torchx_sched_slurm.job_files.records import SlurmEntry
from torchx_sched_slurm.jobs import JobId


def _by_array(app_ids: Iterable[str]) -> tuple[dict[JobId, set[int]], list[str]]:
    """Return the numbers of the given tasks by the id of their array, and the other ids."""
    tasks: dict[JobId, set[int]] = {}
    others = []
    for app_id in app_ids:
        job_id = JobId.parse(app_id)
        if job_id is not None and job_id.task:
            tasks.setdefault(replace(job_id, task=""), set()).add(int(job_id.task))
        else:
            others.append(app_id)
    return tasks, others


class SlurmArrays(BatchArrays):
    """Submits, cancels and deletes many apps at once, as tasks of arrays."""

    largest_size = None

    def cancel(self, app_ids: Iterable[str]) -> None:
        """End several apps. One call of scancel ends all given tasks of an array.

        Raises:
            BatchError: Slurm cannot be reached.
        """
        scheduler, index = self.scheduler, self.scheduler._index
        tasks, others = _by_array(app_ids)
        for app_id in others:
            scheduler.cancel(app_id)
        for array, numbers in tasks.items():
            selected = replace(array, number=f"{array.number}_[{ranges(numbers)}]")
            scheduler.system.cancel([str(selected)])
            entry = index.get(str(array))
            if isinstance(entry, SlurmEntry):  # Slurm forgets ended jobs
                entry.cancelled_tasks = ranges(numbers | range_numbers(entry.cancelled_tasks))
                index.put(entry)
            scheduler._listings.forget(str(array))

    def delete(self, app_ids: Iterable[str]) -> None:
        """Delete several apps. An array whose tasks are all deleted keeps one entry in the index.

        Raises:
            BatchError: Slurm cannot be reached.
        """
        scheduler, index = self.scheduler, self.scheduler._index
        tasks, others = _by_array(app_ids)
        for array_id, numbers in tasks.items():
            array = index.get(str(array_id))
            own = index.own_elements(array) if array else {}
            deleted = {one.element for one in own.values() if one.deleted}
            rest = set(range(len(array.names))) if array and not array.deleted else {-1}
            if numbers | deleted >= rest:
                scheduler._delete_existing(str(array_id))
                for app_id in own:
                    index.remove(app_id)
            else:
                others += [str(replace(array_id, task=str(number))) for number in numbers]
        for app_id in others:
            scheduler.delete(app_id)
