"""Job arrays: submission of many apps by one ``bsub -J "name[1-N]"``, and index entries.

An app is one element of the array. ``train-x1.7`` is the app id of element 7 of the array
``train-x1``; ``101[7]`` is its job id in LSF. The record of the element is the sub-directory ``7``
of the array's record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from torchx_kit.jobs.arrays import JobArrays, ParallelLimit, submit_parts, without_variations
from torchx_kit.names.ids import common_start
from torchx_kit.secrets import secret_refs
from torchx_sched_lsf.client import LimitError, Lsf, LsfError, UnreachableError
from torchx_sched_lsf.describe import find_jobs, refresh
from torchx_sched_lsf.job_files.records import Entry, merged
from torchx_sched_lsf.names import element_id, job_name, make_app_id, split_element
from torchx_sched_lsf.queue.kill import kill_jobs
from torchx_sched_lsf.queue.queries import Job
from torchx_sched_lsf.request import LsfArray, LsfBsub
from torchx_sched_lsf.submit import submit
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from torchx_sched_lsf.scheduler import LsfScheduler
    from torchx_specs.model.app import AppDryRunInfo

# LSF's default of MAX_JOB_ARRAY_SIZE, for clusters whose bparams does not print the parameter.
_DEFAULT_SIZE = 1000
# Largest number of elements in an array that TorchX submits. Every query of an element reads the
# array's entry in the index, so the entry must stay small.
_LARGEST_SIZE = 2000
# Part of bsub's message, in lower case, if an array has more elements than MAX_JOB_ARRAY_SIZE.
_TOO_LARGE = "job array index too large"


def can_be_array(requests: Sequence[LsfBsub]) -> bool:
    """Return True if several requests differ only in arguments and environment variables.

    Only apps of one replica become elements of an array.
    """
    first = requests[0] if len(requests) > 1 else None
    if first is None or len(first.app.roles) != 1 or first.app.roles[0].num_replicas != 1:
        return False
    expected = _without_variations(first)
    return all(_without_variations(request) == expected for request in requests)


def _without_variations(request: LsfBsub) -> tuple[object, ...]:
    roles = [without_variations(role) for role in request.app.roles]
    return request.jobdir, request.cfg, request.cmd, roles


def max_array_size(lsf: Lsf) -> int:
    """Return how many elements an array may have: the cluster's limit, but at most 2000.

    Raises:
        UnreachableError: LSF cannot be reached.
    """
    try:
        output = lsf.run_idempotent("bparams", "-a")
    except UnreachableError:
        raise
    except LsfError:
        # An old version, or another system, has no bparams: assume LSF's default. If this is too
        # large, bsub refuses the array, and a smaller one is submitted.
        output = ""
    match = re.search(r"^\s*MAX_JOB_ARRAY_SIZE\s*=\s*(\d+)", output, re.M)
    return min(int(match[1]) if match else _DEFAULT_SIZE, _LARGEST_SIZE)


class LsfArrays(JobArrays["LsfScheduler"]):
    """Submits apps of one replica by ``bsub -J "name[1-99]%8"``, and ends many by one ``bkill``."""

    def _size(self, requests: Sequence[LsfBsub]) -> int:
        return max_array_size(self.scheduler._lsf) if can_be_array(requests) else 0

    def _submit_arrays(
        self, infos: Sequence[AppDryRunInfo[LsfBsub]], size: int, max_parallel: int | None
    ) -> Iterator[str]:
        """Submit arrays; if LSF refuses one as too large, or has too many jobs, submit a smaller.

        Raises:
            LimitError: Too many jobs are pending, even for an array of one element.
            LsfError: LSF does not accept an array, or cannot be reached.
        """
        requests = [info.request for info in infos]
        limit = ParallelLimit(-(-len(requests) // size), max_parallel)

        def submit_part(part: slice) -> Entry:
            return self._submit_array(requests[part], limit)

        for part, entry in submit_parts(len(requests), size, submit_part, _is_too_large):
            limit.add(entry.roles[0].jobs[0])
            for number in range(1, len(requests[part]) + 1):
                yield element_id(entry.app_id, number)

    def _submit_array(self, requests: Sequence[LsfBsub], limit: ParallelLimit) -> Entry:
        # The script of an app with a secret defines the function that reads secrets.
        model = next((one for one in requests if secret_refs(one.app.roles[0].env)), requests[0])
        names = [request.app.name for request in requests]
        name = common_start(names) or names[0]
        app_id = make_app_id(name)
        array = LsfArray(
            model.jobdir,
            app_id,
            model.app,
            model.cfg,
            model.cmd,
            elements=[request.app for request in requests],
            limit=limit.share,
            previous=limit.previous,
        )
        return submit(self.scheduler._lsf, array, app_id, name, self.scheduler._index, names)

    def cancel(self, app_ids: Iterable[str]) -> None:
        """End several apps. One call of bkill ends all given elements of an array.

        Raises:
            LsfError: LSF cannot be reached, or refuses to kill a job.
        """
        lsf, index = self.scheduler._lsf, self.scheduler._index
        groups: dict[str, list[str]] = {}
        for app_id in app_ids:
            array_id, element = split_element(app_id)
            if element and index.get(array_id) is not None:
                groups.setdefault(array_id, []).append(app_id)
            else:
                self.scheduler.cancel(app_id)
        for array_id, chosen in groups.items():
            array = index.get(array_id)
            if array is None:
                continue
            refresh(lsf, index, array)
            jobs = find_jobs(lsf, array)
            by_name = {job.name: job for job in jobs.values()}
            killed: list[Job] = []
            for app_id in chosen:
                entry = index.get(app_id)
                if entry is None or entry.deleted or entry.final is not None:
                    continue
                job = by_name.get(job_name(app_id, entry.roles[0].job_name, 0))
                if array.complete and (job is None or job.has_ended):
                    continue
                self.scheduler._mark_as_cancelled(entry)
                if job is not None:
                    killed.append(job)
            kill_jobs(lsf, killed, among=jobs.values())
            self.scheduler._array_jobs.forget(array.jobs[0] if array.jobs else "")


def _is_too_large(error: BackendError) -> bool:
    return isinstance(error, LimitError) or _TOO_LARGE in str(error).lower()


# Functions for submitted arrays.


def elements(array: Entry, own: Mapping[str, Entry]) -> list[Entry]:
    """Return the entries of the elements of an array that were not deleted.

    Args:
        array: The entry of the array.
        own: The entries that single elements have in the index, by app id.
    """
    made = (array.element(index) for index in range(1, len(array.names) + 1))
    found = (merged(element, own.get(element.app_id)) for element in made)
    return [element for element in found if not element.deleted]
