"""Make one Indexed Job of many apps that differ only in arguments and environment variables.

Each app is an element of the array, and runs in the pod of one index. A ConfigMap has a key with
the commands of each index; ``sh`` in a pod runs the commands of the pod's index. An annotation of
the Job contains the names of the apps.
"""

from __future__ import annotations

import copy
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_kit.jobs.arrays import element_id, element_script, shared_variables
from torchx_kit.names.ids import common_start
from torchx_sched_k8s.cluster.labels import (
    ANNOTATION_APP_NAME,
    LABEL_APP_NAME,
    LABEL_KUBE_APP_NAME,
    LABEL_QUEUE,
    annotations_of,
    label_value,
    labels_of,
)
from torchx_sched_k8s.cluster.names import app_names
from torchx_sched_k8s.request.kubernetes_job import KubernetesJob
from torchx_sched_k8s.request.pods import ENV_REPLICA_ID, escape
from torchx_specs.model.constants import ENV_RANK0_HOST

#: JSON list with the names of an array's apps. The first item is the common start of all names; the
#: other items are the rests of the names, in the order of the indexes.
ANNOTATION_NAMES = "torchx.pytorch.org/array-names"
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


class _UnknownVariableError(Exception):
    """A text refers to a variable whose value is only known in the pod."""


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
    except _UnknownVariableError:
        return None
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
    chosen = app_names(start, [first.role], len(f"-{MOST_ELEMENTS - 1}"))
    array, old_job = chosen.app_id, json.dumps(f"{_APP_ID}-{first.role}")[1:-1]
    job_name = f"{array}-{chosen.roles[first.role]}"
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
        _UnknownVariableError: A reference names a variable that ``env`` does not have.
    """

    def one(found: re.Match[str]) -> str:
        if found[1] is None:
            return "$"
        if found[1] not in env:
            raise _UnknownVariableError
        return env[found[1]]

    return _REFERENCE.sub(one, text)
