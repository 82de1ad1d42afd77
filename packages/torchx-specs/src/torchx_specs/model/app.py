"""The description of a job (an app and its roles), and the result of its dry run."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from torchx_specs.errors import RequestError
from torchx_specs.model.constants import MISSING
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.nesting import TOO_DEEP, is_too_deep
from torchx_specs.model.resources import NULL_RESOURCE, Resource
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torchx_specs.options.run_options import CfgVal

T = TypeVar("T")


class RetryPolicy(str, Enum):
    """The part of an app that restarts when a replica fails.

    A failure is a non-zero exit code, a crash of the host, a preemption or an eviction. All
    schedulers support APPLICATION; the documentation of a scheduler lists its other policies.

    1. REPLICA: replaces the failed replica; the other replicas continue. With ``dist.ddp``,
       torchelastic coordinates restarts and membership changes. Otherwise the application has to
       handle replicas that leave and join.
    2. APPLICATION: restarts the entire application.
    3. ROLE: restarts the role of the failed replica, not the whole job.
    """

    REPLICA = "REPLICA"
    APPLICATION = "APPLICATION"
    ROLE = "ROLE"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


_instance_dict = object.__getattribute__


@dataclass
class Role:
    """A group of replicas that run the same command within an :class:`AppDef`.

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
        name: Name of the role.
        image: Software to run: a container image, or a directory, depending on the scheduler.
        min_replicas: Minimum number of replicas for elastic scaling. If the value is None, or the
            scheduler does not support elastic scaling, the role has ``num_replicas`` replicas.
        entrypoint: Command to run in the container.
        args: Arguments of the command.
        env: Environment variables.
        num_replicas: Number of replicas.
        max_retries: Number of restarts before the job fails.
        retry_policy: The part of the app that restarts upon a failure.
        resource: Resource requirements per replica.
        port_map: Ports by name (``{"tensorboard": 8081}``).
        metadata: Scheduler-specific data under keys ``$scheduler.$key``.
        mounts: Bind, volume or device mounts.
        workspace: Local project directories to upload into the job. For ``roles[0]``, the argument
            ``workspace`` of the Runner's methods replaces this value.
        overrides: Maps the name of an attribute to the value that replaces it, or to a callable,
            future or awaitable that returns this value. The value is computed once, when the
            attribute is first read. Kept for compatibility; new programs set the attribute.
        base_image: Deprecated; schedulers ignore it. Kept for programs for TorchX 0.7.
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
    base_image: str | None = field(default=None, repr=False, kw_only=True)

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Any:
            overrides = _instance_dict(self, "__dict__").get("overrides")
            if overrides and name in overrides:
                from torchx_specs.model.role_overrides import resolve_override

                return resolve_override(overrides, name, lambda: _instance_dict(self, name))
            return _instance_dict(self, name)

    def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
        """Return the dry run's result, with this role's changes to the request.

        A dry run calls this method for each role, in the order of :attr:`AppDef.roles`. The default
        changes nothing.
        """
        return dryrun_info

    def __deepcopy__(self, memo: dict[int, Any]) -> Role:
        # Every dry run copies the app; for hundreds of roles this is faster than the default copy.
        # Copies share the overrides, so that each override is computed once.
        source = _instance_dict(self, "__dict__")
        new = object.__new__(type(self))
        target = _instance_dict(new, "__dict__")
        for key, value in source.items():
            if key == "overrides" or isinstance(value, (str, int, Enum, type(None))):
                target[key] = value
            elif key in ("args", "env", "port_map") and type(value) in (list, dict):
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
        name: Name of the application.
        roles: Roles of the application.
        metadata: Scheduler-specific metadata.
    """

    name: str
    roles: list[Role] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)

    def get_role(self, name: str) -> Role:
        """Return the role named ``name``.

        Raises:
            KeyError: The app has no such role; the message lists the available roles.
        """
        for role in self.roles:
            if role.name == name:
                return role
        names = ", ".join(role.name for role in self.roles)
        raise KeyError(f"app `{self.name}` has no role named `{name}`; available roles: {names}")

    def __getitem__(self, name: str) -> Role:
        return self.get_role(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and any(role.name == name for role in self.roles)

    # Without this, `for role in app` would call app[0], app[1] and so on.
    __iter__ = None


def consists_of_roles(app: object) -> bool:
    """Return True if an object is an AppDef with a list of roles, as its types require."""
    return (
        isinstance(app, AppDef)
        and isinstance(app.roles, list)
        and all(isinstance(role, Role) for role in app.roles)
    )


def check_depth(app: object) -> None:
    """Raise an error for fields of an app that are nested too deeply to be copied and checked.

    Args:
        app: The app. Nothing is checked unless it is an AppDef with a list of roles.

    Raises:
        RequestError: The message lists the fields.
    """
    if not isinstance(app, AppDef) or not consists_of_roles(app):
        return
    roles = (
        (role.name, {**vars(role), "resource": getattr(role.resource, "capabilities", None)})
        for role in app.roles
    )
    owners = [(f"app '{app.name}'", vars(app))]
    owners += [(f"role '{role}'", fields) for role, fields in roles]
    problems = [
        f"{owner}: {name} is {TOO_DEEP}"
        for owner, fields in owners
        for name, value in fields.items()
        if is_too_deep(value)
    ]
    if problems:
        raise RequestError(problems)


@dataclass(frozen=True)
class RunInput:
    """The arguments of a dry run, with which the submission can be repeated.

    Args:
        app: The app as the caller defined it, without the variables that the runner adds.
        cfg: The given options of the scheduler.
        workspace: The workspace that was given for the first role.
        parent_run_id: The id of the parent run.
    """

    app: AppDef
    cfg: Mapping[str, CfgVal]
    workspace: Workspace | str | None = None
    parent_run_id: str | None = None

    @property
    def call(self) -> ComponentCall | None:
        """The call of the component that returned the app, or None."""
        call: ComponentCall | None = vars(self.app).get(_CALL)
        return call


class ComponentCall(NamedTuple):
    """A component and its arguments, as on a command line."""

    component: str
    arguments: tuple[str, ...]

    def record(self, app: AppDef) -> None:
        """Record the call with its app, for a later :class:`RunInput`; copies do not have it."""
        vars(app)[_CALL] = self


# Not a field of AppDef, because a job does not depend on the call.
_CALL = "_component_call"


class ProgramFile(NamedTuple):
    """The script or module that a role runs, so that the runner can check that it exists.

    Attributes:
        kind: ``script`` or ``module``.
        name: The path of the script, or the name of the module.
    """

    kind: str
    name: str

    def record(self, role: Role) -> None:
        """Record the file with its role; copies by :func:`dataclasses.replace` do not have it."""
        vars(role)[_PROGRAM] = self

    @staticmethod
    def of(role: Role) -> ProgramFile | None:
        """Return the file that a component has recorded with a role, or None."""
        program: ProgramFile | None = vars(role).get(_PROGRAM)
        return program


# Not a field of Role, because a job does not depend on the record.
_PROGRAM = "_program_file"


class AppDryRunInfo(Generic[T]):
    """The request that a scheduler would submit; ``print(info)`` shows it.

    :meth:`Scheduler.submit_dryrun <torchx_specs.schedulers.Scheduler.submit_dryrun>` returns an
    AppDryRunInfo. To submit a modified request, change ``request`` before the call of
    ``schedule(info)``.

    Attributes:
        request: The scheduler's native request.
        app: The app from which the request was made.
        cfg: The resolved scheduler options.
    """

    def __init__(self, request: T, fmt: Callable[[T], str]) -> None:
        self.request = request
        self._fmt = fmt
        self.app: AppDef | None = None
        self.cfg: Mapping[str, CfgVal] = {}
        # A runner sets these two: the scheduler's name, and the input, for its journal.
        self._scheduler: str | None = None
        self._run_input: RunInput | None = None

    def __class_getitem__(cls, params: Any) -> Any:
        # programs use both AppDryRunInfo[Request] and AppDryRunInfo[Request, Cfg]
        first = params[0] if isinstance(params, tuple) else params
        return super().__class_getitem__(first)  # type: ignore[misc]

    # The names of `app` and `cfg` in older releases.
    _app = property(lambda self: self.app, lambda self, app: setattr(self, "app", app))
    _cfg = property(lambda self: self.cfg, lambda self, cfg: setattr(self, "cfg", cfg))

    def __repr__(self) -> str:
        return self._fmt(self.request)
