"""The interface of schedulers, through which the runner submits and watches apps."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, get_args, get_origin

from torchx_specs.model.app import AppDef, AppDryRunInfo, Role, check_depth
from torchx_specs.model.constants import NONE
from torchx_specs.model.resources import NULL_RESOURCE
from torchx_specs.model.status import AppState, AttemptStatus, RoleStatus, is_terminal
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.options.structured import StructuredOpts as StructuredOpts
from torchx_specs.options.structured import is_structured_opts
from torchx_specs.schedulers import older
from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.features import SchedulerFeatures
from torchx_specs.schedulers.log_items import Stream as Stream
from torchx_specs.schedulers.logs import LogQuery, Logs
from torchx_specs.schedulers.request_checks import RequestRules, check_request
from torchx_specs.schedulers.sessions import Sessions
from torchx_specs.workspace.api import WorkspaceMixin
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from datetime import datetime

DAYS_IN_2_WEEKS = 14

_UNSET_APP_ID = "<NOT_SET>"


@dataclass
class DescribeAppResponse:
    """A scheduler's description of one app.

    Args:
        app_id: The app's id.
        state: The app's state.
        num_restarts: How many times the app was restarted; -1 if unknown.
        msg: The scheduler's message, or ``<NONE>``.
        structured_error_msg: JSON of the first error, or ``<NONE>``.
        ui_url: Address of a page that shows the app.
        metadata: The app's metadata.
        roles_statuses: The status of each replica, by role.
        roles: The app's roles, with as much detail as the scheduler keeps.
        submitted: When the app was submitted, with a time zone; None if unknown.
        started: When the first replica of the most recent attempt started; None if unknown.
        ended: When the app ended; None if unknown.
        attempts: The attempts of an app with the option ``requeue``.
    """

    app_id: str = _UNSET_APP_ID
    state: AppState = AppState.UNSUBMITTED
    num_restarts: int = -1
    msg: str = NONE
    structured_error_msg: str = NONE
    ui_url: str | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    roles_statuses: list[RoleStatus] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    attempts: list[AttemptStatus] = field(default_factory=list)


@dataclass
class ListAppResponse:
    """One app in a scheduler's list; the times are those of :class:`DescribeAppResponse`."""

    app_id: str
    state: AppState
    app_handle: str = _UNSET_APP_ID
    name: str = ""
    submitted: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    exit_code: int | None = None

    def __hash__(self) -> int:
        return hash((self.app_id, self.app_handle, self.state))


class GpuCounts(NamedTuple):
    """How many GPUs of a cluster are in each state.

    Args:
        free: GPUs that no job has, on nodes that accept jobs.
        used: GPUs that jobs have.
        unavailable: GPUs that no job has, on nodes that accept no jobs.
    """

    free: int = 0
    used: int = 0
    unavailable: int = 0

    @classmethod
    def of_nodes(cls, nodes: Iterable[tuple[int, int, bool]]) -> GpuCounts:
        """Return the sum over nodes.

        >>> GpuCounts.of_nodes([(8, 3, True), (4, 1, False)])
        GpuCounts(free=5, used=4, unavailable=3)

        Args:
            nodes: For each node the number of its GPUs, the number of those that jobs have, and
                whether the node accepts jobs.
        """
        free = used = unavailable = 0
        for total, taken, is_open in nodes:
            used += taken
            rest = max(0, total - taken)
            free += rest if is_open else 0
            unavailable += 0 if is_open else rest
        return cls(free, used, unavailable)


T = TypeVar("T", bound=Mapping[str, Any])


