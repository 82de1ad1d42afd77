"""``local_docker``: runs apps as containers of a Docker Engine, one container for each replica.

The engine stores all state: any process that reaches the engine can describe, follow, cancel and
delete an app. Each app has its own network, in which the names of its containers are host names.

Modules that import the docker library are imported in the methods that need an engine, so that a
dry run does not load it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torchx_kit.errors import UnknownReplicaError
from torchx_kit.logs.lines import filter_regex
from torchx_kit.role_checks import check_replica
from torchx_kit.workspace.builder import BuilderOutput
from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_docker.client import EngineError, NoEngineError, connect, engine_errors
from torchx_sched_docker.client import has_docker as has_docker
from torchx_sched_docker.events import wait_for_event
from torchx_sched_docker.labels import LABEL_APP_ID as LABEL_APP_ID
from torchx_sched_docker.labels import LABEL_APP_NAME as LABEL_APP_NAME
from torchx_sched_docker.labels import LABEL_REPLICA_ID as LABEL_REPLICA_ID
from torchx_sched_docker.labels import LABEL_ROLE_NAME as LABEL_ROLE_NAME
from torchx_sched_docker.labels import LABEL_VERSION as LABEL_VERSION
from torchx_sched_docker.networks import ensure_network as ensure_network
from torchx_sched_docker.options import DockerOpts as DockerOpts
from torchx_sched_docker.request import NETWORK as NETWORK
from torchx_sched_docker.request import DockerContainer as DockerContainer
from torchx_sched_docker.request import DockerJob as DockerJob
from torchx_sched_docker.request import check, format_request, make_request
from torchx_sched_docker.states import (
    CANCELLED_SUFFIX,
    app_state,
    container_name,
    replica_state,
    summary_state,
)
from torchx_sched_docker.states import CONTAINER_STATE as CONTAINER_STATE
from torchx_specs.errors import UnknownAppException
from torchx_specs.model.app import AppDef
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    Stream,
)
from torchx_specs.workspace.api import METADATA_KEY

if TYPE_CHECKING:
    from datetime import datetime
    from typing import ClassVar

    from docker.client import DockerClient
    from docker.models.containers import Container

Opts = DockerOpts

#: How long a cancelled container may take to end before the engine kills it, in seconds.
GRACE = 10


def create_scheduler(session_name: str, **kwargs: Any) -> DockerScheduler:
    """Return a scheduler; ``kwargs``, parameters for other schedulers, are ignored."""
    return DockerScheduler(session_name)


def _to_str(a: str | bytes) -> str:
    return a.decode("utf-8") if isinstance(a, bytes) else a


class DockerScheduler(BuilderWorkspaceMixin, Scheduler[DockerOpts]):
    """Runs apps as containers of a Docker Engine: on ``DOCKER_HOST``, by default on this machine.

    Args:
        session_name: Name of the session, as in the app handles.
        docker_client: The client to use; None creates one from the environment (``DOCKER_HOST``).
    """

    resolves_secrets = True
    default_workspace_type: ClassVar[str] = "docker"
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image"})
    workspace_remote: ClassVar[bool] = False

    # Defaults for subclasses whose __init__ does not call DockerScheduler.__init__.
    _client: DockerClient | None = None
    _owns_client: bool = True
    #: When each app was last described, in seconds since 1970.
    _described_at: Mapping[str, float] = MappingProxyType({})
    #: Time since which the engine does not answer (time.monotonic); None if it answers.
    _unreachable_since: float | None = None

    def __init__(self, session_name: str, docker_client: DockerClient | None = None) -> None:
        super().__init__("docker", session_name)
        self._client = docker_client
        self._owns_client = docker_client is None

    @property
    def _docker_client(self) -> DockerClient:
        if self._client is None:
            self._client = connect()
        return self._client

    def close(self) -> None:
        """Close the connection to the engine; apps continue."""
        if self._client is not None and self._owns_client:
            self._client.close()
            self._client = None

    # -- the request

    def _validate(self, app: AppDef, scheduler: str, cfg: Any = None) -> None:
        """Check that the engine can run an app; a role may lack a resource.

        Raises:
            RequestError: The engine cannot run the app.
        """
        if type(self)._submit_dryrun is not DockerScheduler._submit_dryrun:
            return  # The checks may not apply to the requests that a subclass makes.
        check(app, cfg if isinstance(cfg, DockerOpts) else DockerOpts.from_cfg(cfg or {}))

    def _submit_dryrun(self, app: AppDef, cfg: DockerOpts) -> AppDryRunInfo[DockerJob]:
        if type(self) is DockerScheduler:  # subclasses complete the roles afterwards
            check(app, cfg)
        return AppDryRunInfo(make_request(app, cfg), format_request)

    # -- submitting

    def lives_in_client(self, cfg: Mapping[str, CfgVal]) -> bool:
        """Return True: ``torchx run`` waits for the app and cancels it when interrupted.

        With ``torchx run --detach``, the engine runs the app to its end without this process.
        """
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
        built = self.build_pending(dryrun_info)
        cfg: Mapping[str, CfgVal] = dryrun_info.cfg or {}
        images = _images_to_pull(job, dryrun_info.app, built)
        pull = str(cfg.get("pull") or "always")
        start(self._docker_client, job, images, pull, bool(cfg.get("quiet")))
        return job.app_id

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the description of an app, or None if the engine has no container of it.

        While the engine does not answer, the state of an app that was described before is UNKNOWN,
        for at most :data:`~torchx_sched_docker.logs.PATIENCE` seconds: the engine may restart.

        Raises:
            BackendError: The engine does not answer, or refuses the request.
        """
        from torchx_sched_docker.describe import describe
        from torchx_sched_docker.logs import PATIENCE

        begun = time.time()
        try:
            found = describe(self._docker_client, app_id, self._get_app_state)
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

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Block until a container of an app changes.

        A change after the last :meth:`describe` of the app counts: then this returns at once.

        Args:
            app_id: The app's id.
            timeout: How long to block at most, in seconds; None means no limit.

        Returns:
            True.
        """
        since = self._described_at.get(app_id, time.time())
        wait_for_event(self._docker_client, app_id, since, timeout)
        return True

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the apps of all sessions that have containers on this engine."""
        with engine_errors("list apps"):
            summaries = self._docker_client.api.containers(
                all=True, filters={"label": LABEL_APP_ID}
            )
        states: dict[str, list[AppState]] = {}
        names: dict[str, str] = {}
        for summary in summaries:
            labels = summary["Labels"]
            app_id = labels[LABEL_APP_ID]
            states.setdefault(app_id, []).append(summary_state(summary))
            names[app_id] = labels.get(LABEL_APP_NAME, "")
        return [
            ListAppResponse(
                app_id,
                app_state(states[app_id]),
                f"local_docker://{self.session_name}/{app_id}",
                names[app_id],
            )
            for app_id in states
        ]

    def _cancel_existing(self, app_id: str) -> None:
        """Stop the containers that still run, and rename them, which marks them as cancelled."""
        from torchx_sched_docker.submit import in_parallel

        summaries = self._list_containers(app_id)
        in_parallel(
            self._cancel_container, [s for s in summaries if not is_terminal(summary_state(s))]
        )

    def _cancel_container(self, summary: Mapping[str, Any]) -> None:
        api, container, name = self._docker_client.api, summary["Id"], container_name(summary)
        try:
            with engine_errors(f"cancel the container {name}"):
                # Rename the container first: an observer of its end must see that it was cancelled.
                if not name.endswith(CANCELLED_SUFFIX):
                    api.rename(container, name + CANCELLED_SUFFIX)
                api.stop(container, timeout=GRACE)
        except EngineError as e:
            if e.status != 404:  # Another process deleted it.
                raise

    def delete(self, app_id: str) -> None:
        """Remove an app's containers, running or not, and its network.

        An unknown id is not an error.

        Raises:
            BackendError: The engine does not answer, or refuses the request.
        """
        from torchx_sched_docker.submit import remove_app

        remove_app(self._docker_client, app_id)

    def _delete_existing(self, app_id: str) -> None:
        self.delete(app_id)

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
        *,
        last: int | None = None,
        partial: bool = False,
    ) -> Iterable[str]:
        """Return the log lines of one replica, by default of both streams.

        A follower goes on through restarts of the replica and of the engine.
        The engine stores text when its line ends, or after 16 KB, so ``partial`` has no effect.

        Raises:
            UnknownAppException: The app does not exist.
            UnknownReplicaError: The app has no such role, or the role has no such replica.
        """
        from torchx_sched_docker.logs import STDERR, STDOUT, ContainerLog

        numbers = {Stream.STDOUT: {STDOUT}, Stream.STDERR: {STDERR}}
        log = ContainerLog(
            self._docker_client,
            self._container_id(app_id, role_name, k),
            frozenset(numbers.get(streams or Stream.COMBINED, {STDOUT, STDERR})),
            since,
            until,
        )
        lines: Iterable[str] = log.lines(should_tail, last)
        return filter_regex(regex, lines) if regex else lines

    # -- containers

    def _list_containers(self, app_id: str) -> Sequence[dict[str, Any]]:
        from torchx_sched_docker.describe import list_containers

        return list_containers(self._docker_client, app_id)

    def _container_id(self, app_id: str, role_name: str, k: int) -> str:
        ids: dict[str, dict[str, str]] = {}
        for summary in self._list_containers(app_id):
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

    def _get_container(self, app_id: str, role: str, replica_id: int) -> Container:
        container = self._container_id(app_id, role, replica_id)
        with engine_errors(f"inspect the container {container}"):
            return self._docker_client.containers.get(container)

    def _get_containers(self, app_id: str) -> Sequence[Container]:
        with engine_errors(f"list the containers of {app_id}"):
            found: Sequence[Container] = self._docker_client.containers.list(
                all=True, filters={"label": f"{LABEL_APP_ID}={app_id}"}
            )
        return found

    def _get_app_state(self, container: Container) -> AppState:
        state = (container.attrs or {}).get("State")
        code = state.get("ExitCode") if isinstance(state, Mapping) else None
        if container.status == "exited" and code is None:
            code = container.wait(timeout=10)["StatusCode"]
        return replica_state(container.status, code, container.name or "")


def _images_to_pull(job: DockerJob, app: AppDef | None, built: Mapping[str, str]) -> list[str]:
    """Return the images to pull: all except image ids and images that were built on this machine.

    Args:
        job: The containers.
        app: The app; metadata of its roles names the images that were built for them earlier.
        built: The images that were built for this submission.
    """
    local = set(built)
    for role in app.roles if app else ():
        workspace_build = role.metadata.get(METADATA_KEY)
        if isinstance(workspace_build, Mapping):
            local.add(str(workspace_build.get("image")))
    images = dict.fromkeys(container.image for container in job.containers)
    return [image for image in images if not image.startswith("sha256:") and image not in local]
