"""Make the request for an app, a list of containers, without contacting the engine."""

from __future__ import annotations

import fnmatch
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torchx_kit.devices import get_device_mounts
from torchx_kit.errors import MountTypeError
from torchx_kit.jobs.attempts import attempt_problems, attempt_rules, resume_dir_problems
from torchx_kit.names.ids import make_unique
from torchx_kit.names.limits import CONTAINER, NameRule, fit_name, fit_names
from torchx_kit.role_templates import RoleTemplate
from torchx_kit.scripts.setup_script import setup_command
from torchx_kit.secrets import without_secrets
from torchx_kit.text.yaml_text import yaml_text
from torchx_kit.times import limit_option
from torchx_sched_docker.attempts import Attempts
from torchx_sched_docker.labels import (
    LABEL_APP_ID,
    LABEL_APP_NAME,
    LABEL_ENDS_APP,
    LABEL_PREFIX_ARGS,
    LABEL_REPLICA_ID,
    LABEL_REQUEUE,
    LABEL_ROLE_INDEX,
    LABEL_ROLE_NAME,
    LABEL_TIME_LIMIT,
    LABEL_VERSION,
)
from torchx_sched_docker.options import PUBLISH_POLICIES, PULL_POLICIES, DockerOpts
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import ENDS_APP_KEY, ENV_RANK0_HOST
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.templates import macros
from torchx_specs.redaction import masked
from torchx_specs.schedulers.request_checks import RequestRules, text_problem, variable_problems
from torchx_specs.version import __version__

#: The environment variable with the index of the replica in its role.
ENV_REPLICA_ID = "TORCHX_REPLICA_ID"
#: The environment variable with the name of the replica's image.
ENV_IMAGE = "TORCHX_IMAGE"
#: The name of the network that all containers of upstream's TorchX share. The names of our app
#: networks begin with this name.
NETWORK = "torchx"

#: How long a cancelled container, or one at its time limit, may take to end before it is killed, in
#: seconds.
GRACE = 10

#: Name of the engine's API, for messages.
NOT_UTF8 = "Docker's API is JSON"
RULES = RequestRules(needs_resource=False, needs_entrypoint=True, needs_image=True)
# A container's name is also its host name. So it has no dots, and at most 63 characters together
# with the name of the role and the index of the replica.
_HOST = NameRule(63, "A-Za-z0-9_-", first="A-Za-z0-9", last="A-Za-z0-9_")
_APP_ID = NameRule(128, CONTAINER.allowed, first="A-Za-z0-9_")
_LONGEST_PART = 30
_LONGEST_HOST = 63
#: The smallest memory limit that the engine accepts, in MB.
_LEAST_MEMORY = 6
_VALID_PERMISSIONS = frozenset("rwm")
_NOT_FOR_HOST_NAMES = re.compile(r"\A[^A-Za-z0-9]+")


@dataclass
class DockerContainer:
    """The parameters of one container, for the ``docker`` library.

    Args:
        image: The name or id of the image.
        command: The program and its arguments.
        kwargs: The other parameters of ``client.containers.run``, as plain data.
    """

    image: str
    command: list[str]
    kwargs: dict[str, Any]


@dataclass
class DockerJob:
    """The containers of an app.

    Args:
        app_id: The app's id.
        containers: The containers, ordered by role and replica.
        resume_dir: The folder to create for the option ``resume_dir``; empty if there is none.
    """

    app_id: str
    containers: list[DockerContainer]
    resume_dir: str = ""


