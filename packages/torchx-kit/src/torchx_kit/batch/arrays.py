"""Arrays of apps: an array is one job, and each of its tasks runs one app.

``train-x1.7`` is the id of the app with index 7 of the array ``train-x1``. The record of the app is
the sub-directory ``7`` of the array's record. Only apps of one replica become elements.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchx_kit.batch.entries import Entry
from torchx_kit.batch.errors import LimitError
from torchx_kit.batch.request import BatchRequest
from torchx_kit.hosts.errors import HostFileError
from torchx_kit.hosts.operations import MakeDirs, Write
from torchx_kit.jobs.arrays import ParallelLimit, submit_one_by_one
from torchx_kit.names.ids import common_start
from torchx_kit.secrets import secret_refs
from torchx_specs.schedulers.arrays import Arrays

if TYPE_CHECKING:
    from torchx_kit.batch.scheduler import BatchScheduler
    from torchx_specs.model.app import AppDryRunInfo


def can_be_array(requests: Sequence[Any]) -> bool:
    """Return True if several apps may become elements of one array."""
    expected = requests[0].variations() if len(requests) > 1 else None
    return expected is not None and all(one.variations() == expected for one in requests)


class BatchArrays(Arrays["BatchScheduler[Any]"]):
    """Submits apps of one replica as tasks of arrays, and ends many apps by one command."""

    def _submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[Any]], max_parallel: int | None = None
    ) -> Iterator[str]:
        """Submit several requests; see :meth:`Arrays.submit`.

        Requests that cannot become arrays are submitted one after another, at most ``max_parallel``
        of them. If the system refuses an array because of a limit, smaller ones are submitted.

        Raises:
            CapacityError: The requests cannot become arrays and are more than ``max_parallel``.
            LimitError: This user has too many jobs, even for an array of one element. The apps
                whose ids were not yielded were not submitted.
            BatchError: The system does not accept an array, or cannot be reached.
        """
        infos = list(dryrun_infos)
        system = self.scheduler.system
        requests = [self.scheduler._request(info) for info in infos]
        size = system.max_array_size() if can_be_array(requests) else 0
        size = min(size, system.largest_array or size)
        if size < 2:
            yield from submit_one_by_one(super()._submit, infos, max_parallel)
            return
        for info in infos:
            self.scheduler.build_pending(info)
        requests = [self.scheduler._request(info) for info in infos]
        limit = ParallelLimit(-(-len(requests) // size), max_parallel)
        while requests:
            try:
                entry = self._submit_array(requests[:size], limit)
            except LimitError:
                size = min(size, len(requests))
                if size == 1:
                    raise
                size = (size + 1) // 2
                continue
            limit.add(entry.jobs[0])
            yield from map(entry.element_id, range(len(entry.names)))
            requests = requests[size:]

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
            system.add_job_ids(elements, system.listing(None)[0].values())
        for entry in elements:
            self.scheduler._mark_as_cancelled(entry)
        if not system.cancels_all_elements:
            # An element that starts in the meantime, or that the system makes later, ends at once.
            marks = (
                (MakeDirs(e.record, 0o700), Write(f"{e.record}/cancelled", "")) for e in elements
            )
            with contextlib.suppress(HostFileError):  # the array's record may be missing
                system.batch([operation for pair in marks for operation in pair])
        system.cancel([job for entry in elements if (job := system.job_of_replica(entry, 0, 0))])

    def delete(self, app_ids: Iterable[str]) -> None:
        """Delete several apps. An array whose elements are all deleted keeps one index entry.

        Raises:
            BatchError: The system cannot be reached, or refuses to end a job.
        """
        scheduler, index = self.scheduler, self.scheduler._index
        elements: dict[str, dict[int, str]] = {}
        others = []
        for app_id in app_ids:
            array_id, element = index.entry_type.split_id(app_id)
            if element is None:
                others.append(app_id)
            else:
                elements.setdefault(array_id, {})[element] = app_id
        for array_id, ids in elements.items():
            array = index.get(array_id)
            own = index.own_elements(array) if array else {}
            gone = {*ids, *(one.element for one in own.values() if one.deleted)}
            if array and array.names and not array.deleted and gone >= set(range(len(array.names))):
                scheduler._delete_existing(array_id)
                for app_id in own:
                    index.remove(app_id)
            else:
                others += ids.values()
        for app_id in others:
            scheduler.delete(app_id)
