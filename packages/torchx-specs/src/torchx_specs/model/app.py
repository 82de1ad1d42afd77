"""A job as data: an app of roles."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from torchx_specs.model.constants import MISSING
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import NULL_RESOURCE, Resource
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_specs.model.dryrun import AppDryRunInfo


class RetryPolicy(str, Enum):
    """What is started again when a replica of a role fails.

    A failure is a non-zero exit code, a crash of the host, a preemption or an eviction. Schedulers
    support APPLICATION; whether they support the others is said on their pages.

    1. REPLICA: replaces the failed replica; surviving replicas are untouched. With ``dist.ddp``,
       torchelastic coordinates restarts and membership changes; otherwise the application deals
       with departures and arrivals.
    2. APPLICATION: restarts the entire application.
    3. ROLE: restarts the role in which the error occurred, not the whole job.
    """

    REPLICA = "REPLICA"
    APPLICATION = "APPLICATION"
    ROLE = "ROLE"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


_instance_dict = object.__getattribute__


@dataclass
class Role:
    """A set of nodes that perform one duty within an :class:`AppDef`.

    - DDP app: one role (trainer)
    - parameter-server app: several roles (trainer, ps)

    >>> trainer = Role(
    ...     name="trainer",
    ...     image="pytorch/torch:latest",
    ...     entrypoint="train.py",
    ...     args=["--lr", "0.01"],
    ...     num_replicas=4,
    ...     resource=Resource(cpu=4, gpu=1, memMB=8192),
    ... )

    Args:
        name: name of the role
        image: software bundle installed on the container (docker image, folder, ...)
        min_replicas: minimum for elastic scaling; unset or unsupported by the scheduler, the job
            runs at ``num_replicas``
        entrypoint: command to invoke inside the container
        args: arguments to the entrypoint
        env: environment variables
        num_replicas: number of container replicas
        max_retries: how often to start again before giving up
        retry_policy: what is started again upon a failure
        resource: requirements per replica
        port_map: named ports (``{"tensorboard": 8081}``)
        metadata: scheduler-specific data under keys ``$scheduler.$key``
        mounts: bind, volume or device mounts
        workspace: local project directories to mirror on the remote job; the ``workspace`` argument
            of the Runner's methods overrides it on ``roles[0]``
        overrides: attribute name to a value or a callable, future or awaitable that gives it;
            resolved once, when the attribute is first read (older code; prefer setting the
            attribute)
    """

    name: str
    image: str
    min_replicas: int | None = None
    entrypoint: str = MISSING
    args: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    num_replicas: int = 1
    max_retries: int = 0
    retry_policy: RetryPolicy = RetryPolicy.APPLICATION
    resource: Resource = field(default_factory=lambda: NULL_RESOURCE)
    port_map: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    mounts: list[BindMount | VolumeMount | DeviceMount] = field(default_factory=list)
    workspace: Workspace | None = None
    overrides: dict[str, Any] = field(default_factory=dict)

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Any:
            overrides = _instance_dict(self, "__dict__").get("overrides")
            if overrides and name in overrides:
                from torchx_specs.model.role_overrides import resolve_override

                return resolve_override(overrides, name, lambda: _instance_dict(self, name))
            return _instance_dict(self, name)

    def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
        """Hook for role-specific modifications of the scheduler request.

        Called for each role, in the order of :attr:`AppDef.roles`, when a scheduler makes a dry
        run.
        """
        return dryrun_info

    def __deepcopy__(self, memo: dict[int, Any]) -> Role:
        # written out because copies of jobs with hundreds of roles are on the path of every dry
        # run; overrides are shared, so that what one copy resolved the others need not
        source = _instance_dict(self, "__dict__")
        new = object.__new__(type(self))
        target = _instance_dict(new, "__dict__")
        for key, value in source.items():
            if key == "overrides" or isinstance(value, (str, int, Enum, type(None))):
                target[key] = value
            elif (key == "args" and type(value) is list) or (
                key in ("env", "port_map") and type(value) is dict
            ):
                target[key] = value.copy()
            elif key == "resource" and type(value) is Resource and not value.capabilities:
                target[key] = Resource.copy(value)
            else:
                target[key] = copy.deepcopy(value, memo) if value else copy.copy(value)
        return new


@dataclass
class AppDef:
    """A distributed application composed of one or more :class:`Role` s.

    >>> app = AppDef(
    ...     name="my_train",
    ...     roles=[Role(name="trainer", image="my_image:latest")],
    ... )
    >>> app["trainer"].image
    'my_image:latest'
    >>> "ps" in app
    False

    Args:
        name: name of the application
        roles: its roles
        metadata: scheduler-specific metadata (treatment varies by scheduler)
    """

    name: str
    roles: list[Role] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)

    def get_role(self, name: str) -> Role:
        """Returns the role of that name.

        Raises:
            KeyError: the text lists the roles there are
        """
        for role in self.roles:
            if role.name == name:
                return role
        available = ", ".join(role.name for role in self.roles)
        raise KeyError(
            f"app `{self.name}` has no role named `{name}`; available roles: {available}"
        )

    def __getitem__(self, name: str) -> Role:
        return self.get_role(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(role.name == name for role in self.roles)

    # roles are looked up by name; without this, Python would try app[0], app[1] ... for a loop
    __iter__ = None
