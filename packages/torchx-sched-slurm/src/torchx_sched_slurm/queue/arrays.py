"""Job arrays: submission of many apps by one ``sbatch --array``, and the state of their tasks.

An app is one task of the array; ``123_4`` is the id of task 4. The apps of an array differ
only in arguments and environment variables. The record of the array contains the batch script, the
commands of all tasks (:mod:`torchx_kit.jobs.arrays`) and the names of the apps. The record of task
4 is the sub-directory ``4`` of the array's record. If the submission of the array is interrupted,
the names of the apps identify the tasks.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx_kit.coalescing_cache import CoalescingCache
from torchx_kit.hosts.api import Host
from torchx_kit.jobs.arrays import (
    JobArrays,
    ParallelLimit,
    array_state,
    range_numbers,
    ranges,
    submit_parts,
    task_files,
    task_line,
)
from torchx_kit.names.ids import common_start as common_start
from torchx_kit.names.limits import BATCH_JOB, fit_name
from torchx_kit.secrets import secret_refs
from torchx_sched_slurm import describe
from torchx_sched_slurm.client import LimitError, Slurm
from torchx_sched_slurm.job_files.records import Entry, SlurmRecord
from torchx_sched_slurm.queue.queries import UNKNOWN_JOB, Job, JobId, array_tasks, selector
from torchx_sched_slurm.request import SlurmBatchRequest
from torchx_sched_slurm.submit import app_name, submit
from torchx_specs.errors import CapacityError
from torchx_specs.model.templates import macros
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse

if TYPE_CHECKING:
    from torchx_sched_slurm.scheduler import SlurmScheduler
    from torchx_specs.model.app import AppDryRunInfo

#: The file, in the record of an array, with the names of the apps as JSON.
NAMES = "names.json"
# Slurm's default of MaxArraySize.
_DEFAULT_SIZE = 1001
# Parts of scancel's error messages for jobs that have ended or are ending, in lower case.
_ENDED = (*UNKNOWN_JOB, "already completing or completed")
# Maximum age of the cached result of squeue for an array, in seconds.
_MAX_AGE_SECONDS = 2.0


def can_be_array(requests: Sequence[SlurmBatchRequest]) -> bool:
    """Return True if requests differ only in arguments and environment variables.

    Heterogeneous jobs, and jobs whose ``job_dir`` contains ``${app_id}``, cannot become an array.
    """
    if len(requests) < 2:
        return False
    first = requests[0]
    if len(first.groups()) != 1 or macros.app_id in (first.job_dir or ""):
        return False
    expected = _without_variations(first)
    return all(_without_variations(request) == expected for request in requests[1:])


def _without_variations(request: SlurmBatchRequest) -> SlurmBatchRequest:
    replicas = {name: replace(role, args=[], env={}) for name, role in request.replicas.items()}
    return replace(request, replicas=replicas, job_name="")


def max_array_size(slurm: Slurm) -> int:
    """Return how many tasks an array may have; 0 if the cluster allows no arrays."""
    output = slurm.run_idempotent("scontrol", "show", "config")
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", output, re.M)
    return int(match[1]) if match else _DEFAULT_SIZE


class ArrayShares(ParallelLimit):
    """Divides a limit of running tasks among the arrays of one submission.

    An array that waits for an earlier array also waits for the user's dependency: if that is never
    met, Slurm may cancel the earlier array, which would release this one. Slurm cannot combine
    alternatives (``afterok:1?afterok:2``) with another condition. With alternatives, the later
    array must be submitted after the end of the earlier array.

    Args:
        arrays: The number of arrays.
        limit: How many tasks may run at the same time; None means without a limit.
        dependency: The user's option ``dependency``; empty if it is not set.
    """

    def __init__(self, arrays: int, limit: int | None, dependency: str = "") -> None:
        super().__init__(arrays, limit)
        self._dependency = dependency

    def options(self, tasks: int) -> list[str]:
        """Return the options of sbatch for the next array.

        Raises:
            CapacityError: The array must be submitted after the end of an earlier array.
        """
        limit = "" if self.share is None else f"%{self.share}"
        options = [f"--array=0-{tasks - 1}{limit}"]
        if self.previous:
            if "?" in self._dependency:  # the separator of alternative conditions
                raise CapacityError(
                    f"the next array must wait for the end of array {self.previous}, and Slurm"
                    f" cannot combine that with the alternatives dependency={self._dependency!r};"
                    " submit the other apps when that array has ended"
                )
            conditions = filter(None, (self._dependency, f"afterany:{self.previous}"))
            options.append(f"--dependency={','.join(conditions)}")
        return options


def _has_secret(request: SlurmBatchRequest) -> bool:
    return any(secret_refs(replica.env) for replica in request.replicas.values())


# -- submitted arrays


def task_names(host: Host, record: str) -> list[str]:
    """Return the names of the apps of an array; an empty list if the record has none.

    Args:
        host: The machine with the job's files.
        record: Directory of the array's record.
    """
    try:
        names = json.loads(SlurmRecord(host, record).text(NAMES))
    except ValueError:
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def task_id(array_id: str, task: int | str) -> str:
    """Return the id of a task.

    >>> task_id("12@main", 3)
    '12_3@main'
    """
    return re.sub(r"^\d+", rf"\g<0>_{task}", array_id)


def task_entry(array: Entry, task: int, name: str) -> Entry:
    """Return the index entry of a task, made from the entry of its array."""
    return replace(
        array,
        app_id=task_id(array.app_id, task),
        name=name,
        record=posixpath.join(array.record, str(task)),
        tasks=0,
        state="",
        cancelled=array.cancelled or task in range_numbers(array.cancelled_tasks),
        cancelled_tasks="",
    )


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


class SlurmArrays(JobArrays["SlurmScheduler"]):
    """Submits and ends tasks of arrays; looks them up in the queue, the index and the records.

    The results of squeue are cached for a short time, because callers usually describe the tasks of
    an array one after the other. So the scheduler keeps one object for all calls.

    Args:
        scheduler: The scheduler.
    """

    def __init__(self, scheduler: SlurmScheduler) -> None:
        super().__init__(scheduler)
        self._slurm, self._index = scheduler._slurm, scheduler._index
        self._queued: CoalescingCache[dict[str, Job]] = CoalescingCache()
        self._names: dict[str, list[str]] = {}

    def _size(self, requests: Sequence[SlurmBatchRequest]) -> int:
        return max_array_size(self._slurm) if can_be_array(requests) else 0

    def _submit_arrays(
        self, infos: Sequence[AppDryRunInfo[SlurmBatchRequest]], size: int, max_parallel: int | None
    ) -> Iterator[str]:
        """Submit arrays; if the user's limit of submitted jobs refuses one, submit a smaller.

        Raises:
            CapacityError: The user's limit of submitted jobs does not allow even one more task, or
                the option ``dependency`` has alternatives (``?``), and the next array must wait for
                an earlier array.
            SlurmError: Slurm does not accept an array, or cannot be reached.
        """
        first_role = next(iter(infos[0].request.replicas.values()))
        dependency = first_role.sbatch_opts.get("dependency") or ""
        shares = ArrayShares(-(-len(infos) // size), max_parallel, dependency)

        def submit_part(part: slice) -> Entry:
            chosen = infos[part]
            return self._submit_array(chosen, shares.options(len(chosen)))

        parts = submit_parts(len(infos), size, submit_part, lambda e: isinstance(e, LimitError))
        for _, array in parts:
            shares.add(selector(array.app_id))
            for task in range(array.tasks):
                yield task_id(array.app_id, task)

    def _submit_array(
        self, infos: Sequence[AppDryRunInfo[SlurmBatchRequest]], options: list[str]
    ) -> Entry:
        names = [app_name(info) for info in infos]
        requests = [info.request for info in infos]
        # The script of an app with a secret defines the function that reads secrets.
        model = next((one for one in requests if _has_secret(one)), requests[0])
        array = replace(
            model,
            cmd=[*model.cmd, *options],
            job_name=fit_name(common_start(names) or names[0], BATCH_JOB),
            is_array=True,
        )

        def files(record: str) -> Iterator[tuple[str, str]]:
            yield NAMES, json.dumps(names)
            yield from task_files(
                task_line(replace(request, record=record).commands()) for request in requests
            )

        return submit(self._slurm, self._index, array, names[0], files, len(requests))

    def cancel(self, app_ids: Iterable[str]) -> None:
        """End several apps. One call of scancel ends all given tasks of an array.

        Raises:
            SlurmError: Slurm cannot be reached.
        """
        tasks, others = _by_array(app_ids)
        for app_id in others:
            self.scheduler.cancel(app_id)
        for array, numbers in tasks.items():
            tasks_of = f"{array.number}_[{ranges(numbers)}]"
            self._slurm.run_unless(_ENDED, "scancel", *array.options(), tasks_of)
            entry = self._index.get(str(array))
            if entry is not None:  # Slurm forgets ended jobs
                entry.cancelled_tasks = ranges(numbers | range_numbers(entry.cancelled_tasks))
                self._index.put(entry)
            self.forget(array)

    def delete(self, app_ids: Iterable[str]) -> None:
        """Delete several apps. An array whose tasks are all deleted keeps one entry in the index.

        Raises:
            SlurmError: Slurm cannot be reached.
        """
        tasks, others = _by_array(app_ids)
        for array_id, numbers in tasks.items():
            array = self._index.get(str(array_id))
            own = [*self._own(str(array_id))]
            deleted = {int(selector(one.app_id).partition("_")[2]) for one in own if one.deleted}
            rest = set(range(array.tasks)) if array and not array.deleted else {-1}
            if numbers | deleted >= rest:
                self.scheduler._delete_existing(str(array_id))
                for entry in own:
                    self._index.remove(entry.app_id)
            else:
                others += [str(replace(array_id, task=str(number))) for number in numbers]
        for app_id in others:
            self.scheduler.delete(app_id)

    def _own(self, array_id: str) -> Iterator[Entry]:
        """Yield the index entries that single tasks of an array have."""
        return self._index.entries(f"{selector(array_id)}_")

    def describe(self, array: Entry) -> DescribeAppResponse:
        """Return the description of an array as a whole, which ends with its last task.

        Raises:
            SlurmError: The queue cannot be queried.
        """
        own = {entry.app_id: entry for entry in self._own(array.app_id)}
        state, message = array_state((task.state for task in self.listed(array, own)), "tasks")
        return DescribeAppResponse(array.app_id, state, msg=message)

    def queued(self, array: JobId, max_age: float = _MAX_AGE_SECONDS) -> Mapping[str, Job]:
        """Return the tasks of an array in the controller's queue, by number of the task.

        Args:
            array: The id of the array or of a task.
            max_age: Maximum age of a cached result, in seconds.

        Raises:
            SlurmError: The queue cannot be queried.
        """
        key = str(replace(array, task=""))
        return self._queued.get(key, lambda _: array_tasks(self._slurm, array), max_age) or {}

    def forget(self, array: JobId) -> None:
        """Discard the cached result of squeue for an array after one of its tasks was changed."""
        self._queued.forget(str(replace(array, task="")))

    def names(self, record: str) -> list[str]:
        """Return the names of the apps of an array, from the cache or from the array's record.

        Args:
            record: Directory of the array's record.
        """
        found = self._names.get(record)
        if found is None:
            found = task_names(self._slurm.host, record)
            if found:
                self._names[record] = found
        return found

    def task(self, array: Entry | None, job_id: JobId) -> Entry | None:
        """Return the entry of a task, or None if the array has no such task.

        Args:
            array: The entry of the array; None if the index has none.
            job_id: The id of the task.
        """
        if array is None or not array.tasks:
            return None
        names, task = self.names(array.record), int(job_id.task)
        if task >= array.tasks:
            return None
        return task_entry(array, task, names[task] if task < len(names) else array.name)

    def entry_from_record(self, job_id: JobId, job: Job) -> Entry | None:
        """Return the entry of an array that is not in the index, made from the array's record.

        Args:
            job_id: The id of the array or of a task.
            job: The array or task as the queue or accounting lists it.
        """
        entry = describe.entry_from_record(self._slurm.host, str(replace(job_id, task="")), job)
        if entry is not None:
            entry.tasks = len(self.names(entry.record))
        return entry if entry is not None and entry.tasks else None

    def listed(
        self,
        array: Entry,
        own: Mapping[str, Entry],
        known: Job | None = None,
        is_queued: bool = True,
    ) -> list[ListAppResponse]:
        """Return the tasks of an array that were not deleted.

        Args:
            array: The entry of the array.
            own: Entries of single tasks, by id. Such a task is listed with its own entry instead of
                the array's.
            known: The array as the accounting lists it.
            is_queued: Whether the controller's queue may have the array.

        Raises:
            SlurmError: The queue cannot be queried.
        """
        job_id = JobId.parse(array.app_id)
        if job_id is None:
            return []
        # `known` is not enough: it contains one item for all pending tasks of the array.
        queued = self.queued(job_id) if is_queued else {}
        ended = {part.task: part for part in known or ()}
        found = []
        for task in map(str, range(array.tasks)):
            app_id = task_id(array.app_id, task)
            entry = own.get(app_id) or self.task(array, replace(job_id, task=task))
            if entry is None or entry.deleted:
                continue
            job = queued.get(task) or ((ended[task],) if task in ended else None)
            found.append(describe.list_item(self._slurm.host, app_id, entry, job))
        return found
