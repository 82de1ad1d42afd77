"""Many apps as one Indexed Job: the request, and the states and the end of single elements.

The apps differ only in arguments and environment variables. Each app is an element of the array,
and runs in the pod of one index. A ConfigMap has a key with the commands of each index; ``sh`` in a
pod runs the commands of the pod's index. An annotation of the Job contains the names of the apps.

Kubernetes cannot end a single index of a Job: it replaces a deleted pod. So the command of a
cancelled or deleted element is replaced in the ConfigMap by a command that ends at once, before
the pod is deleted. An annotation marks a Job whose ConfigMap has such commands.
"""

from __future__ import annotations

import copy
import json
import logging
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.arrays import (
    element_id,
    element_script,
    shared_variables,
    submit_one_by_one,
)
from torchx_kit.names.ids import common_start
from torchx_sched_k8s.backends.batch import BATCH, BatchBackend, is_abandoned
from torchx_sched_k8s.cluster.errors import ApiError
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_APP_NAME,
    ANNOTATION_NAMES,
    COMPLETION_INDEX,
    CORE,
    LABEL_APP_NAME,
    LABEL_KUBE_APP_NAME,
    LABEL_QUEUE,
    annotations_of,
    json_annotation,
    label_value,
    labels_of,
    object_path,
    selector,
)
from torchx_sched_k8s.cluster.names import app_names
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob, check_size
from torchx_sched_k8s.request.pods import ENV_REPLICA_ID, escape
from torchx_sched_k8s.scheduler import KubernetesScheduler, id_suffix
from torchx_sched_k8s.status.pod_states import Pod, latest, list_pods
from torchx_sched_k8s.status.views import AppView
from torchx_sched_k8s.submit import submit
from torchx_specs.errors import CapacityError
from torchx_specs.model.app import AppDryRunInfo, Role
from torchx_specs.model.constants import ENV_RANK0_HOST, MISSING
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.schedulers.arrays import Arrays

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

#: The largest number of elements of one Job. To cancel or delete one element, the cluster rewrites
#: the whole ConfigMap, which takes longer if it has more elements.
MOST_ELEMENTS = 1000

#: A ConfigMap has at most 1 MiB (https://kubernetes.io/docs/concepts/configuration/configmap/).
_LARGEST_DATA = 1_000_000
_VOLUME = "torchx-array"
_FOLDER = "/var/run/torchx-array"
_RUN = '. "$1/$JOB_COMPLETION_INDEX"'
_APP_ID = "\0app\0"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")
_NAMES = (LABEL_APP_NAME, LABEL_KUBE_APP_NAME, ANNOTATION_APP_NAME)
#: Commands of elements that were cancelled or deleted. 143 is the exit code after SIGTERM.
CANCELLED = "exit 143 # cancelled\n"
DELETED = "exit 143 # deleted\n"
#: Marks a Job with elements that were cancelled or deleted.
ANNOTATION_ENDED_ELEMENTS = "torchx.pytorch.org/array-ended"


class KubernetesArrays(Arrays[KubernetesScheduler]):
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
        if whole is not None:
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
    names = json_annotation(job, ANNOTATION_NAMES)
    if not names:
        return {}
    start, *rest = names
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


@dataclass
class Element:
    """An app that can be an element of an array.

    Attributes:
        name: Name of the app, as in the AppDef.
        app_id: Name in the cluster that the dry run chose for the app.
        command: The command; references to variables are replaced by the values.
        env: The variables with literal values; references to others are replaced by the values.
        role: The part of the Job's name that stands for the role.
        common: JSON of the Job without names, without the command, and without the variables in
            ``env``. Only elements with equal JSON can be in one array.
    """

    name: str
    app_id: str
    command: list[str]
    env: dict[str, str]
    role: str
    common: str


def element_of(request: KubernetesJob) -> Element | None:
    """Return the app of a request as an element of an array; None if it cannot be an element.

    An element has one plain Job with one pod of one container, whose command does not refer to
    values that are only known in the pod. The Job has no Kueue queue, no deadline, no success
    policy, and no rule that fails the whole Job.
    """
    jobs = [one for one in request.objects if one.get("kind") != "Service"]
    if len(jobs) != 1 or (jobs[0].get("apiVersion"), jobs[0].get("kind")) != ("batch/v1", "Job"):
        return None
    job = copy.deepcopy(jobs[0])
    spec, pod = job["spec"], job["spec"]["template"]
    containers = pod["spec"]["containers"]
    rules = (spec.get("podFailurePolicy") or {}).get("rules") or ()
    if (
        (spec.get("completions"), spec.get("parallelism")) != (1, 1)
        or len(containers) != 1
        or not containers[0].get("command")
        or containers[0].get("args")
        or {"activeDeadlineSeconds", "successPolicy", "suspend"} & spec.keys()
        or LABEL_QUEUE in labels_of(job)
        or any(rule.get("action") == "FailJob" for rule in rules)
    ):
        return None
    container = containers[0]
    try:
        env, references = _resolved(container.get("env") or ())
        command = [_expanded(word, env) for word in container["command"]]
    except KeyError:
        return None  # the value of a variable is only known in the pod
    if not all(map(_NAME.match, env)):
        return None  # sh cannot set a variable with this name
    name = annotations_of(job).get(ANNOTATION_APP_NAME) or request.name
    container["command"], container["env"] = [], references
    for resource in (job, pod):
        for field in ("labels", "annotations"):
            values = resource["metadata"].get(field) or {}
            resource["metadata"][field] = {k: v for k, v in values.items() if k not in _NAMES}
    spec.setdefault("backoffLimitPerIndex", spec.pop("backoffLimit", 0))
    spec.pop("maxFailedIndexes", None)
    role = str(job["metadata"]["name"]).removeprefix(f"{request.name}-")
    common = json.dumps(job, sort_keys=True).replace(request.name, json.dumps(_APP_ID)[1:-1])
    return Element(name, request.name, command, env, role, common)


