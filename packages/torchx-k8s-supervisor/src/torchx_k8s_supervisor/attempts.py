"""Attempts of an app with the option ``requeue``: variables of its pods, its resume folder."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torchx_kit.jobs.attempts import (
    ATTEMPT_VARIABLES,
    FAILURES,
    MOST_WITHOUT_PROGRESS,
    NO_PROGRESS,
    NODE_FAILURES,
    TOTAL_TIME,
    AttemptRules,
    attempt_rules,
)
from torchx_sched_k8s.cluster.labels import main_container
from torchx_sched_k8s.options import KubernetesOpts
from torchx_sched_k8s.request.pods import escape
from torchx_specs.errors import RequestError
from torchx_specs.model.templates import macros
from torchx_specs.settings import ENV_TORCHX_ATTEMPT, ENV_TORCHX_RESUME_DIR, ENV_TORCHX_STOP_GRACE

#: Kubernetes sends SIGKILL this number of seconds after SIGTERM by default.
_GRACE_SECONDS = 30
#: The sources of volumes that no other pod can write to.
_NOT_SHARED = frozenset(
    {"emptyDir", "ephemeral", "configMap", "secret", "downwardAPI", "projected", "image"}
)


class SharedVolume(NamedTuple):
    """A volume of a pod, and where its main container mounts it."""

    volume: dict[str, Any]
    mount: dict[str, Any]


def prepare_attempts(
    app_id: str, jobs: Sequence[dict[str, Any]], opts: KubernetesOpts
) -> tuple[dict[str, Any], SharedVolume | None]:
    """Set the variables and the time limit of the first attempt in an app's Jobs, in place.

    Args:
        app_id: Name of the app in the cluster.
        jobs: The app's Jobs.
        opts: The scheduler's options.

    Returns:
        The rules for the supervisor's program; empty for an app without attempts. Then the volume
        with the resume folder; None if the supervisor does not mount it.

    Raises:
        RequestError: The roles do not share the volume of the resume folder.
    """
    rules = attempt_rules(opts)
    if rules is None:
        return {}, None
    folder = (opts.resume_dir or "").replace(macros.app_id, app_id)
    templates = [job["spec"]["template"] for job in jobs]
    shared = _shared_volume(templates, folder) if folder else None
    pods = sum(int(job["spec"]["completions"]) for job in jobs)
    if shared and "persistentVolumeClaim" in shared.volume and pods == 1:
        shared = None  # only one pod, or the pods of one node, may be able to mount the claim
    total = rules.max_total_seconds
    for template in templates:
        spec, container = template["spec"], main_container(template)
        grace = spec.get("terminationGracePeriodSeconds", _GRACE_SECONDS)
        variables = {ENV_TORCHX_ATTEMPT: "0", ENV_TORCHX_STOP_GRACE: f"SIGTERM={grace}"}
        if folder:
            variables[ENV_TORCHX_RESUME_DIR] = escape(folder)
        others = [one for one in container.get("env") or () if one["name"] not in ATTEMPT_VARIABLES]
        own = [{"name": name, "value": value} for name, value in variables.items()]
        container["env"] = [*own, *others]
        if total is not None:
            limit = spec.get("activeDeadlineSeconds") or math.inf
            spec["activeDeadlineSeconds"] = min(limit, math.ceil(total))
    return program_rules(rules, folder if shared else ""), shared


def program_rules(rules: AttemptRules, folder: str) -> dict[str, Any]:
    """Return the rules in the form that the supervisor's program reads.

    Args:
        rules: The rules.
        folder: The resume folder; empty if the supervisor cannot read it.
    """
    total = rules.max_total_seconds
    return {
        "exit_codes": list(rules.exit_codes),
        "max_node_failures": rules.max_node_failures,
        "max_total_seconds": None if total is None else math.ceil(total),
        "folder": folder,
        "failures": FAILURES,
        "most_without_progress": MOST_WITHOUT_PROGRESS,
        "refusals": {
            "node_failures": NODE_FAILURES,
            "total_time": TOTAL_TIME,
            "no_progress": NO_PROGRESS,
        },
    }


def _shared_volume(templates: Sequence[Mapping[str, Any]], folder: str) -> SharedVolume:
    """Return the volume that contains a folder in the pods of all roles.

    Raises:
        RequestError: There is no such volume.
    """
    found = [_volume_of(template, folder) for template in templates]
    if found[0] is None or any(one != found[0] for one in found):
        raise RequestError(
            f"option resume_dir: '{folder}' is not in a volume that all replicas share and may"
            " write to; mount one, such as a persistent volume claim, at the same path in all roles"
        )
    return found[0]


def _volume_of(template: Mapping[str, Any], folder: str) -> SharedVolume | None:
    """Return the volume that contains a folder; None if other pods cannot write to it."""
    mounts = [
        mount
        for mount in main_container(template).get("volumeMounts") or ()
        if f"{posixpath.normpath(folder)}/".startswith(f"{mount['mountPath'].rstrip('/')}/")
    ]
    if not mounts:
        return None
    mount = max(mounts, key=lambda one: len(one["mountPath"]))
    volumes = template["spec"].get("volumes") or ()
    volume: dict[str, Any] = next((one for one in volumes if one["name"] == mount["name"]), {})
    if mount.get("readOnly") or "subPathExpr" in mount or _NOT_SHARED & volume.keys():
        return None
    name = {"name": "resume-dir"}
    return SharedVolume({**volume, **name}, {**mount, **name, "readOnly": True})
