"""``local_docker``: runs apps as containers of a Docker Engine, one container for each replica.

The engine stores all state: any process that reaches the engine can describe, follow, cancel and
delete an app. Each app has its own network, in which the names of its containers are host names.

Modules that import the docker library are imported in the methods that need an engine, so that a
dry run does not load it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torchx_kit.errors import UnknownReplicaError
from torchx_kit.jobs.attempts import make_resume_dir
from torchx_kit.role_checks import check_replica
from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_docker.client import (
    EngineError,
    NoEngineError,
    connect,
    engine_errors,
    ignoring,
    in_parallel,
    list_containers,
)
from torchx_sched_docker.client import ensure_network as ensure_network
from torchx_sched_docker.client import has_docker as has_docker
from torchx_sched_docker.labels import LABEL_APP_ID as LABEL_APP_ID
from torchx_sched_docker.labels import LABEL_APP_NAME as LABEL_APP_NAME
from torchx_sched_docker.labels import LABEL_REPLICA_ID as LABEL_REPLICA_ID
from torchx_sched_docker.labels import LABEL_REQUEUE
from torchx_sched_docker.labels import LABEL_ROLE_NAME as LABEL_ROLE_NAME
from torchx_sched_docker.labels import LABEL_VERSION as LABEL_VERSION
from torchx_sched_docker.options import DockerOpts as DockerOpts
from torchx_sched_docker.request import (
    GRACE,
    NOT_UTF8,
    RULES,
    format_request,
    make_request,
    request_problems,
)
from torchx_sched_docker.request import NETWORK as NETWORK
from torchx_sched_docker.request import DockerContainer as DockerContainer
from torchx_sched_docker.request import DockerJob as DockerJob
from torchx_sched_docker.states import (
    CANCELLED_SUFFIX,
    DONE_SUFFIX,
    container_name,
    replica_state,
    stopped,
    summary_state,
    unneeded,
)
from torchx_sched_docker.states import CONTAINER_STATE as CONTAINER_STATE
from torchx_specs.errors import UnknownAppException
from torchx_specs.model.app import AppDef, AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
)
from torchx_specs.schedulers.closing import closing_of
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.request_checks import RequestRules
from torchx_specs.workspace.api import METADATA_KEY

if TYPE_CHECKING:
    from typing import ClassVar

    from docker.client import DockerClient
    from docker.models.containers import Container

    from torchx_sched_docker.logs.container_log import DockerLogs
    from torchx_sched_docker.sessions import DockerSessions

Opts = DockerOpts

# The events of a container after which its app is described again.
_CHANGES = ["start", "die", "oom", "pause", "unpause", "rename", "destroy"]
# How long wait() takes if the engine does not answer, in seconds.
_PAUSE = 0.5


def create_scheduler(session_name: str, **kwargs: Any) -> DockerScheduler:
    """Return a scheduler; ``kwargs`` has parameters of other schedulers and is ignored."""
    return DockerScheduler(session_name)


def _to_str(a: str | bytes) -> str:
    return a.decode("utf-8") if isinstance(a, bytes) else a


class DockerScheduler(BuilderWorkspaceMixin, Scheduler[DockerOpts]):
    """Runs apps as containers of a Docker Engine: on ``DOCKER_HOST``, by default on this machine.

    Args:
        session_name: Name of the session, as in the app handles.
        docker_client: The client to use; None creates one from the environment (``DOCKER_HOST``).
    """

    features = SchedulerFeatures(
        cancel_pending=No("an engine starts containers at once or refuses them"),
        watch=True,
        client_jobs=True,
        requeue=True,
        not_utf8=No(NOT_UTF8),
        secrets=True,
        setup=True,
        time_limit=True,
        dependencies=No("an engine has no queue"),
        ends_app=True,
        logs=True,
        last=True,
        partial=True,
        exec=True,
        ports=True,
        archives=True,
    )
    request_rules = RULES
    default_workspace_type: ClassVar[str] = "docker"
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image"})
    workspace_remote: ClassVar[bool] = False

    # Defaults for subclasses whose __init__ does not call DockerScheduler.__init__.
    _client: DockerClient | None = None
    _owns_client: bool = True
    #: When each app was last described, in seconds since 1970.
    _described_at: Mapping[str, float] = MappingProxyType({})
    #: When the engine stopped answering, as a time of time.monotonic(); None if it answers.
    _unreachable_since: float | None = None

    def __init__(self, session_name: str, docker_client: DockerClient | None = None) -> None:
        super().__init__("docker", session_name)
        self._client = docker_client
        self._owns_client = docker_client is None

    @property
    def _docker_client(self) -> DockerClient:
        # Threads may create two clients: that contacts no engine, and the last one is kept.
        client = self._client = self._client or connect()
        return client

    def close(self) -> None:
        """Close the connection to the engine; apps continue."""
        super().close()
        if self._owns_client:
            client, self._client = self._client, None
            if client is not None:
                client.close()

    # -- The methods below make the request.

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "_submit_dryrun" in vars(cls) and "request_rules" not in vars(cls):
            # The checks may not apply to the requests that a subclass makes.
            cls.request_rules = RequestRules(needs_resource=False)

    def _request_problems(self, app: AppDef, cfg: DockerOpts) -> Iterable[str]:
        return request_problems(app, cfg) if self.request_rules is RULES else ()

    def _submit_dryrun(self, app: AppDef, cfg: DockerOpts) -> AppDryRunInfo[DockerJob]:
        return AppDryRunInfo(make_request(app, cfg), format_request)

    # -- The methods below submit an app.

    def lives_in_client(self, cfg: Mapping[str, CfgVal]) -> bool:
        """Return True, although the engine runs an app of ``torchx run --detach`` to its end."""
        return True

    def schedule(self, dryrun_info: AppDryRunInfo[DockerJob]) -> str:
        """Start the containers of an app, and return its id.

        Raises:
            BackendError: The engine does not answer, or refuses a request. Containers and network
                that were created are removed.
            RequestError: A secret is missing, or is not protected from other users.
            WorkspaceError: The app's workspace cannot be built.
        """
        from torchx_sched_docker.submit import start, with_secrets

        job = with_secrets(dryrun_info.request)
        if job.resume_dir:
            make_resume_dir(job.resume_dir)
        built = self.build_pending(dryrun_info)
        cfg: Mapping[str, CfgVal] = dryrun_info.cfg or {}
        images = _images_to_pull(job, dryrun_info.app, built)
        pull = str(cfg.get("pull") or "always")
        start(self._docker_client, job, images, pull, bool(cfg.get("quiet")))
        return job.app_id

    # -- The methods below describe, list, await, end and delete submitted apps.

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if the engine has no container of it.

        While the engine does not answer, the state of an app that was described before is UNKNOWN,
        for at most :data:`~torchx_sched_docker.logs.container_log.PATIENCE` seconds: the engine may
        restart. If the roles whose success ends the app have succeeded, the other containers are
        stopped first: the engine has no process that does it.

        Raises:
            BackendError: The engine does not answer, or refuses the request.
        """
        from torchx_sched_docker.logs.container_log import PATIENCE

        begun = time.time()
        try:
            found = next((described for described, _ in self._described(app_id)), None)
        except NoEngineError as e:
            now = time.monotonic()
            if self._unreachable_since is None:
                self._unreachable_since = now
            if app_id not in self._described_at or now - self._unreachable_since > PATIENCE:
                raise
            return DescribeAppResponse(app_id, AppState.UNKNOWN, msg=str(e))
        self._unreachable_since = None
        if found is not None:
            self._described_at = {**self._described_at, app_id: begun}
        return found

    def _described(self, app_id: str = "") -> Iterator[tuple[DescribeAppResponse, str]]:
        """Yield the description and the name of each app, after those changes that no engine makes.

        Containers that are no longer needed are stopped, and containers with the option ``requeue``
        that somebody has stopped are started.

        Args:
            app_id: The app's id; empty means all apps.
        """
        from torchx_sched_docker.describe import describe, inspect

        client = self._docker_client
        summaries = list_containers(client, app_id)
        self._end(unneeded(summaries), DONE_SUFFIX)
        for summary in stopped(summaries):
            # If this fails, the engine's description of the container has the reason.
            with contextlib.suppress(EngineError), engine_errors("start a container again"):
                client.api.start(summary["Id"])
        by_app: dict[str, list[Container]] = {}
        for container in inspect(client, summaries):
            by_app.setdefault(container.labels[LABEL_APP_ID], []).append(container)
        for found, containers in by_app.items():
            name = containers[0].labels.get(LABEL_APP_NAME, "")
            yield describe(client, found, containers, self._get_app_state), name

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Block until a container of an app has changed since the last :meth:`describe`.

        If the engine does not answer, return after a short pause, so that the caller polls again.

        Raises:
            BackendError: The engine refuses the request.
        """
        closing = closing_of(self)
        since = self._described_at.get(app_id, time.time())
        until = None if timeout is None else f"{time.time() + timeout:.3f}"
        filters = {"type": "container", "label": f"{LABEL_APP_ID}={app_id}", "event": _CHANGES}
        api = self._docker_client.api
        try:
            with engine_errors(f"wait for {app_id}"):
                events = api.events(since=f"{since:.3f}", until=until, filters=filters)

                def close() -> None:
                    with contextlib.suppress(Exception):  # closed by both threads, or over SSH
                        events.close()

                with contextlib.ExitStack() as stack:
                    stack.callback(close)
                    stack.enter_context(closing.calling(close))
                    next(events, None)
        except NoEngineError:
            if not closing.is_set():
                time.sleep(_PAUSE if timeout is None else min(timeout, _PAUSE))
        return True

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the apps of all sessions that have containers on this engine.

        As :meth:`describe` does, it first stops and starts containers.
        """
        from torchx_kit.jobs.descriptions import listed

        return [
            listed(found, f"local_docker://{self.session_name}/{found.app_id}", name)
            for found, name in self._described()
        ]

    def _cancel_existing(self, app_id: str) -> None:
        """Rename the containers that have not ended, to mark them as cancelled, and stop them."""
        summaries = list_containers(self._docker_client, app_id)
        running = [s for s in summaries if not is_terminal(summary_state(s))]
        self._end(running, CANCELLED_SUFFIX)

    def _end(self, summaries: Iterable[Mapping[str, Any]], suffix: str) -> None:
        in_parallel(lambda summary: self._end_container(summary, suffix), summaries)

    def _end_container(self, summary: Mapping[str, Any], suffix: str) -> None:
        """Stop a container; the suffix of its name records why."""
        from torchx_sched_docker.records import record_cancel

        api, container, name = self._docker_client.api, summary["Id"], container_name(summary)
        # Another process may have deleted the container, or end it, too.
        with ignoring(404, 409), engine_errors(f"stop the container {name}"):
            # Rename the container first: an observer of its end must see why it ended.
            if not name.endswith((CANCELLED_SUFFIX, DONE_SUFFIX)):
                api.rename(container, name + suffix)
            if suffix == CANCELLED_SUFFIX and LABEL_REQUEUE in summary["Labels"]:
                record_cancel(self._docker_client, container)
            api.stop(container, timeout=GRACE)

    def delete(self, app_id: str) -> None:
        """Remove an app's containers, running or not, and its network.

        An unknown id is not an error.

        Raises:
            BackendError: The engine does not answer, or refuses the request.
        """
        from torchx_sched_docker.submit import remove_app

        remove_app(self._docker_client, app_id)

    @property
    def app_logs(self) -> DockerLogs:
        """Reads the logs of containers."""
        from torchx_sched_docker.logs.container_log import DockerLogs

        return DockerLogs(self)

    @property
    def app_sessions(self) -> DockerSessions:
        """Uses commands, ports and files of containers."""
        from torchx_sched_docker.sessions import DockerSessions

        return DockerSessions(self)

    # -- The methods below find the containers of an app.

    def _container_id(self, app_id: str, role_name: str, k: int) -> str:
        ids: dict[str, dict[str, str]] = {}
        for summary in list_containers(self._docker_client, app_id):
            labels = summary["Labels"]
            replicas = ids.setdefault(str(labels.get(LABEL_ROLE_NAME)), {})
            replicas[str(labels.get(LABEL_REPLICA_ID))] = str(summary["Id"])
        if not ids:
            raise UnknownAppException(f"local_docker://{self.session_name}/{app_id}")
        if str(k) not in ids.get(role_name, {}):
            counts = {role: len(replicas) for role, replicas in ids.items()}
            check_replica(app_id, counts, role_name, k)
            raise UnknownReplicaError(
                f"the container of replica {k} of role '{role_name}' of app {app_id} was deleted"
            )
        return ids[role_name][str(k)]

    def _get_app_state(self, container: Container) -> AppState:
        state = (container.attrs or {}).get("State")
        code = state.get("ExitCode") if isinstance(state, Mapping) else None
        if container.status == "exited" and code is None:
            code = container.wait(timeout=10)["StatusCode"]
        return replica_state(container.status, code, container.name or "", container.labels)


def _images_to_pull(job: DockerJob, app: AppDef | None, built: Mapping[str, str]) -> list[str]:
    """Return the images to pull: all except image ids and images that were built on this machine.

    Args:
        job: The containers.
        app: The app, if known. The metadata of a role names the image that an earlier build made
            for the role.
        built: The images that were built for this submission, as keys.
    """
    local = set(built)
    for role in app.roles if app else ():
        workspace_build = role.metadata.get(METADATA_KEY)
        if isinstance(workspace_build, Mapping):
            local.add(str(workspace_build.get("image")))
    images = dict.fromkeys(container.image for container in job.containers)
    return [image for image in images if not image.startswith("sha256:") and image not in local]