def make_request(app: AppDef, opts: DockerOpts) -> DockerJob:
    """Return the request for an app.

    Raises:
        RequestError: A variable of the option ``copy_env`` cannot be sent to the engine, or a mount
            or another option is not valid.
    """
    app_id = make_unique(fit_name(app.name, _APP_ID.within(100)))
    hosts = _host_names(app, app_id)
    rank0 = hosts[app.roles[0].name][0] if hosts[app.roles[0].name] else ""
    base_env = _environment(opts)
    rules = attempt_rules(opts)
    attempts = Attempts(app, app_id, opts, rules, GRACE) if rules else None
    # The script of attempts has the time limit.
    limit = math.ceil(limit_option("time", opts.time)) if opts.time and not attempts else None
    prefix = _prefix(opts, limit)
    limits = {} if limit is None else {LABEL_TIME_LIMIT: str(limit)}
    if attempts:
        base_env.update(attempts.env)
    containers = []
    for role_index, role in enumerate(app.roles):
        labels = dict(limits)
        template = RoleTemplate(role)
        values = macros.Values("", app_id, "0", ENV_RANK0_HOST)
        shared: dict[str, Any] = _role_kwargs(role, app_id, opts)
        if attempts:
            shared.update(attempts.kwargs())
            shared["mounts"] += attempts.mounts()
            labels[LABEL_REQUEUE] = str(role.max_retries)
        elif role.metadata.get(ENDS_APP_KEY):
            labels[LABEL_ENDS_APP] = "1"
        for k in range(role.num_replicas):
            values.replica_id = str(k)
            name = hosts[role.name][k]
            words = [*(attempts.prefix(role, role_index, k) if attempts else ()), *prefix]
            env = {**base_env, **template.env(values)}
            env[ENV_RANK0_HOST] = rank0
            env[ENV_REPLICA_ID] = str(k)
            env[ENV_IMAGE] = role.image
            kwargs: dict[str, object] = {
                "name": name,
                "environment": env,
                "labels": {
                    LABEL_VERSION: __version__,
                    LABEL_APP_ID: app_id,
                    LABEL_APP_NAME: app.name,
                    LABEL_ROLE_NAME: role.name,
                    LABEL_ROLE_INDEX: str(role_index),
                    LABEL_REPLICA_ID: str(k),
                    **({LABEL_PREFIX_ARGS: str(len(words))} if words else {}),
                    **labels,
                },
                "hostname": name,
                **_copied(shared),
            }
            command = [role.entrypoint, *template.args(values)]
            containers.append(DockerContainer(role.image, [*words, *command], kwargs))
    return DockerJob(app_id, containers, attempts.resume_dir if attempts else "")


def _prefix(opts: DockerOpts, limit: int | None) -> list[str]:
    """Return the arguments before the command of a container, for the options setup and time."""
    setup = setup_command(opts.setup or (), [], "sh")
    # The engine has no time limit. Both coreutils and busybox have the command timeout.
    return setup if limit is None else ["timeout", "-k", str(GRACE), str(limit), *setup]


def network_name(app_id: str) -> str:
    """Return the name of an app's network."""
    return f"{NETWORK}-{fit_name(app_id, CONTAINER)}"


def format_request(job: DockerJob) -> str:
    """Return a request as YAML, with secrets masked."""
    return yaml_text([masked(vars(container)) for container in job.containers])


def request_problems(app: AppDef, opts: DockerOpts) -> Iterable[str]:
    """Yield the reasons why the engine cannot run an app."""
    for option, value, valid in (
        ("pull", opts.pull, PULL_POLICIES),
        ("publish", opts.publish, PUBLISH_POLICIES),
    ):
        if value not in valid:
            hint = nearest(str(value), valid)
            yield f"option {option}={value}:{hint} valid values: {', '.join(valid)}"
    yield from attempt_problems(opts)
    yield from resume_dir_problems(opts.resume_dir)
    for role in app.roles:
        for name, port in role.port_map.items():
            if not 0 < port < 65536:
                yield (
                    f"role '{role.name}': port_map['{name}'] is {port}; a port is between 1 and"
                    " 65535"
                )
    for key, value in (opts.env or {}).items():
        yield from (f"option env: {p}" for p in variable_problems(str(key), str(value), NOT_UTF8))


def _host_names(app: AppDef, app_id: str) -> dict[str, list[str]]:
    """Return the names of each role's containers; a container's name is also its host name."""
    most = max((role.num_replicas for role in app.roles), default=1)
    room = _LONGEST_HOST - _LONGEST_PART - len(f"--{max(most - 1, 0)}")
    roles = fit_names((r.name for r in app.roles), _HOST.within(min(_LONGEST_PART, room)))
    # Take the end of the id, which is the unique part.
    head = _NOT_FOR_HOST_NAMES.sub("", _HOST.clean(app_id[-_LONGEST_PART:])) or "x"
    return {
        role.name: [f"{head}-{roles[role.name]}-{k}" for k in range(role.num_replicas)]
        for role in app.roles
    }


