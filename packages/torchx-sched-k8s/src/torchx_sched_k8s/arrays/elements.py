"""Many apps as one Job: the submission of arrays, and the states and the end of their elements.

Kubernetes cannot end a single index of a Job: it replaces a deleted pod. So the command of a
cancelled or deleted element is replaced in the ConfigMap by a command that ends at once, before
the pod is deleted. An annotation marks a Job whose ConfigMap has such commands.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchx_kit.jobs.arrays import element_id, submit_one_by_one
from torchx_sched_k8s.arrays.request import (
    ANNOTATION_NAMES,
    Element,
    element_of,
    make_arrays,
    parse_script,
)
from torchx_sched_k8s.backends.batch import BATCH, BatchBackend
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    COMPLETION_INDEX,
    CORE,
    annotations_of,
    object_path,
    selector,
)
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob, check_size
from torchx_sched_k8s.request.pods import ENV_REPLICA_ID
from torchx_sched_k8s.scheduler import id_suffix
from torchx_sched_k8s.status.pod_states import Pod, latest, list_pods
from torchx_sched_k8s.status.views import AppView
from torchx_sched_k8s.submission.submit import submit
from torchx_sched_k8s.submission.unfinished import is_abandoned
from torchx_specs.errors import CapacityError
from torchx_specs.model.app import AppDryRunInfo, Role
from torchx_specs.model.constants import MISSING
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.schedulers.arrays import Arrays

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster
    from torchx_sched_k8s.scheduler import KubernetesScheduler

#: Commands of elements that were cancelled or deleted. 143 is the exit code after SIGTERM.
CANCELLED = "exit 143 # cancelled\n"
DELETED = "exit 143 # deleted\n"
#: Marks a Job with elements that were cancelled or deleted.
ANNOTATION_ENDED_ELEMENTS = "torchx.pytorch.org/array-ended"


class KubernetesArrays(Arrays["KubernetesScheduler"]):
    """Submits many apps as indexes of Jobs."""

    def submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[KubernetesJob]], max_parallel: int | None = None
    ) -> Iterator[str]:
        """Submit several requests, and yield the id of each app once it is submitted.

        If each app has one replica, and only arguments and environment variables differ, the apps
        become indexes of one Indexed Job, or of several Jobs if there are many apps. Their image
        must contain ``sh``. Other requests, and requests with the option ``array=False``, are
        submitted one after another. So are all requests if the user may not create ConfigMaps.

        Args:
            dryrun_infos: The requests.
            max_parallel: How many apps may run at the same time (``parallelism`` of the Jobs).

        Raises:
            BackendError: The cluster does not answer, or refuses a request.
            CapacityError: The apps need more Jobs than ``max_parallel``. The apps whose ids were
                not yielded were not submitted.
            RequestError: An object is too large, or the cluster rejects a request as invalid.
            WorkspaceError: A workspace cannot be built.
        """
        infos = list(dryrun_infos)
        found = self._elements(infos)
        if not found:
            yield from submit_one_by_one(super().submit, infos, max_parallel)
            return
        for info in infos:
            self.scheduler.build_pending(info)
        cfg = infos[0].cfg or {}
        cluster = self.scheduler._cluster_for(cfg)
        arrays = list(make_arrays(found, infos[0].request.namespace))
        shares = len(arrays) if max_parallel is None else min(len(arrays), max_parallel)
        done = 0
        for number, (job, count) in enumerate(arrays[:shares]):
            if max_parallel is not None:
                share = max_parallel // shares + (number < max_parallel % shares)
                job.objects[0]["spec"]["parallelism"] = min(count, share)
            check_size(job)
            try:
                submit(cluster, job, [BATCH], check_first=cfg.get("validate_spec") is not False)
            except ApiError as e:
                if e.status != 403 or "ConfigMap" not in str(e):
                    raise
                logging.getLogger(__name__).warning(
                    "%s; without this right, each app is a Job of its own", e
                )
                yield from submit_one_by_one(super().submit, infos[done:], max_parallel)
                return
            for index in range(count):
                yield f"{job.namespace}:{element_id(job.name, index)}{id_suffix(cfg)}"
            done += count
        if shares < len(arrays):
            raise CapacityError(
                f"{len(infos) - done} apps need more Jobs than max_parallel={max_parallel}; submit"
                " them when others have ended"
            )

    def _elements(self, infos: Sequence[AppDryRunInfo[KubernetesJob]]) -> list[Element]:
        """Return requests as elements of arrays; an empty list if they cannot form an array."""
        cfgs = [info.cfg or {} for info in infos]
        if any(cfg != cfgs[0] or cfg.get("array") is False for cfg in cfgs):
            return []
        elements = map(element_of, (info.request for info in infos))
        found = [element for element in elements if element is not None]
        is_array = 1 < len(found) == len(infos) and len({one.common for one in found}) == 1
        return found if is_array else []


class ElementBackend(BatchBackend):
    """Reads and ends one element of an array.

    The ``app_id`` of an element's data is the name of the whole array.

    Args:
        index: Index of the element.
    """

    def __init__(self, index: int) -> None:
        self._index = index

    def name_of(self, view: AppView) -> str:
        return element_id(view.app_id, self._index)

    def find(self, cluster: Cluster, namespace: str, app_id: str) -> AppView | None:
        view = BATCH.find(cluster, namespace, app_id)
        return elements(cluster, namespace, view, ()).get(self._index) if view else None

    def pods(self, cluster: Cluster, namespace: str, view: AppView) -> Sequence[Pod]:
        chosen = f"{selector(instance=view.app_id)},{COMPLETION_INDEX}={self._index}"
        pods = list_pods(cluster, namespace, chosen, f"list the pods of {self.name_of(view)}")
        return [replace(pod, id=0) for pod in pods]  # an element has one replica

    def own_roles(
        self, cluster: Cluster, namespace: str, view: AppView, roles: Sequence[Role]
    ) -> Sequence[Role]:
        [role] = roles  # has the variables that all elements share
        script = _commands(cluster, namespace, view.app_id).get(str(self._index), "")
        command, env = parse_script(script)
        entrypoint, *args = command or [MISSING]
        shared = {key: value for key, value in role.env.items() if key != ENV_REPLICA_ID}
        return [replace(role, entrypoint=entrypoint, args=args, env={**shared, **env})]

    def cancel(self, cluster: Cluster, namespace: str, view: AppView) -> None:
        """End an element, and the array if all other elements have ended."""
        if is_terminal(view.state):
            return
        marks = self._replace_command(cluster, namespace, view, CANCELLED)
        whole = BATCH.find(cluster, namespace, view.app_id)
        if whole is None or is_terminal(whole.state):
            return
        role = whole.roles[0]
        ended = {int(i) for i, text in marks.items() if text in (CANCELLED, DELETED)}
        if len(ended | role.succeeded | role.failed) == role.replicas:
            # so that no cancelled index starts only to exit
            BATCH.cancel(cluster, namespace, whole)

    def delete(self, cluster: Cluster, namespace: str, view: AppView) -> None:
        """Delete an element with its log; with the last element, delete the array's objects."""
        marks = self._replace_command(cluster, namespace, view, DELETED)
        whole = BATCH.find(cluster, namespace, view.app_id)
        if whole is not None and all(text == DELETED for text in marks.values()):
            BATCH.delete(cluster, namespace, whole)

    def _replace_command(
        self, cluster: Cluster, namespace: str, view: AppView, command: str
    ) -> Mapping[str, str]:
        """Replace the element's command, delete its pods, and return the commands of all elements.

        Args:
            cluster: The cluster.
            namespace: Namespace of the array.
            view: The element.
            command: The new command.
        """
        action = f"end the element {self.name_of(view)}"
        job = view.objects[0]
        if ANNOTATION_ENDED_ELEMENTS not in annotations_of(job):
            path = BATCH.path(namespace, str(job["metadata"]["name"]))
            marked = {"metadata": {"annotations": {ANNOTATION_ENDED_ELEMENTS: "true"}}}
            cluster.patch(path, marked, action)
        path = object_path(CORE, namespace, "configmaps", view.app_id)
        changed = cluster.patch(path, {"data": {str(self._index): command}}, action)
        for pod in self.pods(cluster, namespace, view):
            cluster.delete(object_path(CORE, namespace, "pods", pod.name), action)
        data: dict[str, str] = changed.get("data") or {}
        return data


