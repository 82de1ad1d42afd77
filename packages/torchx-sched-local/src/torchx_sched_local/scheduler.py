"""The scheduler ``local_cwd``, which runs apps as processes of this machine.

Each app has a folder (:mod:`torchx_sched_local.store.app_folder`), which outlives the program that
submitted the app: any process of the same user can describe, follow, cancel and delete the app. The
app's processes end with the program that submitted the app, unless the option ``detach`` is set.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from typing import TYPE_CHECKING, Any

from torchx_kit.jobs.attempts import make_resume_dir, resume_dir_problems
from torchx_kit.names.ids import make_unique
from torchx_kit.names.limits import FILE, fit_name
from torchx_sched_local.build_request import (
    add_attempts,
    add_setup_and_limit,
    build_request,
    join_path,
    process_path,
)
from torchx_sched_local.cuda import (
    ENV_CUDA_VISIBLE_DEVICES,
    claimed_gpus,
    device_count,
    divide_gpus,
    requested_gpus,
    visible_gpus,
)
from torchx_sched_local.environments import environment_path
from torchx_sched_local.errors import TooManyAppsError, UnknownLocalAppError, folder_error
from torchx_sched_local.image_providers import (
    CWDImageProvider,
    ImageProvider,
    LocalDirectoryImageProvider,
)
from torchx_sched_local.logs.iterator import LogIterator
from torchx_sched_local.options import LocalOpts
from torchx_sched_local.request import (
    ENV_ERROR_FILE,
    PopenRequest,
    ReplicaParam,
    format_request,
)
from torchx_sched_local.store.layout import (
    COMBINED_LOG,
    NA,
    STDERR_LOG,
    STDOUT_LOG,
    base_folder,
    session_folder,
)
from torchx_sched_local.supervise.replicas import PopenProtocol, _LocalAppDef, _LocalReplica
from torchx_sched_local.workspaces import planned_copies
from torchx_specs.errors import BackendError
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.schedulers.closing import closing_of
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.request_checks import RequestRules

if TYPE_CHECKING:
    import signal

    from torchx_sched_local.arrays import LocalArrays
    from torchx_sched_local.logs.replica_log import LocalLogs
    from torchx_sched_local.sessions import LocalSessions
    from torchx_sched_local.store.app_run import AppRun
    from torchx_sched_local.store.stored_app import StoredApp

#: The names that clients use; other modules define some of them.
__all__ = [
    "COMBINED_LOG",
    "ENV_CUDA_VISIBLE_DEVICES",
    "NA",
    "STDERR_LOG",
    "STDOUT_LOG",
    "CWDImageProvider",
    "ImageProvider",
    "LocalDirectoryImageProvider",
    "LocalOpts",
    "LocalScheduler",
    "LogIterator",
    "PopenProtocol",
    "PopenRequest",
    "ReplicaParam",
    "SignalException",
    "_LocalAppDef",
    "_LocalReplica",
    "create_scheduler",
]

AppId = str
AppName = str
RoleName = str
Opts = LocalOpts
_join_PATH = join_path  # noqa: N816 - clients use this name

_LONGEST_APP_NAME = 150


class SignalException(Exception):
    """This process received a signal.

    Args:
        msg: The message.
        sigval: The signal.
    """

    def __init__(self, msg: str, sigval: signal.Signals) -> None:
        super().__init__(msg)
        self.sigval = sigval


def create_scheduler(
    session_name: str,
    cache_size: int = 100,
    extra_paths: list[str] | None = None,
    image_provider_class: Callable[..., ImageProvider] = CWDImageProvider,
    **kwargs: object,
) -> LocalScheduler:
    """Create the scheduler ``local_cwd``.

    Args:
        session_name: The session, which is part of handles.
        cache_size: How many apps may run at the same time.
        extra_paths: Folders to put before the PATH of each app.
        image_provider_class: Called with the options; returns the image provider.
        kwargs: Parameters of other schedulers, ignored.
    """
    return LocalScheduler(
        session_name,
        image_provider_class=image_provider_class,
        cache_size=cache_size,
        extra_paths=extra_paths,
    )


class LocalScheduler(Scheduler[LocalOpts]):
    """Runs apps as processes of this machine.

    A subclass may override the methods that start a process, such as :meth:`run_local_job` and
    :meth:`_popen`. The apps of a subclass are never detached. A subclass that does not call this
    ``__init__`` must set ``backend``, ``session_name``, ``_apps``, ``_image_provider_class``,
    ``_cache_size`` and ``_extra_paths``.

    Args:
        session_name: The session, which is part of handles.
        image_provider_class: Called with the options; returns the image provider.
        cache_size: How many apps may run at the same time.
        extra_paths: Folders to put before the PATH of each app.

    Raises:
        ValueError: ``cache_size`` is not positive.
    """

    features = SchedulerFeatures(
        cancel_pending=No("local jobs start at once"),
        newest_first=True,
        native=True,
        watch=True,
        kill=True,
        client_jobs=True,
        secrets=True,
        setup=True,
        time_limit=True,
        ends_app=True,
        requeue=True,
        logs=True,
        last=True,
        partial=True,
        attempt_marks=True,
        exec=True,
        ports=True,
        archives=No("the files of a replica are files of this machine"),
        arrays=True,
        array_limit=True,
        mass_cancel=True,
        mass_delete=True,
    )
    request_rules = RequestRules(needs_resource=False, needs_entrypoint=True)

    # Defaults, because a subclass need not call this __init__.
    _cache_size: int = 100
    _base_log_dir: str | None = None
    _created_tmp_log_dir: bool = False

    def __init__(
        self,
        session_name: str,
        image_provider_class: Callable[..., ImageProvider],
        cache_size: int = 100,
        extra_paths: list[str] | None = None,
    ) -> None:
        super().__init__("local", session_name)
        if not isinstance(cache_size, int) or cache_size <= 0:
            raise ValueError(f"cache_size is {cache_size!r}; it must be a number, 1 or more")
        self._apps: dict[AppId, _LocalAppDef] = {}
        self._image_provider_class = image_provider_class
        self._cache_size = cache_size
        self._extra_paths: list[str] = extra_paths or []
        self._tmp_log_dirs: list[str] = []

    # -- The methods below make the request.

    def _validate(self, app: AppDef, scheduler: str, cfg: Any = None) -> None:
        """Warn of mounts, which are ignored; refuse nothing."""
        for role in app.roles:
            if role.mounts:
                _warn(
                    "%s runs without containers: the mounts of role '%s' are ignored",
                    scheduler,
                    role.name,
                )

    def _request_problems(self, app: AppDef, cfg: Any) -> Iterable[str]:
        return resume_dir_problems(cfg.get("resume_dir"))

    def _submit_dryrun(self, app: AppDef, cfg: Any) -> AppDryRunInfo[PopenRequest]:
        return AppDryRunInfo(self._to_popen_request(app, cfg), format_request)

    def _to_popen_request(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> PopenRequest:
        """Return the request for an app, without starting or writing anything.

        Args:
            app: The app, which is not changed.
            cfg: The options; missing options have their defaults.
        """
        app_id = self._new_id(app.name)
        return self._request(app, app_id, self._get_app_log_dir(app_id, cfg), cfg)

    def _new_id(self, name: str) -> str:
        return make_unique(fit_name(name, FILE.within(_LONGEST_APP_NAME)))

    def _request(
        self,
        app: AppDef,
        app_id: str,
        log_dir: str,
        cfg: Mapping[str, CfgVal],
        index: int | None = None,
    ) -> PopenRequest:
        """Return the request for an app; the arguments are those of :func:`build_request`."""

        def search_path(path: str | None, cwd: str | None) -> str:
            others = join_path(*self._extra_paths, path, environment_path(cwd))
            if cfg.get("prepend_cwd"):
                return join_path(cwd, others or cwd)  # see process_path()
            return join_path(others, cwd)

        copies = planned_copies(app.roles, log_dir) if self.copies_workspaces() else {}
        request = build_request(
            app, app_id, log_dir, self._image_provider_class(cfg), search_path, copies, index
        )
        self.auto_set_CUDA_VISIBLE_DEVICES(request.role_params, app, cfg)
        if cfg.get("auto_set_cuda_visible_devices"):
            request.gpus = claimed_gpus(request.role_params, app) or None
        add_setup_and_limit(request, cfg)
        add_attempts(request, cfg)
        return request

    def _get_app_log_dir(self, app_id: str, cfg: Mapping[str, CfgVal]) -> str:
        """Return the folder of an app, without creating it."""
        base = cfg.get("log_dir")
        root = os.path.abspath(str(base)) if base else base_folder()
        return os.path.join(root, session_folder(self.session_name), app_id)

    def _cuda_device_count(self) -> int:
        """Return how many GPUs this machine has."""
        return device_count()

    def auto_set_CUDA_VISIBLE_DEVICES(  # noqa: N802 - subclasses override this name
        self,
        role_params: dict[str, list[ReplicaParam]],
        app: AppDef,
        cfg: Mapping[str, CfgVal],
    ) -> None:
        """Divide this machine's GPUs among the replicas of an app that requests GPUs.

        Without the option ``auto_set_cuda_visible_devices``, each replica sees all GPUs, and a
        warning is logged.

        Args:
            role_params: The replicas, changed in place.
            app: The app; its roles have the number of GPUs for each replica.
            cfg: The options.
        """
        if not any(role.resource.gpu > 0 for role in app.roles):
            return
        if cfg.get("auto_set_cuda_visible_devices"):
            divide_gpus(role_params, app, visible_gpus(self._cuda_device_count()))
            return
        found = (
            "each replica sees all GPUs of this machine; set the option"
            " auto_set_cuda_visible_devices to divide them"
            if self._cuda_device_count()
            else "this machine has none"
        )
        _warn("app '%s' requests %d GPUs, but %s", app.name, requested_gpus(app), found)

    def lives_in_client(self, cfg: Mapping[str, CfgVal]) -> bool:
        """Return True if an app ends with this process: always, except with the option ``detach``.

        A subclass ignores this option, so that the result for a subclass is always True.

        Args:
            cfg: The resolved options.
        """
        return not (cfg.get("detach") and type(self) is LocalScheduler)

    def copies_workspaces(self) -> bool:
        """Return True; False in a subclass, which may submit apps in another way."""
        return type(self) is LocalScheduler

    def has_only_local_files(self, info: AppDryRunInfo[Any]) -> bool:
        """Return True if the app runs in the working directory, and not in a folder as image.

        Args:
            info: The app's dry run.
        """
        return self._image_provider_class is CWDImageProvider

    # -- The methods below submit apps.

    def schedule(self, dryrun_info: AppDryRunInfo[PopenRequest]) -> str:
        """Start the processes of an app, and return its id.

        Args:
            dryrun_info: The app's request, from :meth:`submit_dryrun`.

        Raises:
            RequestError: None of the app's programs can be run, its folder cannot be written, or
                too many apps run already.
            BackendError: The machine cannot run the app, for example because it has too many
                processes.
        """
        from torchx_sched_local.submit import option, start_attached, start_detached

        self._make_room()
        app_id = dryrun_info.request.app_id
        if dryrun_info.request.attempts and (resume_dir := dryrun_info.request.resume_dir):
            make_resume_dir(resume_dir)
        detach = option(dryrun_info, "detach")
        if detach and type(self) is LocalScheduler:
            start_detached(dryrun_info, self.session_name)
            return app_id
        if detach:
            _warn(
                "the option detach is ignored: only the launcher can start processes as %s does",
                type(self).__name__,
            )
        self._apps[app_id] = start_attached(dryrun_info, self.session_name, self._popen)
        return app_id

    # -- The methods below start a process; subclasses override them.

    def _popen(
        self, role_name: RoleName, replica_id: int, replica_params: ReplicaParam
    ) -> _LocalReplica:
        """Start a replica.

        Raises:
            OSError: The replica's program cannot be run.
            TorchXError: A log file cannot be created.
        """
        try:
            stdout, stderr, combined = self._get_replica_output_handles(replica_params)
        except OSError as e:
            raise folder_error(os.path.dirname(replica_params.stdout or ""), e) from e
        try:
            proc = self.run_local_job(
                args=replica_params.args,
                env=self._get_replica_env(replica_params),
                stdout=stdout,
                stderr=stderr,
                cwd=replica_params.cwd,
            )
        except BaseException:
            for file in (stdout, stderr, combined):
                if file is not None:
                    file.close()
            raise
        error_file = replica_params.env.get(ENV_ERROR_FILE, NA)
        return _LocalReplica(role_name, replica_id, proc, stdout, stderr, combined, error_file)

    def run_local_job(
        self,
        args: list[str],
        env: dict[str, str],
        stdout: FileIO | None,
        stderr: FileIO | None,
        cwd: str | None = None,
    ) -> PopenProtocol:
        """Start a process, as the leader of a new session.

        Args:
            args: The program and its arguments.
            env: The complete environment of the process.
            stdout: The file for standard output.
            stderr: The file for standard error.
            cwd: The working directory; None means the working directory of this process.

        Raises:
            OSError: The program cannot be run.
        """
        import subprocess

        return subprocess.Popen(
            args, env=env, stdout=stdout, stderr=stderr, cwd=cwd, start_new_session=True
        )

    def _get_file_io(self, file: str | None) -> FileIO | None:
        """Create a log file, and return it open for appending; return None if ``file`` is None.

        Raises:
            OSError: The file cannot be created, or it exists already (FileExistsError).
        """

        def opener(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_EXCL, 0o666)

        # The process always writes to the end of the file, even if another process truncates it.
        return None if file is None else FileIO(file, "ab", opener=opener)

    def _get_replica_output_handles(
        self, replica_params: ReplicaParam
    ) -> tuple[FileIO | None, FileIO | None, Any]:
        """Return the files for standard output and error, and the :class:`Tee` that merges them.

        The :class:`Tee` is None if a supervision merges the files, or if a path is None.
        """
        out, err, combined = replica_params.stdout, replica_params.stderr, replica_params.combined
        make, make_supervised = self._get_file_io, getattr(replica_params, "open_log", None)
        if make_supervised is None:
            stdout, stderr, merged = make(out), make(err), make(combined)
            if out is None or err is None or merged is None:
                return stdout, stderr, None
            from torchx_kit.logs.streams import Tee

            return stdout, stderr, Tee(merged, out, err)
        is_own = type(self)._get_file_io is not LocalScheduler._get_file_io
        if getattr(replica_params, "is_restart", False) or not is_own:
            make = make_supervised
        return make(out), make(err), None

    def _get_replica_env(self, replica_params: ReplicaParam) -> dict[str, str]:
        """Return the environment of a replica: this process's variables and the replica's own."""
        environ = getattr(replica_params, "environ", None)
        inherited = dict(os.environ) if environ is None else environ
        env = {**inherited, **replica_params.env}
        own = replica_params.env.get("PATH")
        env["PATH"] = process_path(own, replica_params.cwd, inherited.get("PATH"))
        env.setdefault("PYTHONUNBUFFERED", "x")
        return env

    # -- The methods below describe, list, await, end and delete submitted apps.

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if there is no such app.

        Any process may have submitted the app.
        """
        from torchx_sched_local import describe as describing

        local_app = self._own_app(app_id)
        if local_app is not None and local_app.supervision is None:
            return self._describe_own(local_app)
        stored = self._stored(app_id)
        if stored is None:
            return None
        return describing.describe(stored.refresh(), stored.app)

    def _describe_own(self, app: _LocalAppDef) -> DescribeAppResponse:
        """Describe an app that a subclass started without a supervision."""
        if app.replicas and not is_terminal(app.state):
            if any(replica.is_alive() for replica in app.replicas):
                app.set_state(AppState.RUNNING)
            elif any(replica.failed() for replica in app.replicas):
                app.set_state(AppState.FAILED)
            else:
                app.set_state(AppState.SUCCEEDED)
            if is_terminal(app.state):
                app.close()
        return DescribeAppResponse(
            app_id=app.id,
            state=app.state,
            num_restarts=0,
            structured_error_msg=app.get_structured_error_msg(),
            ui_url=f"file://{app.log_dir}",
        )

    def describe_native(self, app_id: str) -> AppDryRunInfo[PopenRequest] | None:
        """Return the request of an app, or None if there is no such app."""
        local_app = self._own_app(app_id)
        if local_app is not None and local_app.dryrun_info is not None:
            return local_app.dryrun_info
        stored = self._stored(app_id)
        if stored is None or stored.request is None:
            return None
        info = AppDryRunInfo(stored.request, format_request)
        info.app = stored.app
        return info

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the apps of this user on this machine, of all sessions.

        An app whose record cannot be read is left out, with a warning.

        Args:
            cfg: Ignored.
        """
        return [*self.list_newest(cfg)]

    def list_newest(self, cfg: Mapping[str, CfgVal] | None = None) -> Iterator[ListAppResponse]:
        """Yield the apps of :meth:`list`, the newest first; read each app when it is taken."""
        from torchx_kit.times import moment
        from torchx_sched_local.store import index

        for app_id in index.app_ids():
            try:
                stored = self._stored(app_id)
            except BackendError as e:
                _warn("%s", e)
                continue
            if stored is None:
                continue
            handle = f"local_cwd://{stored.data['session']}/{app_id}"
            created = moment(stored.data["created"])
            run = stored.refresh()
            if stored.element_names:
                for k, name in enumerate(stored.element_names):
                    replica = run.element(k)
                    yield ListAppResponse(
                        f"{app_id}.{k}",
                        replica.state,
                        f"{handle}.{k}",
                        name,
                        submitted=created,
                        started=moment(replica.started),
                        ended=moment(replica.ended) if is_terminal(replica.state) else None,
                        exit_code=replica.exit_code,
                    )
                continue
            yield ListAppResponse(
                app_id,
                run.state,
                handle,
                stored.data["name"],
                submitted=created,
                started=moment(run.started),
                ended=moment(run.last_updated) if is_terminal(run.state) else None,
                exit_code=_exit_code(run),
            )

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Block until an app has ended or the scheduler is closed; overrides the default.

        Args:
            app_id: The app; returns at once if there is no such app.
            timeout: How long to block, in seconds; None means without a limit.

        Returns:
            True, because this scheduler can watch apps.
        """
        local_app = self._own_app(app_id)
        if local_app is not None:
            local_app.wait(timeout)
            return True
        closing = closing_of(self)
        stored = self._stored(app_id)
        if stored is not None:
            stored.wait(timeout, closing)
        return True

    def cancel(self, app_id: str) -> None:
        """End an app. An app that has ended or does not exist is not an error."""
        self._cancel_existing(app_id)  # which itself finds the app

    def _cancel_existing(self, app_id: str) -> None:
        """End an app and all its processes, and wait until they have ended."""
        local_app = self._own_app(app_id)
        if local_app is None:
            stored = self._stored(app_id)
            if stored is not None:
                stored.cancel()
        elif local_app.supervision is not None:
            local_app.kill()
        elif not is_terminal(local_app.state):
            local_app.kill()
            local_app.set_state(AppState.CANCELLED)
            local_app.close()

    def kill(self, app_id: str) -> None:
        """Kill an app at once; overrides the default, which gives the processes time to end.

        An app that a subclass started without a record in its folder is cancelled instead.

        Args:
            app_id: The app; nothing happens if there is no such app, or if it has ended.

        Raises:
            BackendError: The app cannot be ended, or its end cannot be recorded.
        """
        stored = self._stored(app_id)
        if stored is None:
            self._cancel_existing(app_id)
        else:
            stored.cancel(grace=0)

    def delete(self, app_id: str) -> None:
        """End an app and delete its folder. A missing app is not an error."""
        self._delete_existing(app_id)  # which itself finds the app

    def _delete_existing(self, app_id: str) -> None:
        """End an app and delete its folder."""
        stored = self._stored(app_id)
        # A subclass may have started it without a record, or started other things than processes.
        if stored is None or self._own_app(app_id) is not None:
            self._cancel_existing(app_id)
        if stored is not None:
            stored.delete()
        self._apps.pop(app_id, None)

    def close(self) -> None:
        """End the attached apps of this process; detached apps continue, and no app is deleted."""
        from torchx_sched_local.supervise.replicas import end_apps

        apps = list(self._apps.values())
        end_apps([app for app in apps if app.is_own() and not is_terminal(app.state)])
        super().close()  # last, so that who waits for an attached app sees that it was cancelled

    def _make_room(self) -> None:
        """Drop ended apps from memory until one more app can be added.

        Raises:
            TooManyAppsError: Too many apps are running.
        """
        while len(self._apps) >= self._cache_size:
            if not self._evict_lru():
                raise TooManyAppsError(
                    f"{len(self._apps)} apps are running, as many as cache_size allows;"
                    " wait until one has ended, or create the scheduler with a larger cache_size"
                )

    def _evict_lru(self) -> bool:
        """Drop the app that ended first from memory, but keep its folder.

        Returns:
            False if no app has ended.
        """
        ended = [
            app for app in list(self._apps.values()) if is_terminal(app.state) or not app.is_own()
        ]
        if not ended:
            return False
        self._apps.pop(min(ended, key=lambda app: app.last_updated).id, None)
        return True

    # -- The methods below read logs, and access running replicas.

    @property
    def app_logs(self) -> LocalLogs:
        """Reads the logs of apps."""
        from torchx_sched_local.logs.replica_log import LocalLogs

        return LocalLogs(self)

    @property
    def app_sessions(self) -> LocalSessions:
        """Runs commands in running replicas, and connects to their ports."""
        from torchx_sched_local.sessions import LocalSessions

        return LocalSessions(self)

    @property
    def app_arrays(self) -> LocalArrays:
        """Submits, cancels and deletes many apps at once."""
        from torchx_sched_local.arrays import LocalArrays

        return LocalArrays(self)

    def _own_app(self, app_id: str) -> _LocalAppDef | None:
        """Return an app that this process started; None if another process started it."""
        app = self._apps.get(app_id)
        # A forked process inherits the apps of its parent, but does not supervise them.
        return app if app is not None and app.is_own() else None

    # -- The methods below manage what this process has in memory.

    def _stored(self, app_id: str) -> StoredApp | None:
        """Return an app as stored in its folder, or None if there is no such app."""
        from torchx_sched_local.store import index
        from torchx_sched_local.store.app_folder import AppFolder

        folder, own = index.find(app_id), self._own_app(app_id)
        if folder is None and own is not None:  # it could not be added to the index
            folder = AppFolder(own.log_dir)
        if folder is not None and folder.exists():
            return self._read_app(folder.path, app_id)
        from torchx_kit.jobs.arrays import split_element_id
        from torchx_sched_local.store.stored_app import StoredElement

        array, k = split_element_id(app_id)
        stored = None if k is None else self._stored(array)
        if k is None or stored is None or k >= len(stored.element_names):
            return None
        return StoredElement(stored, k)

    def _existing(self, app_id: str) -> StoredApp:
        """Return an app as stored in its folder.

        Raises:
            UnknownAppException: There is no such app; the error is also a KeyError.
        """
        stored = self._stored(app_id)
        if stored is None:
            raise UnknownLocalAppError(app_id)
        return stored

    @functools.cached_property
    def _read_app(self) -> Callable[[str, str], StoredApp | None]:
        """Reads the app in a folder; the apps that were used last stay in memory."""
        from torchx_sched_local.store.stored_app import StoredApp

        return functools.lru_cache(self._cache_size)(StoredApp.read)


def _exit_code(run: AppRun) -> int | None:
    """Return 0 if the app succeeded, its first nonzero exit code if it failed, otherwise None."""
    if run.state == AppState.SUCCEEDED:
        return 0
    if run.state != AppState.FAILED:
        return None
    return next((replica.exit_code for replica in run.replicas if replica.exit_code), None)


def _warn(message: str, *args: object) -> None:
    import logging

    logging.getLogger(__name__).warning(message, *args)
