"""The runner: submits components and apps to schedulers, and manages the submitted apps."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, ClassVar, Literal, overload

from torchx_runner.config import api as config
from torchx_runner.config.api import get_configured_trackers as get_configured_trackers
from torchx_runner.events import api as events
from torchx_runner.installed_schedulers import (
    InstalledSchedulers,
    SchedulerFactory,
    plugin_manager,
    unknown_scheduler,
)
from torchx_specs.errors import (
    ComponentError,
    RequestError,
    TorchXError,
    UnknownAppException,
    WorkspaceError,
)
from torchx_specs.model.app import (
    AppDef,
    AppDryRunInfo,
    ComponentCall,
    Role,
    RunInput,
    check_depth,
    consists_of_roles,
)
from torchx_specs.model.constants import MISSING
from torchx_specs.model.handles import AppHandle, make_app_handle, parse_app_handle
from torchx_specs.model.status import AppState, AppStatus, AttemptStatus, RoleStatus
from torchx_specs.redaction import masked
from torchx_specs.schedulers.logs import LogQuery, Logs, keep_last
from torchx_specs.schedulers.older import OlderLogs, call_with_accepted, features_of

if TYPE_CHECKING:
    from datetime import datetime
    from socket import socket
    from types import TracebackType

    from typing_extensions import Self

    from torchx_runner.submissions.journal import JournalEntry
    from torchx_specs.options.run_options import CfgVal, runopts
    from torchx_specs.schedulers import GpuCounts, ListAppResponse, Scheduler, Stream
    from torchx_specs.schedulers.features import SchedulerFeatures
    from torchx_specs.schedulers.log_items import Block, Replica
    from torchx_specs.schedulers.sessions import Session, TerminalSize
    from torchx_specs.workspace import Workspace

#: The default name of the session.
DEFAULT_SESSION = "torchx"


class Runner:
    """Submits components and apps, and manages submitted apps by their handles.

    >>> from torchx_specs import AppDef, Resource, Role
    >>> from torchx_runner import get_runner
    >>> app = AppDef(
    ...     name="hello",
    ...     roles=[
    ...         Role("main", image="", entrypoint="echo", args=["hi"], resource=Resource(1, 0, 64)),
    ...     ],
    ... )
    >>> with get_runner() as runner:  # doctest: +SKIP
    ...     handle = runner.run(app, scheduler="local_cwd")
    ...     print(runner.wait(handle))

    Several threads may use one runner. One error reports all problems of an app and its options,
    before anything is submitted.

    Args:
        name: The name of the session, which is part of every app handle.
        scheduler_factories: ``{scheduler: factory}``; None means the installed schedulers.
        component_defaults: ``{component: {parameter: text}}``: the values of arguments that a
            request leaves out.
        scheduler_params: Keyword arguments of the factories, which are called as
            ``factory(name, **scheduler_params)``.
    """

    # True in a subclass that overrides log_lines but not log_blocks: log_blocks then calls the
    # subclass's log_lines.
    _overrides_log_lines: ClassVar[bool] = False

    #: Whether submissions are recorded in the journal (:mod:`torchx_runner.submissions.journal`).
    #: :func:`get_runner` sets it.
    keeps_journal: bool = False

    #: The profile whose values in the configuration files are defaults of this runner's submissions
    #: (``get_runner(profile=…)``). None means that a submission has only the caller's options.
    profile: str | None = None

    #: Called with the name of the scheduler, for a job without configured trackers; returns further
    #: variables of the job. The command sets it (:mod:`torchx_runner.default_tracker`).
    untracked_variables: Callable[[str], Mapping[str, str]] | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        definitions = (vars(klass) for klass in cls.__mro__)
        nearest = next(d for d in definitions if "log_lines" in d or "log_blocks" in d)
        cls._overrides_log_lines = "log_blocks" not in nearest

    def __init__(
        self,
        name: str = "",
        scheduler_factories: Mapping[str, SchedulerFactory] | None = None,
        component_defaults: dict[str, dict[str, str]] | None = None,
        scheduler_params: dict[str, object] | None = None,
    ) -> None:
        if scheduler_factories is None:
            scheduler_factories = InstalledSchedulers()
        self._name = name
        self._scheduler_factories = scheduler_factories
        self._component_defaults: dict[str, dict[str, str]] = component_defaults or {}
        self._scheduler_params: dict[str, object] = dict(scheduler_params or {})
        self._scheduler_instances: dict[str, Scheduler[Any]] = {}
        self._apps: dict[AppHandle, AppDef] = {}
        self._lock = threading.RLock()  # reentrant: a factory may ask this runner for a scheduler

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        type: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the schedulers that were used; may be called more than once.

        In other threads, followed logs end, and :meth:`wait` raises an error.
        Submitted apps continue, except apps that belong to this process, such as attached local
        apps. If closing fails for some schedulers, the first error is raised after all were closed.
        """
        from torchx_specs.schedulers.api import Scheduler

        with ExitStack() as stack:
            # The stack calls all of these, the last one first, and raises the last error.
            for scheduler in list(self._scheduler_instances.values()):
                stack.callback(Scheduler.close, scheduler)  # an override need not call it
                stack.callback(scheduler.close)

    def name(self) -> str:
        """Return the name of the session."""
        return self._name

    def __repr__(self) -> str:
        return (
            f"Runner(name={self._name}, schedulers={self._scheduler_factories}, apps={self._apps})"
        )

    # -- submitting

    def run_component(
        self,
        component: str,
        component_args: list[str] | dict[str, Any],
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
    ) -> AppHandle:
        """Submit a component, and return the handle of its app.

        Args:
            component: A registered name, ``file.py:function`` or ``package.module:function``.
            component_args: Arguments as on a command line, or typed values by parameter.
            scheduler: Name of the scheduler.
            cfg: Options of the scheduler.
            workspace: Replaces the workspace of the first role; None keeps that workspace.
            parent_run_id: The id of the parent run, for the job's trackers; the default is
                ``$TORCHX_PARENT_RUN_ID``.

        Raises:
            ComponentNotFoundException: The component does not exist.
            ComponentValidationException: The component breaks the rules for components.
            ComponentArgumentError: An argument is unknown, missing or of the wrong type.
            ComponentError: The component cannot be loaded, or it ended the program.
            RequestError: See :meth:`dryrun`.
            BackendError: See :meth:`schedule`.
        """
        with events.log_event("run_component", workspace=workspace) as ctx:
            info = self.dryrun_component(
                component, component_args, scheduler, cfg, workspace, parent_run_id
            )
            handle = self.schedule(info)
            _add_app_to_event(ctx, scheduler, info.app, handle)
            return handle

    def dryrun_component(
        self,
        component: str,
        component_args: list[str] | dict[str, Any],
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
    ) -> AppDryRunInfo[Any]:
        """Return the dry run of a component; nothing is submitted.

        The parameters and the errors are those of :meth:`run_component`.
        """
        app = self.materialize(component, component_args)
        return self.dryrun(app, scheduler, cfg, workspace, parent_run_id)

    def materialize(self, component: str, component_args: list[str] | dict[str, Any]) -> AppDef:
        """Return the app of a component.

        Args:
            component: The component, as for :meth:`run_component`.
            component_args: Arguments as on a command line, or typed values by parameter.

        Raises:
            ComponentError: The component does not exist, or raises an error.
        """
        from torchx_runner.components import finder
        from torchx_specs.components.materialize import materialize_appdef

        plugin_manager()  # loads the named resources that a component may use
        found = finder.get_component(component)
        argv, values = (
            ([], component_args) if isinstance(component_args, dict) else (component_args, None)
        )
        defaults = self.component_defaults(component)
        try:
            app = materialize_appdef(found.fn, argv, defaults, values)
        except SystemExit as e:
            # sys.exit() also accepts a message.
            code = e.code if isinstance(e.code, str) else f"exit code {e.code or 0}"
            raise ComponentError(
                f"component {component} ended the program ({code});"
                " a component must raise an exception instead"
            ) from e
        if values is None and consists_of_roles(app):
            ComponentCall(component, tuple(argv)).record(app)
        return app

    def component_defaults(self, component: str) -> Mapping[str, str]:
        """Return the texts of arguments that a request for a component leaves out."""
        return self._component_defaults.get(component, {})

    @overload
    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
        *,
        dryrun: Literal[False] = False,
    ) -> AppHandle: ...

    @overload
    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
        *,
        dryrun: bool,
    ) -> AppHandle | AppDryRunInfo[Any]: ...

    def run(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
        *,
        dryrun: bool = False,
    ) -> AppHandle | AppDryRunInfo[Any]:
        """Submit an app, and return its handle; with ``dryrun=True``, only return the dry run.

        The other parameters are those of :meth:`dryrun`.
        """
        if dryrun:
            return self.dryrun(app, scheduler, cfg, workspace, parent_run_id)
        with events.log_event("run", scheduler, runcfg=cfg, workspace=workspace) as ctx:
            info = self.dryrun(app, scheduler, cfg, workspace, parent_run_id)
            handle = self.schedule(info)
            _add_app_to_event(ctx, scheduler, info.app, handle)
            return handle

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> AppHandle:
        """Submit a dry run, and return the handle of its app.

        The caller may change ``dryrun_info.request`` first.

        Raises:
            RequestError: The dry run was not made by a runner, or the job cannot find its script.
            BackendError: The scheduler's backend rejects the request.
        """
        from torchx_kit.jobs.submission import announce, submission
        from torchx_runner.scripts import check_scripts

        name = dryrun_info._scheduler
        if name is None:
            raise RequestError(
                "the dry run names no scheduler; make it with Runner.dryrun, not with"
                " Scheduler.submit_dryrun"
            )
        scheduler = self.scheduler(name)
        check_scripts(scheduler, [dryrun_info])
        app = dryrun_info.app
        entry = self._journal_entry(dryrun_info)

        def record(app_id: str) -> AppHandle:
            handle = make_app_handle(name, self._name, app_id) if app_id else ""
            if entry is not None:
                if handle:
                    entry.write(handle)
                else:
                    entry.remove()
            return handle

        with (
            submission() as current,
            events.log_event("schedule", name, runcfg=dryrun_info.cfg) as ctx,
        ):
            current.record = record
            announce(scheduler.schedule(dryrun_info))
            handle = current.handle
            if app is not None:
                self._apps[handle] = app
            _add_app_to_event(ctx, name, app, handle)
            return handle

    def schedule_many(
        self, dryrun_infos: Sequence[AppDryRunInfo[Any]], max_parallel: int | None = None
    ) -> Iterator[AppHandle]:
        """Submit dry runs for one scheduler, and yield the handle of each app once it is submitted.

        Args:
            dryrun_infos: The dry runs.
            max_parallel: The largest number of these apps that run at the same time; None means no
                limit. The scheduler needs the feature ``array_limit``.

        Raises:
            NotSupportedError: ``max_parallel`` is given, and the scheduler cannot enforce it.
            RequestError: The dry runs were not made by a runner, or are for several schedulers; or
                a job cannot find its script, and nothing is submitted.
            BackendError: The scheduler's backend rejects a request.
        """
        from torchx_runner.scripts import check_scripts

        if not dryrun_infos:
            return
        names = {info._scheduler for info in dryrun_infos}
        name = names.pop() if len(names) == 1 else None
        if name is None:
            raise RequestError("schedule_many needs dry runs of Runner.dryrun for one scheduler")
        scheduler = self.scheduler(name)
        check_scripts(scheduler, dryrun_infos)
        with events.log_event("schedule_many", name, runcfg=dryrun_infos[0].cfg):
            app_ids = scheduler.app_arrays.submit(dryrun_infos, max_parallel)
            for info, app_id in zip(dryrun_infos, app_ids, strict=True):
                handle = make_app_handle(name, self._name, app_id)
                if info.app is not None:
                    self._apps[handle] = info.app
                entry = self._journal_entry(info)
                if entry is not None:
                    entry.write(handle)
                yield handle

    def _journal_entry(self, info: AppDryRunInfo[Any]) -> JournalEntry | None:
        """Return the entry of a submission; None without a journal or a dry run of a runner."""
        if not self.keeps_journal or info._run_input is None:
            return None
        from torchx_runner.submissions.journal import JournalEntry

        return JournalEntry(info._run_input, info)

    def dryrun(
        self,
        app: AppDef,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        workspace: Workspace | str | None = None,
        parent_run_id: str | None = None,
    ) -> AppDryRunInfo[Any]:
        """Return a dry run, which contains the scheduler's request for an app; submit nothing.

        The parameter ``app`` is not changed. The attribute ``app`` of the dry run is the app as the
        scheduler received it.

        Args:
            app: The app.
            scheduler: Name of the scheduler.
            cfg: Options of the scheduler, and the host whose commands and files it uses.
            workspace: Replaces the workspace of the first role; None keeps that workspace.
            parent_run_id: The id of the parent run, for the job's trackers; the default is
                ``$TORCHX_PARENT_RUN_ID``.

        Raises:
            UnknownSchedulerException: The scheduler is not installed.
            InvalidRunConfigException: An option is unknown, missing or of the wrong type.
            RequestError: The app is invalid, or there are several problems; ``problems`` lists
                them.
            PluginError: The scheduler cannot be loaded.
            WorkspaceError: A workspace cannot be read.
        """
        from torchx_runner import job_env, workspaces
        from torchx_specs.schedulers.api import dryrun_of_checked
        from torchx_specs.schedulers.request_checks import check_request

        scheduler, cfg = config.take_host(scheduler, cfg or {})
        cfg = self._with_profile(scheduler, cfg)
        with events.log_event("dryrun", scheduler, runcfg=cfg, workspace=workspace) as ctx:
            check_depth(app)
            problems: list[Exception] = []
            backend: Any = None  # an unknown scheduler is a problem, which check_request raises
            try:
                backend = self.scheduler(scheduler)
            except TorchXError as e:
                problems.append(e)
            run_input = RunInput(app, cfg, workspace, parent_run_id)
            if consists_of_roles(app):
                app = _copy_without_overrides(app)
                _add_app_to_event(ctx, scheduler, app)
                try:
                    workspaces.set_workspace(app.roles, workspace)
                except (ValueError, WorkspaceError) as e:
                    problems.append(e)

            def complete(options: Any) -> None:
                job_env.split_variable_names(app)
                # A program may replace this function by one without parameters, as upstream's
                # TorchX has it. So `profile` is passed only if it is set.
                trackers = (
                    get_configured_trackers()
                    if self.profile is None
                    else get_configured_trackers(profile=self.profile)
                )
                job_env.set_job_variables(
                    app,
                    scheduler,
                    self._name,
                    parent_run_id,
                    trackers,
                    self.untracked_variables,
                )
                workspaces.plan_images(backend, app.roles, options, scheduler)

            options = check_request(
                backend,
                features_of(backend),
                app,
                cfg,
                name=scheduler,
                known=problems,
                build=complete,
            )
            info: AppDryRunInfo[Any] = dryrun_of_checked(backend, app, options)
            info._scheduler = scheduler
            info._run_input = run_input
            return info

    def _with_profile(
        self, scheduler: str, cfg: Mapping[str, CfgVal] | None
    ) -> Mapping[str, CfgVal]:
        """Return the options of a scheduler, completed from the files if a profile is set."""
        if self.profile is None:
            return {} if cfg is None else cfg
        completed = dict(cfg or {})
        config.apply(
            scheduler, completed, opts=self.scheduler_run_opts(scheduler), profile=self.profile
        )
        return completed

    def build_workspace(
        self,
        app_or_role: AppDef | Role,
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
    ) -> dict[tuple[str, Workspace], str] | str | None:
        """Build and push workspaces now, so that later submissions need no build.

        >>> from torchx_runner.workspaces import pin_workspace_images
        >>> images = runner.build_workspace(app, "kubernetes")  # doctest: +SKIP
        >>> runner.run(pin_workspace_images(app, images), "kubernetes")  # doctest: +SKIP

        Args:
            app_or_role: The app or role; it is not changed.
            scheduler: Name of the scheduler.
            cfg: Options of the scheduler.

        Returns:
            For a role, the built image, or None if nothing is built or the role is left out. For an
            app, ``{(image, workspace): built image}``. Nothing is built for a role without a
            workspace, and for a scheduler that does not support workspaces. A role is left out,
            with a warning, if its build changes more than its image.
        """
        from torchx_runner import workspaces

        cfg = self._with_profile(scheduler, cfg)
        with events.log_event("build_workspace", scheduler, runcfg=cfg):
            backend = self.scheduler(scheduler)
            roles = [app_or_role] if isinstance(app_or_role, Role) else app_or_role.roles
            images = workspaces.build_images(backend, roles, cfg)
            if isinstance(app_or_role, Role):
                return next(iter(images.values()), None)
            return images

    def sweep(
        self,
        component: str,
        component_args: list[str],
        scheduler: str,
        cfg: Mapping[str, CfgVal] | None = None,
        **options: Any,
    ) -> AppHandle:
        """Submit a component once for each set of parameters, and return the sweep's handle.

        The distribution ``torchx-sweep`` must be installed: ``torchx_sweep`` has the functions that
        accept the handle.

        >>> handle = runner.sweep(  # doctest: +SKIP
        ...     "train.py:train", [], "slurm", grid={"lr": [1e-3, 1e-4], "seed": range(8)}
        ... )

        Args:
            component: The component, as for :meth:`run_component`.
            component_args: Arguments that all elements share, as on a command line.
            scheduler: Name of the scheduler, which must be installed.
            cfg: Options of the scheduler.
            options: The parameters of the elements, and other options of ``torchx_sweep.plan``.

        Raises:
            RequestError: ``torchx-sweep`` is not installed, or elements are invalid; the message
                has the problems of all elements.
        """
        module = sweep_module()
        handle: AppHandle = module.sweep(self, component, component_args, scheduler, cfg, **options)
        return handle

    # -- schedulers

    def scheduler_backends(self) -> list[str]:
        """Return the names of the available schedulers."""
        return list(self._scheduler_factories)

    def scheduler_run_opts(self, scheduler: str) -> runopts:
        """Return the definitions of a scheduler's options."""
        return self.scheduler(scheduler).run_opts()

    def scheduler(self, name: str) -> Scheduler[Any]:
        """Return a scheduler, which is created on first use.

        Args:
            name: Name of the scheduler.

        Raises:
            UnknownSchedulerException: The scheduler is not installed.
            PluginError: The scheduler cannot be loaded.
        """
        with self._lock:
            found = self._scheduler_instances.get(name)
            if found is None:
                if name not in self._scheduler_factories:
                    raise unknown_scheduler(name, self._scheduler_factories)
                create = self._scheduler_factories[name]
                found = create(self._name, **self._scheduler_params)
                self._scheduler_instances[name] = found
            return found

    # The name of this method in other releases, which programs call.
    _scheduler = scheduler

    def features(self, scheduler: str) -> SchedulerFeatures:
        """Return what a scheduler can do."""
        return features_of(self.scheduler(scheduler))

    def lives_in_client(self, scheduler: str, cfg: Mapping[str, CfgVal] | None = None) -> bool:
        """Return True if apps that are submitted with these options end when this process ends.

        ``torchx run`` waits for such an app, and cancels the app when interrupted.

        Args:
            scheduler: Name of the scheduler.
            cfg: The scheduler's options.

        Raises:
            InvalidRunConfigException: An option is unknown, missing or of the wrong type.
        """
        backend = self.scheduler(scheduler)
        resolved: Any = backend._resolve_cfg(cfg or {})
        return bool(features_of(backend).client_jobs) and backend.lives_in_client(resolved)

    def cfg_from_str(self, scheduler: str, *cfg_literal: str) -> Mapping[str, CfgVal]:
        """Parse texts ``k1=v1,k2=v2`` into options of a scheduler; later texts win.

        Raises:
            InvalidRunConfigException: An option is malformed, unknown, or of the wrong type.
        """
        opts = self.scheduler_run_opts(scheduler)
        cfg: dict[str, CfgVal] = {}
        for literal in cfg_literal:
            cfg.update(opts.cfg_from_str(literal, ignore_unknown=False))
        return cfg

    def _scheduler_app_id(self, app_handle: AppHandle) -> tuple[Scheduler[Any], str, str]:
        """Return the scheduler that a handle names, the scheduler's name, and the app's id."""
        backend, _, app_id = parse_app_handle(app_handle)
        if backend == "sweep" and backend not in self._scheduler_factories:
            raise RequestError(
                f"{app_handle} is a sweep; use 'torchx sweep status', 'torchx sweep log' and the"
                " other commands of 'torchx sweep'"
            )
        return self.scheduler(backend), backend, app_id

    @contextmanager
    def _call(self, api: str, app_handle: AppHandle) -> Iterator[tuple[Scheduler[Any], str]]:
        """Record a call about an app as an event; the context has the app's scheduler and id."""
        scheduler, backend, app_id = self._scheduler_app_id(app_handle)
        with events.log_event(api, backend, app_id):
            yield scheduler, app_id

    # -- submitted apps

    def status(self, app_handle: AppHandle) -> AppStatus | None:
        """Return the status of an app, or None if the app does not exist.

        Raises:
            MalformedAppHandleException: The handle is malformed.
            UnknownSchedulerException: The scheduler of the app is not installed.
        """
        with self._call("status", app_handle) as (scheduler, app_id):
            desc = scheduler.describe(app_id)
            if desc is None:
                self._apps.pop(app_handle, None)
                return None
            return AppStatus(
                state=desc.state,
                num_restarts=desc.num_restarts,
                msg=desc.msg,
                structured_error_msg=desc.structured_error_msg,
                ui_url=desc.ui_url,
                roles=desc.roles_statuses,
                submitted=desc.submitted,
                started=desc.started,
                ended=desc.ended,
                attempts=_with_nodes(desc.attempts, desc.roles_statuses),
            )

    def exists(self, app_handle: AppHandle) -> bool:
        """Return True if an app exists, whether or not it has ended."""
        with self._call("exists", app_handle) as (scheduler, app_id):
            return scheduler.exists(app_id)

    def wait(
        self,
        app_handle: AppHandle,
        wait_interval: float = 10,
        *,
        timeout: float | None = None,
        until: AppState | None = None,
        observe: Callable[[AppStatus], object] | None = None,
    ) -> AppStatus | None:
        """Wait until an app has ended; return the status, or None if the app does not exist.

        Args:
            app_handle: The app.
            wait_interval: The longest time between two polls, in seconds. The first polls follow
                each other quickly. A scheduler that can watch apps is polled as soon as the app
                changes.
            timeout: How long to wait, in seconds; None means without a limit.
            until: A state at which to return early; None waits for the end. With RUNNING, the
                method returns once the app has started.
            observe: Called with the status after each poll.

        Raises:
            WaitTimeoutError: The timeout expired; ``status`` is the last known status.
            ClosedError: Another thread closed this runner or the scheduler.
        """
        from torchx_runner.wait_for_state import pause_between_polls, wait_for

        with self._call("wait", app_handle) as (scheduler, app_id):
            return wait_for(
                app_handle,
                poll=lambda: self.status(app_handle),
                pause=pause_between_polls(scheduler, app_id, wait_interval),
                timeout=timeout,
                until=until,
                observe=observe,
            )

    def cancel(self, app_handle: AppHandle) -> None:
        """Cancel an app; the method may return before the app has ended.

        An app that has ended or does not exist is not an error.
        """
        with self._call("cancel", app_handle) as (scheduler, app_id):
            scheduler.cancel(app_id)

    def cancel_many(self, app_handles: Iterable[AppHandle]) -> None:
        """Cancel several apps. An app that has ended or does not exist is not an error."""
        app_ids: dict[str, list[str]] = {}
        for handle in app_handles:
            backend, _, app_id = parse_app_handle(handle)
            app_ids.setdefault(backend, []).append(app_id)
        for backend, ids in app_ids.items():
            with events.log_event("cancel_many", backend):
                self.scheduler(backend).app_arrays.cancel(ids)

    def stop(self, app_handle: AppHandle) -> None:
        """Cancel an app (deprecated name of :meth:`cancel`)."""
        warnings.warn(
            "Runner.stop is deprecated, use Runner.cancel", PendingDeprecationWarning, stacklevel=2
        )
        self.cancel(app_handle)

    def kill(self, app_handle: AppHandle) -> None:
        """End an app at once: its processes get no time to shut down."""
        with self._call("kill", app_handle) as (scheduler, app_id):
            if features_of(scheduler).kill:
                scheduler.kill(app_id)
            else:
                scheduler.cancel(app_id)

    def delete(self, app_handle: AppHandle) -> None:
        """End an app, and delete it from its scheduler. A missing app is not an error."""
        with self._call("delete", app_handle) as (scheduler, app_id):
            scheduler.delete(app_id)
            self._apps.pop(app_handle, None)

    def describe(self, app_handle: AppHandle) -> AppDef | None:
        """Return the definition of an app, or None if the scheduler does not know the app.

        If this runner submitted the app, the definition is complete, and the scheduler is not
        queried. Otherwise the definition contains only the data that the scheduler stores, and
        ``name`` is the app's id. If the scheduler stores no programs, and this user submitted the
        app, the roles are those of the journal.
        """
        with self._call("describe", app_handle) as (scheduler, app_id):
            app = self._apps.get(app_handle)
            if app is not None:
                return app
            desc = scheduler.describe(app_id)
            if desc is None:
                return None
            roles = desc.roles
            if self.keeps_journal and any(role.entrypoint == MISSING for role in roles):
                from torchx_runner.submissions.journal import submitted_roles

                roles = submitted_roles(app_handle) or roles
            return AppDef(name=app_id, roles=roles, metadata=desc.metadata)

    def describe_native(self, app_handle: AppHandle) -> AppDryRunInfo[Any] | None:
        """Return the request of an app; None if the scheduler does not have the request or app."""
        with self._call("describe_native", app_handle) as (scheduler, app_id):
            return scheduler.describe_native(app_id) if features_of(scheduler).native else None

    def log_lines(
        self,
        app_handle: AppHandle,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Return the log lines of one replica; only the last line may lack its newline.

        Args:
            app_handle: The app.
            role_name: The role.
            k: Index of the replica within its role.
            regex: Only lines in which this regular expression is found.
            since: Only lines written at that time or later, if the scheduler records times.
            until: Only lines written before that time, if the scheduler records times.
            should_tail: Follow the log until the replica has ended.
            streams: Standard output, standard error or both; None means the scheduler's default.

        Raises:
            UnknownAppException: The app does not exist.
        """
        with self._call("log_lines", app_handle) as (scheduler, app_id):
            if not scheduler.exists(app_id):
                raise UnknownAppException(app_handle)
            # A generator around this iterator would double the time of reading a log.
            return scheduler.log_iter(
                app_id, role_name, k, regex, since, until, should_tail, streams=streams
            )

    def log_blocks(
        self,
        app_handle: AppHandle,
        replicas: Iterable[Replica],
        query: LogQuery | None = None,
        **selection: Any,
    ) -> Iterator[Block]:
        """Return an iterator over blocks of log lines of several replicas, as they arrive.

        If a subclass overrides :meth:`log_lines` but not this method, threads call the subclass's
        ``log_lines``. Closing the iterator ends the reading.

        This method does not check whether the app exists: call :meth:`status` first.

        The regular expression is matched in the thread that consumes the iterator. A match may take
        hours with some expressions, and Python can interrupt it only in the main thread.

        Args:
            app_handle: The app.
            replicas: Role and index of each replica.
            query: Which lines. Unlike a scheduler, this method counts ``last`` lines among those
                in which ``regex`` is found.
            selection: In place of a query, its fields by name, such as ``should_tail=True``.

        Returns:
            Pairs of a replica, and either lines of its log or the error that ended its log. The
            lines of one replica come in order; the lines of different replicas are interleaved.

        Raises:
            RequestError: The regular expression is invalid.
        """
        query = LogQuery(**selection) if query is None else query
        backend, _, app_id = parse_app_handle(app_handle)
        logs: Logs[Any]
        if self._overrides_log_lines:
            logs, app, can_last = OlderLogs(self, self._lines), app_handle, False
        else:
            scheduler = self._scheduler_app_id(app_handle)[0]
            logs, app, can_last = scheduler.app_logs, app_id, bool(features_of(scheduler).last)
        with events.log_event("log_blocks", backend, app_id):
            if query.regex is None and (query.last is None or can_last):
                return logs.read_many(app, replicas, query)
            from torchx_kit.logs.lines import compile_regex

            search = None if query.regex is None else compile_regex(query.regex).search
            every = query._replace(regex=None, last=None)
            if search is not None:
                every = every._replace(partial=False, attempts=False)

            def read(replicas: Iterable[Replica], should_tail: bool) -> Iterator[Block]:
                blocks = logs.read_many(app, replicas, every._replace(should_tail=should_tail))
                if search is None:
                    return blocks
                return (
                    (replica, block if isinstance(block, Exception) else filter(search, block))
                    for replica, block in blocks
                )

            if query.last is None:
                return read(replicas, query.should_tail)
            return keep_last(read, replicas, query.last, query.should_tail)

    def _lines(self, app_handle: AppHandle, *args: Any) -> Iterable[str]:
        """Call :meth:`log_lines` as other releases do, with ``streams`` as a keyword argument."""
        role, k, regex, since, until, should_tail, streams = args
        return self.log_lines(
            app_handle, role, k, regex, since, until, should_tail, streams=streams
        )

    def open_session(
        self,
        app_handle: AppHandle,
        role_name: str,
        k: int,
        command: Sequence[str],
        *,
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Start a command with the environment and the working directory of a running replica.

        The event of this call has neither the command nor its arguments.

        Args:
            app_handle: The app.
            role_name: The role.
            k: Index of the replica in its role.
            command: The program and its arguments.
            tty: Size of the terminal that the command gets; None means pipes.
            stdin: Whether the session's ``write`` may be called; False means empty input.

        Raises:
            NotSupportedError: The scheduler cannot run commands in replicas.
            ReplicaNotRunningError: The replica has ended or has not started.
            UnknownAppException: The app does not exist.
        """
        with self._call("open_session", app_handle) as (scheduler, app_id):
            return scheduler.app_sessions.open(app_id, role_name, k, command, tty=tty, stdin=stdin)

    def open_port(self, app_handle: AppHandle, role_name: str, k: int, port: int) -> socket:
        """Return a socket that is connected to a port of a running replica.

        The errors are those of :meth:`open_session`. A ``BackendError`` means that nothing listens
        on the port.
        """
        with self._call("open_port", app_handle) as (scheduler, app_id):
            return scheduler.app_sessions.connect(app_id, role_name, k, port)

    def read_archive(
        self, app_handle: AppHandle, role_name: str, k: int, path: str
    ) -> Iterator[bytes]:
        """Return a file or folder of a replica as a tar archive.

        Without the feature ``archives``, which this method needs, run ``tar`` in a session.
        """
        with self._call("read_archive", app_handle) as (scheduler, app_id):
            return scheduler.app_sessions.read_archive(app_id, role_name, k, path)

    def write_archive(
        self, app_handle: AppHandle, role_name: str, k: int, path: str, tar: Iterator[bytes]
    ) -> None:
        """Unpack a tar archive in an existing folder of a replica.

        Without the feature ``archives``, which this method needs, run ``tar`` in a session.
        """
        with self._call("write_archive", app_handle) as (scheduler, app_id):
            scheduler.app_sessions.write_archive(app_id, role_name, k, path, tar)

    def list(
        self, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> list[ListAppResponse]:
        """Return the apps of a scheduler, with handles of this session.

        Args:
            scheduler: Name of the scheduler.
            cfg: Options of the scheduler, such as a namespace.
        """
        with events.log_event("list", scheduler):
            apps = call_with_accepted(self.scheduler(scheduler).list, cfg)
            for app in apps:
                self._with_handle(app, scheduler)
            return apps

    def list_newest(
        self, scheduler: str, cfg: Mapping[str, CfgVal] | None = None
    ) -> Iterator[ListAppResponse]:
        """Return an iterator over the apps of a scheduler, with handles of this session.

        If the scheduler has the feature ``newest_first``, the newest app comes first, and each app
        is read when it is taken. Otherwise, the apps come in the order of :meth:`list`.

        Args:
            scheduler: Name of the scheduler.
            cfg: Options of the scheduler, such as a namespace.
        """
        backend = self.scheduler(scheduler)
        is_overridden = type(self).list is not Runner.list
        if is_overridden or not features_of(backend).newest_first:
            return iter(self.list(scheduler, cfg))
        with events.log_event("list", scheduler):
            apps = backend.list_newest(cfg)
        return map(self._with_handle, apps, repeat(scheduler))

    def _with_handle(self, app: ListAppResponse, scheduler: str) -> ListAppResponse:
        app.app_handle = make_app_handle(scheduler, self._name, app.app_id)
        return app

    def gpus(self, scheduler: str, cfg: Mapping[str, CfgVal] | None = None) -> GpuCounts:
        """Return how many GPUs of a scheduler's cluster are free, in use and unavailable.

        Args:
            scheduler: Name of the scheduler.
            cfg: Options of the scheduler, such as a context.

        Raises:
            NotSupportedError: The scheduler does not report GPUs (feature ``gpus``).
        """
        backend = self.scheduler(scheduler)
        features_of(backend).require("gpus", scheduler)
        return backend.gpus(cfg)


def get_runner(
    name: str | None = None,
    component_defaults: dict[str, dict[str, str]] | None = None,
    *,
    profile: str | None = None,
    **scheduler_params: Any,
) -> Runner:
    """Return a runner with the installed schedulers.

    The runner records its submissions in the journal of this user.

    >>> from torchx_runner import get_runner
    >>> with get_runner() as runner:
    ...     runner.name()
    'torchx'

    Args:
        name: The name of the session (deprecated).
        component_defaults: ``{component: {parameter: text}}``: the values of arguments that a
            request leaves out.
        profile: Complete requests from ``.torchxconfig``, as the command does with ``--profile``:
            options of schedulers, arguments of components (unless ``component_defaults`` is given)
            and trackers. An empty text means the sections without a profile. By default, the runner
            reads only the trackers, the named resources and the plugins to block.
        scheduler_params: Keyword arguments of the schedulers' factories.

    Raises:
        ConfigError: A configuration file is malformed, or none has the profile. If
            ``component_defaults`` is given, the runner's dry runs raise this error instead.
    """
    if name:
        warnings.warn(
            "get_runner(name) is deprecated: the session name will always be 'torchx'",
            FutureWarning,
            stacklevel=2,
        )
    if profile is not None and component_defaults is None:
        component_defaults = config.load_sections("component", profile=profile)
    runner = Runner(
        name or DEFAULT_SESSION,
        component_defaults=component_defaults,
        scheduler_params=scheduler_params,
    )
    runner.keeps_journal = True
    runner.profile = profile
    return runner


def _with_nodes(attempts: list[AttemptStatus], roles: list[RoleStatus]) -> list[AttemptStatus]:
    """Return attempts with the nodes of the last one, which are those of the app's replicas."""
    if not attempts or attempts[-1].nodes:
        return attempts
    nodes = {replica.node for role in roles for replica in role.replicas if replica.node}
    return [*attempts[:-1], replace(attempts[-1], nodes=tuple(sorted(nodes)))]


def _copy_without_overrides(app: AppDef) -> AppDef:
    """Return a copy of an app in which each override of a role has become a plain attribute.

    The runner changes attributes of roles, and an attribute with an override cannot be changed.
    """
    resolved = copy.deepcopy(app)
    for role in resolved.roles:
        overrides, role.overrides = role.overrides, {}
        for name in overrides:
            setattr(role, name, _resolved(role, overrides, name))
    return resolved


def _resolved(role: Role, overrides: dict[str, Any], name: str) -> Any:
    from torchx_specs.model.role_overrides import resolve_override  # few roles have overrides

    return copy.deepcopy(resolve_override(overrides, name, lambda: vars(role).get(name)))


def _add_app_to_event(
    ctx: events.log_event, scheduler: str, app: AppDef | None, handle: AppHandle | None = None
) -> None:
    """Add the scheduler, and the app's metadata, image and id if they are known, to an event.

    Secrets in the metadata and the image are masked.
    """
    event = ctx._torchx_event
    event.scheduler = scheduler
    if app is not None:
        event.app_metadata = masked(app.metadata)
        event.app_image = masked(app.roles[0].image) if app.roles else None
    if handle is not None:
        event.app_id = parse_app_handle(handle).app_id


def sweep_module() -> Any:
    """Return the module ``torchx_sweep``.

    Raises:
        RequestError: ``torchx-sweep`` is not installed.
    """
    import importlib

    try:
        # Not an import statement, because this package must not depend on torchx_sweep.
        return importlib.import_module("torchx_sweep")
    except ModuleNotFoundError as e:
        if e.name != "torchx_sweep":
            raise
        raise RequestError("torchx-sweep is not installed; run: pip install torchx-sweep") from e
