"""Wait for a change of an app by the watch API of the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from torchx_sched_k8s.cluster.client import Cluster, chunks
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.status.views import AppView
from torchx_specs.errors import BackendError
from torchx_specs.schedulers.closing import Closing, shut_down

_LONGEST_WATCH = 30.0
_PAUSE = 0.5
#: The pause between two polls if the cluster refuses watches, in seconds.
_REFUSED_PAUSE = 2.0
#: The pause after a change, in seconds, so that several changes at the same time are read together.
_CHANGED_PAUSE = 0.05
#: How long, for each replica, only a change of an app's state ends the wait after another change,
#: in seconds. An app of many short replicas changes several times a second, and a caller lists all
#: its pods after each wait.
_QUIET_PER_REPLICA = 0.05
_LONGEST_QUIET = 10.0
#: A shorter time is not worth another request, in seconds.
_SHORTEST_QUIET = 1.0
_EXPIRED = 410
#: The resource version of a watch that first reports all present objects.
_ANY_VERSION = "0"


def wait_for_change(
    cluster: Cluster,
    namespace: str,
    view: AppView | None,
    timeout: float | None,
    closing: Closing,
) -> Mapping[str, Any] | None:
    """Block until an app's objects have changed since they were read, or until the closing.

    Return the object that has changed, in its last state if it was deleted; None if unknown.

    Also return after an error, following a pause, so that the caller polls the app. Do the same for
    a missing app, which is not watched.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app's objects as they were read; None if there were none.
        timeout: The longest time to block, in seconds; None or more than 30 means 30.
        closing: Ends the wait when the scheduler is closed.
    """
    longest = _LONGEST_WATCH if timeout is None else min(_LONGEST_WATCH, timeout)
    deadline = cluster.clock() + longest
    pause = _PAUSE
    changed: Mapping[str, Any] | None = None
    if view is not None:
        try:
            newest = max(map(_version, view.objects), key=_order)
            changed = _change(cluster, namespace, view, deadline, newest, closing)
            if changed is not None:
                pause = _CHANGED_PAUSE
                replicas = sum(role.replicas for role in view.roles)
                quiet = min(_LONGEST_QUIET, replicas * _QUIET_PER_REPLICA)
                until = min(deadline, cluster.clock() + quiet)
                if until - cluster.clock() >= _SHORTEST_QUIET and not _is_news(view, changed):
                    version = _version(changed)
                    later = _change(
                        cluster, namespace, view, until, version, closing, only_news=True
                    )
                    changed = later or changed
        except ApiError:
            pause = _REFUSED_PAUSE
        except BackendError:
            pass
    if not closing.is_set():
        cluster.sleep(min(pause, max(deadline - cluster.clock(), 0)))
    return changed


def changed_view(view: AppView, changed: Mapping[str, Any]) -> AppView | None:
    """Return the data of an app after a change; None if the watch has reported an error.

    Args:
        view: The app's objects as they were read.
        changed: What the watch has reported: usually an object of the app.
    """
    if "spec" not in changed:
        return None
    name = changed["metadata"].get("name")
    others = [one for one in view.objects if one["metadata"].get("name") != name]
    return view.backend.view(view.app_id, [changed, *others])


def _is_news(view: AppView, changed: Mapping[str, Any]) -> bool:
    """Return whether a change may have changed the state of an app."""
    latest = changed_view(view, changed)
    return latest is None or latest.state != view.state


def _change(
    cluster: Cluster,
    namespace: str,
    view: AppView,
    deadline: float,
    version: str,
    closing: Closing,
    *,
    only_news: bool = False,
) -> Mapping[str, Any] | None:
    """Watch an app's objects until one of them has changed, and return this object.

    Args:
        cluster: The cluster.
        namespace: Namespace of the app.
        view: The app's objects as they were read.
        deadline: Time to stop watching (``cluster.clock``).
        version: The resource version after which to report changes. If it is too old for the
            cluster, which keeps changes only for minutes, watch from any version.
        closing: Ends the watch when the scheduler is closed.
        only_news: Whether to skip changes that do not change the app's state.

    Returns:
        The object in its last state; None if the cluster has ended the watch without a change.

    Raises:
        BackendError: The cluster refuses the request, or does not answer.
    """
    query: dict[str, object] = {
        "watch": "true",
        "resourceVersion": version,
        "timeoutSeconds": max(1, int(deadline - cluster.clock())),
        **view.backend.watch_query(view.app_id),
    }
    versions = {one["metadata"]["name"]: _order(_version(one)) for one in view.objects}
    path, action = view.backend.path(namespace), f"watch the app {view.app_id}"
    wait = max(deadline - cluster.clock(), 0.1)
    try:
        with (
            cluster.open("GET", path, action, query, timeout=wait) as response,
            closing.calling(partial(shut_down, response)),
        ):
            for event in _events(chunks(response)):
                resource: Mapping[str, Any] = event.get("object") or {}
                if event.get("type") == "ERROR" and resource.get("code") == _EXPIRED:
                    raise ApiError(f"cannot {action}: the version is too old", _EXPIRED)
                # with the version "0" a watch first reports all present objects
                is_present = version == _ANY_VERSION and event.get("type") != "DELETED"
                name = (resource.get("metadata") or {}).get("name")
                if is_present and _order(_version(resource)) <= versions.get(name, (0, "")):
                    continue
                if not only_news or event.get("type") == "DELETED" or _is_news(view, resource):
                    return resource
    except ApiError as e:
        if e.status != _EXPIRED or version == _ANY_VERSION:
            raise
        return _change(
            cluster, namespace, view, deadline, _ANY_VERSION, closing, only_news=only_news
        )
    return None


def _events(chunks: Iterator[bytes]) -> Iterator[dict[str, Any]]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                try:
                    yield json.loads(line)
                except ValueError as e:
                    raise BackendError(f"the response to a watch is not JSON: {e}") from e


def _version(resource: Mapping[str, Any]) -> str:
    return str((resource.get("metadata") or {}).get("resourceVersion") or "0")


def _order(version: str) -> tuple[int, str]:
    return len(version), version
