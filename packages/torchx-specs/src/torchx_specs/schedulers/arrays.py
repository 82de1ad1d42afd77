"""The interface for many apps at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torchx_specs.schedulers.features import Ability, S

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDryRunInfo


class Arrays(Ability[S]):
    """Submits and ends many apps of one scheduler; a scheduler returns one as ``app_arrays``.

    The methods treat one app after the other. A subclass overrides those for which its service
    needs fewer requests, and ``_submit`` in place of ``submit`` (features ``arrays``,
    ``mass_cancel`` and ``mass_delete``).
    """

    def submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[Any]], max_parallel: int | None = None
    ) -> Iterator[str]:
        """Submit several requests, and yield the id of each app once it is submitted.

        The ids come in the order of the requests. If one request fails, the apps whose ids were
        yielded stay submitted.

        Args:
            dryrun_infos: The requests.
            max_parallel: How many of the apps the backend runs at the same time (feature
                ``array_limit``); None means any number.

        Raises:
            CapacityError: The backend cannot hold apps that exceed ``max_parallel``; those before
                are submitted.
        """
        if max_parallel is not None:
            self.scheduler.features.require("array_limit", self.scheduler.backend)
        yield from self._submit(dryrun_infos, max_parallel)

    def _submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[Any]], max_parallel: int | None = None
    ) -> Iterator[str]:
        """Submit several requests, after :meth:`submit` has checked the feature ``array_limit``."""
        for info in dryrun_infos:
            yield self.scheduler.schedule(info)

    def cancel(self, app_ids: Iterable[str]) -> None:
        """End several apps. A missing app is not an error."""
        for app_id in app_ids:
            self.scheduler.cancel(app_id)

    def delete(self, app_ids: Iterable[str]) -> None:
        """End several apps, and remove them from the scheduler. A missing app is not an error."""
        for app_id in app_ids:
            self.scheduler.delete(app_id)
