"""Arrays: many apps that are submitted together are the replicas of one app.

The apps differ only in names, arguments and variables. The supervisor of the array starts the next
replica when another one has ended, so that at most ``max_parallel`` run at the same time.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

from torchx_kit.jobs.arrays import element_id, split_element_id, without_variations
from torchx_sched_local.errors import single_element_error
from torchx_sched_local.request import Element, PopenRequest, format_request
from torchx_sched_local.scheduler import LocalScheduler
from torchx_specs.errors import CapacityError
from torchx_specs.model.app import AppDryRunInfo, RetryPolicy
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.arrays import Arrays


class LocalArrays(Arrays[LocalScheduler]):
    """Submits many apps as one app with many replicas; see :class:`Arrays`."""

    def submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[PopenRequest]], max_parallel: int | None = None
    ) -> Iterator[str]:
        """Submit several requests; see :meth:`Arrays.submit`.

        Consecutive requests of one replica that differ only in names, arguments and variables
        become an array, for which only these are kept: an iterator may make each dry run when it is
        needed.

        Raises:
            CapacityError: The requests are not one array, and are more than ``max_parallel``.
            RequestError: As for ``schedule``.
            BackendError: As for ``schedule``.
        """
        left = max_parallel
        for _, alike in groupby(dryrun_infos, self._shape):
            if left == 0:
                raise CapacityError(
                    f"the other apps would exceed max_parallel={max_parallel}; submit them when"
                    " others have ended"
                )
            elements: list[Any] = []
            for info in alike:
                app = info.app
                elements.append(app and (app.name, app.roles[0].args, app.roles[0].env))
            if len(elements) == 1:
                yield self.scheduler.schedule(info)
            else:
                array = self.scheduler.schedule(self._array(info, elements, left))
                yield from (element_id(array, index) for index in range(len(elements)))
            if left is not None:
                left = max(0, left - len(elements))

    def _shape(self, info: AppDryRunInfo[PopenRequest]) -> object:
        """Return what the apps of an array have in common.

        Of an app that cannot be an element, the result equals no other one.
        """
        app = info.app
        if (
            type(self.scheduler) is not LocalScheduler
            or app is None
            or [role.num_replicas for role in app.roles] != [1]
            or info.request.attempts  # each app has attempts of its own
        ):
            return object()
        return without_variations(app.roles[0]), app.metadata, info.cfg

    def _array(
        self, info: AppDryRunInfo[Any], elements: list[Element], max_parallel: int | None
    ) -> AppDryRunInfo[PopenRequest]:
        """Return the request of the app whose replicas are the elements.

        Args:
            info: The dry run of one of the elements.
            elements: What differs between the elements.
            max_parallel: How many of them may run at the same time; None means all.
        """
        app: Any = copy.deepcopy(info.app)
        (role,) = app.roles
        prefix = os.path.commonprefix([name for name, _, _ in elements])  # noqa: RUF071 - no paths
        name = prefix.rstrip("-.") or app.name
        app_id = self.scheduler._new_id(name)
        log_dir = self.scheduler._get_app_log_dir(app_id, info.cfg)
        params, log_dirs = [], []
        for index, (app.name, role.args, role.env) in enumerate(elements):
            element = self.scheduler._request(
                app, element_id(app_id, index), log_dir, info.cfg, index
            )
            params += element.role_params[role.name]
            log_dirs += element.role_log_dirs[role.name]
        # The options, and what follows from them, are the same in all elements.
        request = replace(
            element,
            app_id=app_id,
            role_params={role.name: params},
            role_log_dirs={role.name: log_dirs},
            max_parallel=max_parallel,
            elements=elements,
        )
        app.name, role.num_replicas, role.retry_policy = name, len(elements), RetryPolicy.REPLICA
        array = AppDryRunInfo(request, format_request)
        array.app, array.cfg = app, info.cfg
        return array

    def cancel(self, app_ids: Iterable[str]) -> None:
        """End several apps; if no element of an array is to continue, end the array at once."""
        for array, indices in _by_array(app_ids).items():
            stored = self.scheduler._stored(array)
            ids = [array]
            if stored is not None and indices:
                (replicas,) = stored.refresh().roles.values()
                if not all(k in indices or is_terminal(r.state) for k, r in enumerate(replicas)):
                    ids = [element_id(array, index) for index in indices]
            for app_id in ids:
                self.scheduler.cancel(app_id)

    def delete(self, app_ids: Iterable[str]) -> None:
        """Delete several apps; of an array, all elements or none.

        Raises:
            RequestError: Other elements of an array would remain.
        """
        for array, indices in _by_array(app_ids).items():
            stored = self.scheduler._stored(array)
            if stored is not None and indices and len(indices) < len(stored.refresh().replicas):
                raise single_element_error(element_id(array, min(indices)), array)
            self.scheduler.delete(array)


def _by_array(app_ids: Iterable[str]) -> dict[str, set[Any]]:
    """Return the indices of the given elements by array; no indices mean the whole app."""
    found: dict[str, set[Any]] = {}
    for app_id in app_ids:
        array, index = split_element_id(app_id)
        found.setdefault(array, set()).add(index)
    return {array: set() if None in indices else indices for array, indices in found.items()}