def list_elements(cluster: Cluster, namespace: str, view: AppView) -> Iterable[AppView]:
    """Return the data of an array's elements; deleted elements are left out.

    The result is empty for an array whose submission was interrupted, so that its elements are
    submitted again.

    Args:
        cluster: The cluster.
        namespace: Namespace of the array.
        view: The array.
    """
    if is_abandoned(view.objects[0]) and view.unfinished:
        return ()
    action = f"list the pods of {view.app_id}"
    pods = list_pods(cluster, namespace, selector(instance=view.app_id), action)
    return elements(cluster, namespace, view, pods).values()


def elements(
    cluster: Cluster, namespace: str, view: AppView, pods: list[Pod] | tuple[()]
) -> dict[int, AppView]:
    """Return the data of an array's elements, by index; deleted elements are left out.

    The result is empty if the app is not an array.

    Args:
        cluster: The cluster.
        namespace: Namespace of the array.
        view: The array.
        pods: The pods of the array. An element that has not ended is RUNNING if its latest pod
            runs, and PENDING otherwise.
    """
    job = view.objects[0]
    try:
        start, *rest = json.loads(annotations_of(job).get(ANNOTATION_NAMES) or "[]")
    except ValueError:
        return {}  # not an array, or somebody changed the annotation
    role = view.roles[0]
    marks: Mapping[str, str] = {}
    if ANNOTATION_ENDED_ELEMENTS in annotations_of(job):
        marks = _commands(cluster, namespace, view.app_id)
    last = {pod.id: pod for pod in latest(pods)}
    whole = view.state if is_terminal(view.state) else None
    found = {}
    for index, end in enumerate(rest):
        if marks.get(str(index)) == DELETED:
            continue
        message, pod = "", last.get(index)
        if index in role.succeeded:
            state = AppState.SUCCEEDED
        elif marks.get(str(index)) == CANCELLED:
            state = AppState.CANCELLED
        elif index in role.failed:
            state = AppState.FAILED
        elif whole is not None:
            state, message = whole, view.message
        else:
            runs = pod is not None and pod.state == AppState.RUNNING
            state = AppState.RUNNING if runs else AppState.PENDING
            message = view.message if job["spec"].get("suspend") else ""
        single = replace(
            role,
            replicas=1,
            state=state,
            succeeded=frozenset({0} if state == AppState.SUCCEEDED else ()),
            failed=frozenset({0} if state in (AppState.FAILED, AppState.CANCELLED) else ()),
            retries=int(job["spec"].get("backoffLimitPerIndex") or 0),
            # A missing pod is normal: an index gets its pod when `parallelism` permits another one.
            wants_pods=False,
            failures=0,
            # Its pod is no replacement of a lost one if it is created late, for the same reason.
            started="",
        )
        found[index] = replace(
            view,
            backend=ElementBackend(index),
            name=f"{start}{end}",
            state=state,
            message=message,
            roles=[single],
            started=pod.started if pod else None,
            ended=pod.ended if pod and is_terminal(state) else None,
        )
    return found


def _commands(cluster: Cluster, namespace: str, array: str) -> Mapping[str, str]:
    """Return the commands of an array's elements, by index; empty if the user may not read them."""
    path = object_path(CORE, namespace, "configmaps", array)
    try:
        found = cluster.get_or_none(path, f"read the elements of {array}") or {}
    except ApiError as e:
        if e.status != 403:
            raise
        return {}
    data: dict[str, str] = found.get("data") or {}
    return data