def _environment(opts: DockerOpts) -> dict[str, str]:
    env: dict[str, str] = {}
    for pattern in opts.copy_env or ():
        for name in fnmatch.filter(without_secrets(os.environ), pattern):
            env[name] = os.environ[name]
    for name, value in env.items():
        problem = text_problem(name + value, NOT_UTF8)
        if problem:
            raise RequestError(f"option copy_env: the variable {name!r} {problem}")
    env.update(opts.env or {})
    return env


def _role_kwargs(role: Role, app_id: str, opts: DockerOpts) -> dict[str, object]:
    """Return the parameters that the containers of a role share."""
    mounts, devices = _mounts(role)
    resource = role.resource
    retry = {"Name": "on-failure", "MaximumRetryCount": role.max_retries}
    # For the engine, 0 means no limit. Shared memory counts towards the limit.
    memory = max(resource.memMB, _LEAST_MEMORY) if resource.memMB else 0
    # "gpu" makes the driver expose the devices; the other values select driver libraries.
    gpus = {
        "Driver": "",
        "Count": int(resource.gpu),
        "DeviceIDs": [],
        "Capabilities": [["gpu", "compute", "utility"]],
        "Options": {},
    }
    ports = {
        f"{port}/tcp": {
            "HostIp": "127.0.0.1",
            "HostPort": str(port) if opts.publish == "same" else "",
        }
        for port in role.port_map.values()
    }
    kwargs: dict[str, object] = {
        "privileged": opts.privileged,
        "init": opts.init,
        "network": network_name(app_id),
        "mounts": mounts,
        "devices": devices,
        "restart_policy": retry if role.max_retries > 0 else None,
        "mem_limit": f"{memory}m" if resource.memMB >= 0 else None,
        "shm_size": f"{resource.memMB}m" if resource.memMB >= 0 else None,
        "nano_cpus": int(resource.cpu * 1e9) if resource.cpu >= 0 else None,
        "device_requests": [gpus] if resource.gpu > 0 else None,
        "ports": ports if ports and opts.publish != "none" else None,
    }
    return {name: value for name, value in kwargs.items() if value is not None}


def _mounts(role: Role) -> tuple[list[dict[str, object]], list[str]]:
    mounts: list[dict[str, object]] = []
    devices: list[str] = []
    for mount in [*role.mounts, *get_device_mounts(role.resource.devices)]:
        if isinstance(mount, BindMount):
            source = os.path.abspath(os.path.expanduser(mount.src_path))
            mounts.append(_mount("bind", source, mount.dst_path, mount.read_only))
        elif isinstance(mount, VolumeMount):
            mounts.append(_mount("volume", mount.src, mount.dst_path, mount.read_only))
        elif isinstance(mount, DeviceMount):
            if not mount.permissions or not _VALID_PERMISSIONS.issuperset(mount.permissions):
                raise RequestError(
                    f"role '{role.name}': device {mount.src_path} has the permissions"
                    f" '{mount.permissions}'; valid are combinations of r, w and m"
                )
            devices.append(f"{mount.src_path}:{mount.dst_path}:{mount.permissions}")
        else:
            raise MountTypeError(
                f"role '{role.name}': {mount!r:.99} is not a mount;"
                " use a BindMount, VolumeMount or DeviceMount"
            )
    return mounts, devices


def _mount(kind: str, source: str, target: str, read_only: bool) -> dict[str, object]:
    return {"Target": target, "Source": source, "Type": kind, "ReadOnly": read_only}


def _copied(kwargs: Mapping[str, Any]) -> dict[str, object]:
    """Return a copy with new lists and dictionaries, so that containers do not share them."""
    return {
        key: value.copy() if isinstance(value, (dict, list)) else value
        for key, value in kwargs.items()
    }