def make_arrays(elements: Sequence[Element], namespace: str) -> Iterator[tuple[KubernetesJob, int]]:
    """Yield the objects of each array, and its number of elements.

    A new array begins after MOST_ELEMENTS elements, or when the ConfigMap would be too large. The
    field ``parallelism`` of each Job is the number of its elements.

    Args:
        elements: Elements with equal ``common``, in the order of their indexes.
        namespace: Namespace of the objects.
    """
    app_id = elements[0].app_id
    shared = shared_variables(
        [element.env for element in elements],
        varies=lambda key, value: key == ENV_RANK0_HOST or app_id in value,
    )
    first = 0
    while first < len(elements):
        part: list[Element] = []
        size = 0
        for element in elements[first : first + MOST_ELEMENTS]:
            # The final name in the cluster may be a few characters longer, so reserve some room.
            size += 2 * len(_script(element, element.app_id, "", shared).encode()) + 64
            if part and size > _LARGEST_DATA:
                break
            part.append(element)
        yield _make_array(part, namespace, shared), len(part)
        first += len(part)


def _make_array(
    elements: Sequence[Element], namespace: str, shared: Mapping[str, str]
) -> KubernetesJob:
    first = elements[0]
    names = [element.name for element in elements]
    start = common_start(names) or names[0]
    array, names_of_roles = app_names(start, [first.role], len(f"-{MOST_ELEMENTS - 1}"))
    old_job = json.dumps(f"{_APP_ID}-{first.role}")[1:-1]
    job_name = f"{array}-{names_of_roles[first.role]}"
    text = first.common.replace(f'"name": "{old_job}"', f'"name": "{job_name}"')
    job = json.loads(text.replace(json.dumps(_APP_ID)[1:-1], array))
    pod = job["spec"]["template"]
    for resource in (job, pod):
        label = label_value(start)
        resource["metadata"]["labels"].update({LABEL_APP_NAME: label, LABEL_KUBE_APP_NAME: label})
        resource["metadata"]["annotations"][ANNOTATION_APP_NAME] = start
    job["metadata"]["annotations"][ANNOTATION_NAMES] = json.dumps(
        [start, *(name.removeprefix(start) for name in names)], separators=(",", ":")
    )
    job["spec"].update(completions=len(elements), parallelism=len(elements))
    container = pod["spec"]["containers"][0]
    container["command"] = ["sh", "-c", escape(_RUN), "torchx", _FOLDER]
    container["env"] += [{"name": key, "value": escape(value)} for key, value in shared.items()]
    volume = {"name": _VOLUME, "configMap": {"name": array}}
    pod["spec"].setdefault("volumes", []).append(volume)
    mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
    container.setdefault("volumeMounts", []).append(mount)
    metadata = {"name": array, "labels": dict(job["metadata"]["labels"])}
    commands = {
        str(i): _script(element, element_id(array, i), f"{job_name}-{i}.{array}", shared)
        for i, element in enumerate(elements)
    }
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": commands}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": array, "labels": dict(job["metadata"]["labels"])},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {
                key: value
                for key, value in pod["metadata"]["labels"].items()
                if value == array or key == "app.kubernetes.io/managed-by"
            },
        },
    }
    items = [job, config_map, service]
    return KubernetesJob({}, {"apiVersion": "v1", "kind": "List", "items": items}, namespace)


def _script(element: Element, name: str, host: str, shared: Mapping[str, str]) -> str:
    """Return the shell commands of an element.

    Args:
        element: The element.
        name: Name of the element in the cluster.
        host: Host name of the element's pod.
        shared: Variables that all elements have in common.
    """
    env = {key: value for key, value in element.env.items() if key not in shared}
    if ENV_RANK0_HOST in env:
        env[ENV_RANK0_HOST] = host
    return element_script(element.command, env, {}).replace(element.app_id, name) + "\n"


def parse_script(script: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the variables in the shell commands of an element.

    The command is empty if the element was cancelled, or if the text has another form.
    """
    try:
        words = shlex.split(script)
    except ValueError:
        return [], {}
    env: dict[str, str] = {}
    while len(words) > 1 and words[0] == "export":
        name, _, value = words[1].partition("=")
        env[name] = value
        words = words[2:]
    return (words[1:] if words[:1] == ["exec"] else []), env


def _resolved(
    variables: Sequence[Mapping[str, Any]],
) -> tuple[dict[str, str], list[Mapping[str, Any]]]:
    """Return the values of plain variables by name, and the variables with ``valueFrom``."""
    # An element has one replica, whose index is 0, although the pod's index is the element's index.
    env = {ENV_REPLICA_ID: "0"}
    references: list[Mapping[str, Any]] = []
    for one in variables:
        if one["name"] == ENV_REPLICA_ID:
            continue
        if one.get("valueFrom"):
            references.append(one)
        else:
            env[str(one["name"])] = _expanded(str(one.get("value") or ""), env)
    return env, references


def _expanded(text: str, env: Mapping[str, str]) -> str:
    """Replace ``$$`` and the references ``$(NAME)`` in a text as a node does.

    Raises:
        KeyError: A reference names a variable that ``env`` does not have.
    """

    def one(found: re.Match[str]) -> str:
        return "$" if found[1] is None else env[found[1]]

    return _REFERENCE.sub(one, text)