class Scheduler(ABC, Generic[T]):
    """A system that runs apps.

    A scheduler implements :meth:`_submit_dryrun`, :meth:`schedule`, :meth:`describe`, :meth:`list`
    and :meth:`_cancel_existing`. ``Scheduler[MyOpts]``, with a
    :class:`~torchx_specs.StructuredOpts` class, declares the options; the methods then receive an
    instance of that class. With any other parameter, the scheduler implements :meth:`_run_opts`.

    Every other method has a default. A scheduler overrides the defaults that it can improve, and
    says so in its record :attr:`features`: callers read the record, and use nothing that it denies.
    Three groups of abilities are objects: :attr:`app_logs`, :attr:`app_sessions` and
    :attr:`app_arrays`. A class without a record has its base's.

    Args:
        backend: Name of the scheduler, such as ``kubernetes``; the first part of app handles.
        session_name: Name of the session; the second part of app handles.

    Attributes:
        request_rules: The rules for every request, as data.
        features: What the scheduler can do. An instance may have a record of its own.
    """

    features: SchedulerFeatures = SchedulerFeatures()
    request_rules: RequestRules = RequestRules()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "features" not in vars(cls):
            cls.features = older.inherited_features(cls)
        older.link_log_forms(cls)

    def __init__(self, backend: str, session_name: str) -> None:
        self.backend = backend
        self.session_name = session_name

    def close(self) -> None:
        """Free the resources of this object; may be called more than once.

        Submitted apps continue, except for apps that live in the client (:meth:`lives_in_client`).
        In other threads, followed logs end as at the end of the log, and :meth:`wait` returns. An
        override calls this method for that. The object may be used again: it then connects anew.
        """
        closing: Any = vars(self).pop("_closing", None)  # torchx_specs.schedulers.closing
        if closing is not None:
            closing.set()

    # The following methods submit apps.

    def submit(
        self, app: AppDef, cfg: T | Mapping[str, CfgVal], workspace: str | Workspace | None = None
    ) -> str:
        """Submit a copy of an app and return its id.

        Args:
            app: The app.
            cfg: Scheduler options; missing options get their defaults.
            workspace: Replaces the workspace of the first role.

        Raises:
            ValueError: A workspace is given, and this scheduler does not support workspaces.
            RequestError: As for :meth:`submit_dryrun`; nothing is built.
        """
        check_depth(app)
        app = copy.deepcopy(app)
        if workspace:
            if not isinstance(self, WorkspaceMixin):
                raise ValueError(f"scheduler {self.backend} takes no workspace, got: {workspace}")
            if isinstance(workspace, str):
                workspace = Workspace.from_str(workspace)
            app.roles[0].workspace = workspace
        resolved = check_request(self, self.features, app, cfg)
        if isinstance(self, WorkspaceMixin):
            self.build_workspaces(app.roles, resolved)
        return self.schedule(dryrun_of_checked(self, app, resolved))

    @abstractmethod
    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        """Submit the request of a dry run and return the app's id."""

    def submit_dryrun(self, app: AppDef, cfg: T | Mapping[str, CfgVal]) -> AppDryRunInfo[Any]:
        """Return the request for an app, without submitting it.

        A dry run contacts no server and leaves no file.

        Raises:
            InvalidRunConfigException: An option is unknown, missing or of the wrong type.
            RequestError: The app is invalid, has a reference to a secret that this scheduler does
                not resolve, or has other problems, which ``problems`` lists.
        """
        check_depth(app)
        return self._checked_dryrun(app, check_request(self, self.features, app, cfg))

    def _checked_dryrun(self, app: AppDef, resolved: T) -> AppDryRunInfo[Any]:
        info = self._submit_dryrun(app, resolved)
        for role in app.roles:
            info = role.pre_proc(self.backend, info)
        info.app = app
        info.cfg = resolved
        return info

    @abstractmethod
    def _submit_dryrun(self, app: AppDef, cfg: T) -> AppDryRunInfo[Any]:
        """Return the request for an app; ``app`` and ``cfg`` are complete and were checked."""

    def _request_problems(self, app: AppDef, cfg: T) -> Iterable[str]:
        """Return the problems of a request that only this scheduler knows; the default has none.

        :func:`~torchx_specs.schedulers.request_checks.check_request` calls this method, and makes
        the checks that :attr:`request_rules` describes. So an override repeats none of them.

        Args:
            app: The app. Its workspaces were not planned yet.
            cfg: The resolved options.
        """
        return ()

    @property
    def app_arrays(self) -> Arrays[Any]:
        """Submits, cancels and deletes many apps at once."""
        return Arrays(self)

    def with_dependency(
        self, cfg: Mapping[str, CfgVal], app_id: str, outcome: str
    ) -> Mapping[str, CfgVal] | None:
        """Return options that make the backend hold an app until another app has ended.

        The feature is ``dependencies``. None means that the backend cannot wait for this app.

        Args:
            cfg: The options without the dependency.
            app_id: The other app, which has not ended.
            outcome: The required outcome of the other app: ``ok``, ``failed`` or ``any``.
        """
        raise self.features.error("dependencies", self.backend)

    def lives_in_client(self, cfg: Mapping[str, CfgVal]) -> bool:
        """Return True if an app that is submitted with these options ends with this process.

        The feature is ``client_jobs``. ``torchx run`` waits for such an app, shows its logs, and
        cancels it when interrupted. The default is False: the app continues without the process
        that submitted it.

        Args:
            cfg: The resolved options.
        """
        return False

    def copies_workspaces(self) -> bool:
        """Return True if :meth:`schedule` itself copies the workspaces of roles for the job.

        The default is False: only a scheduler with a :class:`WorkspaceMixin` uses workspaces.
        """
        return False

    def has_only_local_files(self, info: AppDryRunInfo[Any]) -> bool:
        """Return True if an app sees only the workspace and the files of this machine.

        The default is False: the app may run in an image, or on a machine with other files.

        Args:
            info: The app's dry run.
        """
        return False

    # The following methods define and check options.

    def run_opts(self) -> runopts:
        """Return the options of this scheduler and of its workspace.

        If the scheduler and its workspace define the same option, the scheduler's definition wins.
        """
        opts = self._run_opts()
        return opts | self.workspace_opts() | opts if isinstance(self, WorkspaceMixin) else opts

    def _run_opts(self) -> runopts:
        opts_type = self._opts_type()
        return opts_type.as_runopts() if opts_type else runopts()

    @classmethod
    def _opts_type(cls) -> type[StructuredOpts] | None:
        """Return the StructuredOpts class that ``Scheduler`` is parametrised with, or None."""
        bases = [base for klass in cls.__mro__ for base in getattr(klass, "__orig_bases__", ())]
        for base in bases:
            origin = get_origin(base)
            if isinstance(origin, type) and issubclass(origin, Scheduler):
                for arg in filter(is_structured_opts, get_args(base)):
                    return arg  # type: ignore[no-any-return]
        return None

    def _resolve_cfg(self, cfg: T | Mapping[str, CfgVal]) -> T:
        """Check ``cfg``, add defaults, and convert it to the scheduler's StructuredOpts, if any."""
        opts_type = self._opts_type()
        if opts_type is not None and isinstance(cfg, opts_type):
            return cfg  # type: ignore[return-value]
        resolved: Any = self.run_opts().resolve(cfg)
        if opts_type is not None:
            resolved = opts_type.from_cfg(resolved)
        return resolved  # type: ignore[no-any-return]

    # The following methods query or end submitted apps.

    @abstractmethod
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if the app does not exist."""

    def describe_native(self, app_id: str) -> AppDryRunInfo[Any] | None:
        """Return the native request of a submitted app, or None if the scheduler keeps none."""
        return None

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Block until an app's state may have changed (feature ``watch``).

        ``Runner.wait`` calls this between two calls of :meth:`describe`.

        Args:
            app_id: The app.
            timeout: How long to block, in seconds; None means without a limit.

        Returns:
            True after watching the app: its state may have changed, or the timeout is over. False,
            without blocking, if this app cannot be watched at present; the caller then polls.
        """
        return False

    @abstractmethod
    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the apps that this scheduler knows.

        Args:
            cfg: Options that select where to look, such as a namespace.
        """

    def list_newest(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterator[ListAppResponse]:
        """Yield the apps that this scheduler knows, the newest first (feature ``newest_first``).

        The caller may take a few apps only. The default yields the apps of :meth:`list`.

        Args:
            cfg: Options that select where to look, such as a namespace.
        """
        yield from self.list(cfg)

    def gpus(self, cfg: Mapping[str, CfgVal] | None = None) -> GpuCounts:
        """Return how many GPUs of the cluster are free, in use and unavailable (feature ``gpus``).

        Args:
            cfg: Options that select the cluster, such as a context.
        """
        raise self.features.error("gpus", self.backend)

    def exists(self, app_id: str) -> bool:
        """Return True if the app exists, whether or not it has ended."""
        return self.describe(app_id) is not None

    def cancel(self, app_id: str) -> None:
        """End an app. An app that has ended or does not exist is not an error.

        A scheduler whose requests ignore such apps overrides this method, and makes no other
        request.
        """
        description = self.describe(app_id)
        if description is not None and not is_terminal(description.state):
            self._cancel_existing(app_id)

    @abstractmethod
    def _cancel_existing(self, app_id: str) -> None:
        """End an app that exists. It may have ended if the caller is :meth:`delete`."""

    def kill(self, app_id: str) -> None:
        """End an app at once: its processes get no time for a clean shutdown (feature ``kill``).

        The command calls this on a second Ctrl-C. The default is :meth:`cancel`.
        """
        self.cancel(app_id)

    def delete(self, app_id: str) -> None:
        """End an app and remove it from the scheduler. A missing app is not an error."""
        if self.exists(app_id):
            self._delete_existing(app_id)

    def _delete_existing(self, app_id: str) -> None:
        """End and remove an app that exists. The default only ends it."""
        self._cancel_existing(app_id)

    # The following methods read logs, and access running replicas.

    @property
    def app_logs(self) -> Logs[Any]:
        """Reads the logs of apps."""
        return Logs(self)

    @property
    def app_sessions(self) -> Sessions[Any]:
        """Runs commands in running replicas, and accesses their ports and files."""
        return Sessions(self)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Return the log lines of one replica; :class:`LogQuery` explains the arguments.

        Programs call this method. A scheduler implements :attr:`app_logs`, or overrides this
        method, as older schedulers do.
        """
        # A class with app_logs of its own also gets a log_iter (older.link_log_forms).
        query = LogQuery(regex, since, until, should_tail, streams)
        return Logs(self).read(app_id, role_name, k, query)

    # The following methods check an app before anything is built.

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: T) -> None:
        """Check an app before its workspace is built."""

    def _validate(self, app: AppDef, scheduler: str, cfg: T | None = None) -> None:
        """Check an app after its workspace is planned.

        The default requires a resource for each role if :attr:`request_rules` does.

        Raises:
            ValueError: A role has no resource.
        """
        for role in app.roles:
            if self.request_rules.needs_resource and role.resource == NULL_RESOURCE:
                raise ValueError(
                    f"No resource for role: {role.name}."
                    " Did you forget to attach resource to the role"
                )


def dryrun_of_checked(
    scheduler: Scheduler[Any], app: AppDef, resolved: Mapping[str, Any]
) -> AppDryRunInfo[Any]:
    """Return the dry run of a request that ``check_request`` has checked.

    A scheduler of a client may override ``submit_dryrun``, or replace it in an instance.
    """
    if getattr(scheduler.submit_dryrun, "__func__", None) is Scheduler.submit_dryrun:
        return scheduler._checked_dryrun(app, resolved)
    return scheduler.submit_dryrun(app, resolved)
