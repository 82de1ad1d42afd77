"""Arrays of apps: an array is one job, and each of its tasks runs one app.

``train-x1.7`` is the id of the app with index 7 of the array ``train-x1``. The record of the app is
the sub-directory ``7`` of the array's record. Only apps of one replica become elements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torchx_kit.batch.entries import Entry
from torchx_kit.batch.errors import LimitError
from torchx_kit.batch.request import BatchRequest
from torchx_kit.batch.submit import add_job_ids
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.hosts.operations import MakeDirs, Write
from torchx_kit.jobs.arrays import (
    JobArrays,
    ParallelLimit,
    submit_parts,
)
from torchx_kit.names.ids import common_start
from torchx_kit.secrets import secret_refs

if TYPE_CHECKING:
    from torchx_kit.batch.scheduler import BatchScheduler
    from torchx_specs.model.app import AppDryRunInfo


def can_be_array(requests: Sequence[Any]) -> bool:
    """Return True if several apps may become elements of one array."""
    expected = requests[0].variations() if len(requests) > 1 else None
    return expected is not None and all(one.variations() == expected for one in requests)


class BatchArrays(JobArrays["BatchScheduler[Any]"]):
    """Submits apps of one replica as tasks of arrays, and ends many apps by one command."""

    #: The largest number of elements in an array that TorchX submits; None for the system's limit.
    #: Every query of an element reads the array's entry in the index, so the entry must stay small.
    largest_size: ClassVar[int | None] = 2000

    def _size(self, infos: Sequence[AppDryRunInfo[Any]]) -> int:
        requests = [self.scheduler._request(info) for info in infos]
        size = self.scheduler.system.max_array_size() if can_be_array(requests) else 0
        return size if self.largest_size is None else min(size, self.largest_size)

    def _submit_arrays(
        self, infos: Sequence[AppDryRunInfo[Any]], size: int, max_parallel: int | None
    ) -> Iterator[str]:
        """Submit arrays; if the system refuses one because of a limit, submit a smaller one.

        Raises:
            LimitError: This user has too many jobs, even for an array of one element.
            BatchError: The system does not accept an array, or cannot be reached.
        """
        requests = [self.scheduler._request(info) for info in infos]
        limit = ParallelLimit(-(-len(requests) // size), max_parallel)

        def submit_part(part: slice) -> Entry:
            return self._submit_array(requests[part], limit)

        parts = submit_parts(
            len(requests), size, submit_part, lambda error: isinstance(error, LimitError)
        )
        for part, entry in parts:
            limit.add(entry.roles[0].jobs[0])
            for index in range(part.stop - part.start):
                yield entry.element_id(index)

    def _submit_array(self, requests: Sequence[BatchRequest], limit: ParallelLimit) -> Entry:
        # The script of an app with a secret defines the function that reads secrets.
        model = next(
            (one for one in requests if any(map(secret_refs, one.environments()))), requests[0]
        )
        name = common_start([request.name for request in requests]) or requests[0].name
        array = model.as_array(requests, name, limit.share, limit.previous)
        return self.scheduler._submit(array)

    def cancel(self, app_ids: Iterable[str]) -> None:
        """End several apps. One command ends all given elements of arrays.

        Raises:
            BatchError: The system cannot be reached, or refuses to end a job.
        """
        system, index = self.scheduler.system, self.scheduler._index
        elements = []
        for app_id in app_ids:
            entry = index.get(app_id)
            if entry is None or entry.element is None:
                self.scheduler.cancel(app_id)
            elif not entry.deleted and entry.final is None:
                elements.append(entry)
        if not all(entry.complete for entry in elements):
            add_job_ids(system, elements, system.listing(None)[0].values())
        for entry in elements:
            self.scheduler._mark_as_cancelled(entry)
        # An element that starts in the meantime, or that the system makes later, ends at once.
        marks = ((MakeDirs(e.record, 0o700), Write(f"{e.record}/cancelled", "")) for e in elements)
        with contextlib.suppress(HostFileError):  # the array's record may be missing
            system.batch([operation for pair in marks for operation in pair])
        system.cancel([job for entry in elements if (job := system.job_of_replica(entry, 0, 0))])
