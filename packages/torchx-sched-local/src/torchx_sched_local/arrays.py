"""Arrays: many apps that are submitted together are the replicas of one app.

The apps differ only in names, arguments and variables. The supervisor of the array starts the next
replica when another one has ended, so that at most ``max_parallel`` run at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from torchx_kit.jobs.arrays import (
    element_id,
    split_element_id,
    submit_one_by_one,
    without_variations,
)
from torchx_sched_local.errors import single_element_error
from torchx_sched_local.request import PopenRequest, format_request
from torchx_sched_local.scheduler import LocalScheduler
from torchx_specs.model.app import AppDryRunInfo, RetryPolicy
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.arrays import Arrays


class LocalArrays(Arrays[LocalScheduler]):
    """Submits many apps as one app with many replicas; see :class:`Arrays`."""

    def submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[PopenRequest]], max_parallel: int | None = None
    ) -> Iterator[str]:
        """Submit several requests; see :meth:`Arrays.submit`.

        Requests that differ in more than names, arguments and variables, or that have several
        replicas, are submitted one after another, at most ``max_parallel`` of them.

        Raises:
            CapacityError: The requests cannot become an array, and are more than ``max_parallel``.
            RequestError: As for ``schedule``.
            BackendError: As for ``schedule``.
        """
        infos = list(dryrun_infos)
        if len(infos) < 2 or not self._are_alike(infos):
            yield from submit_one_by_one(super().submit, infos, max_parallel)
            return
        array = self.scheduler.schedule(self._array(infos, max_parallel))
        for index in range(len(infos)):
            yield element_id(array, index)

    def _are_alike(self, infos: Sequence[AppDryRunInfo[PopenRequest]]) -> bool:
        first = _shape(infos[0])
        return (
            first is not None
            and type(self.scheduler) is LocalScheduler
            and all(_shape(info) == first for info in infos)
        )

    def _array(
        self, infos: Sequence[AppDryRunInfo[Any]], max_parallel: int | None
    ) -> AppDryRunInfo[PopenRequest]:
        """Return the request of the app whose replicas are the elements."""
        apps = [info.app for info in infos if info.app is not None]
        cfg = infos[0].cfg
        role = apps[0].roles[0]
        prefix = os.path.commonprefix([app.name for app in apps])  # noqa: RUF071 - no paths
        name = prefix.rstrip("-.") or apps[0].name
        array = replace(
            apps[0],
            name=name,
            roles=[replace(role, num_replicas=len(apps), retry_policy=RetryPolicy.REPLICA)],
        )
        app_id = self.scheduler._new_id(name)
        log_dir = self.scheduler._get_app_log_dir(app_id, cfg)
        params, log_dirs = [], []
        for index, app in enumerate(apps):
            element = self.scheduler._request(app, element_id(app_id, index), log_dir, cfg, index)
            params += element.role_params[role.name]
            log_dirs += element.role_log_dirs[role.name]
        # The options, and what follows from them, are the same in all elements.
        request = replace(
            element,
            app_id=app_id,
            role_params={role.name: params},
            role_log_dirs={role.name: log_dirs},
            max_parallel=max_parallel,
            elements=[(app.name, app.roles[0].args, app.roles[0].env) for app in apps],
        )
        info = AppDryRunInfo(request, format_request)
        info.app, info.cfg = array, cfg
        return info

    def cancel(self, app_ids: Iterable[str]) -> None:
        """End several apps; if no element of an array is to continue, end the array at once."""
        for array, indices in _by_array(app_ids).items():
            stored = self.scheduler._stored(array)
            if stored is None or not indices:
                self.scheduler.cancel(array)
                continue
            (replicas,) = stored.refresh().roles.values()
            if all(k in indices or is_terminal(r.state) for k, r in enumerate(replicas)):
                self.scheduler.cancel(array)
                continue
            for index in indices:
                self.scheduler.cancel(element_id(array, index))

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


def _shape(info: AppDryRunInfo[Any]) -> tuple[Any, ...] | None:
    """Return what the apps of an array have in common; None if the app cannot be an element."""
    app = info.app
    if app is None or len(app.roles) != 1 or app.roles[0].num_replicas != 1:
        return None
    if info.request.attempts:
        return None  # each app has attempts of its own
    (role,) = app.roles
    return without_variations(role), app.metadata, info.cfg


def _by_array(app_ids: Iterable[str]) -> dict[str, set[int]]:
    """Return the indices of the given elements by array; no indices mean the whole app."""
    found: dict[str, set[int]] = {}
    whole = set()
    for app_id in app_ids:
        array, index = split_element_id(app_id)
        indices = found.setdefault(array, set())
        if index is None:
            whole.add(array)
        else:
            indices.add(index)
    return {array: set() if array in whole else indices for array, indices in found.items()}
