"""``local_docker``: apps as containers of a Docker Engine, each replica one.

The engine remembers everything: any process that reaches it can describe, follow, cancel and delete
an app. The containers of an app share a network of their own, in which each is reached by its name.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torchx_kit.workspace.mixin import BuilderWorkspaceMixin
from torchx_sched_docker.client import NoEngineError, connect, engine_errors
from torchx_sched_docker.client import ensure_network as ensure_network
from torchx_sched_docker.client import has_docker as has_docker
from torchx_sched_docker.labels import LABEL_APP_ID as LABEL_APP_ID
from torchx_sched_docker.labels import LABEL_APP_NAME as LABEL_APP_NAME
from torchx_sched_docker.labels import LABEL_REPLICA_ID as LABEL_REPLICA_ID
from torchx_sched_docker.labels import LABEL_ROLE_NAME as LABEL_ROLE_NAME
from torchx_sched_docker.labels import LABEL_VERSION as LABEL_VERSION
from torchx_sched_docker.options import DockerOpts as DockerOpts
from torchx_sched_docker.request import NETWORK as NETWORK
from torchx_sched_docker.request import DockerContainer as DockerContainer
from torchx_sched_docker.request import DockerJob as DockerJob
from torchx_sched_docker.request import check, format_request, make_request
from torchx_sched_docker.states import CANCELLED_SUFFIX
from torchx_sched_docker.states import CONTAINER_STATE as CONTAINER_STATE
from torchx_specs.errors import RequestError, UnknownAppException, nearest
from torchx_specs.model.app import AppDef
from torchx_specs.model.dryrun import AppDryRunInfo
from torchx_specs.model.status import AppState, is_terminal
from torchx_specs.options.run_options import CfgVal
from torchx_specs.schedulers.api import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    Stream,
    filter_regex,
)
from torchx_specs.workspace.builder import METADATA_KEY, BuilderOutput

if TYPE_CHECKING:
    from datetime import datetime
    from typing import ClassVar

    from docker.client import DockerClient
    from docker.models.containers import Container

Opts = DockerOpts

#: How long a container that is cancelled may take to end by itself, in seconds.
GRACE = 10


class UnknownReplicaError(RequestError, RuntimeError):
    """The app has no such role or replica."""


def create_scheduler(session_name: str, **kwargs: Any) -> DockerScheduler:
    """Returns a scheduler; parameters of other schedulers are ignored."""
    return DockerScheduler(session_name)


def _to_str(a: str | bytes) -> str:
    """Returns bytes of UTF-8 as text, and text as it is."""
    return a.decode("utf-8") if isinstance(a, bytes) else a


class DockerScheduler(BuilderWorkspaceMixin, Scheduler[DockerOpts]):
    """Runs apps as containers of a Docker Engine (``DOCKER_HOST``, or the one of this machine).

    Args:
        session_name: the session, part of the handles
        docker_client: a client to use instead of one made from the environment
    """

    default_workspace_type: ClassVar[str] = "docker"
    workspace_outputs: ClassVar[frozenset[BuilderOutput]] = frozenset({"image"})
    workspace_remote: ClassVar[bool] = False

    #: The client, made when first needed; a default, for subclasses with an ``__init__`` of their
    #: own.
    _client: DockerClient | None = None
    _owns_client: bool = True
    #: When each app was last seen, in seconds since 1970.
    _looked_at: Mapping[str, float] = MappingProxyType({})
    #: Since when the engine is away, by the monotonic clock.
    _lost_at: float | None = None

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
        """Closes the connection; apps run on."""
        if self._client is not None and self._owns_client:
            self._client.close()
            self._client = None

    # -- the request

    def _validate(self, app: AppDef, scheduler: str, cfg: Any = None) -> None:
        """Checks an app; none needs a resource here.

        Raises:
            RequestError: the engine could not run it
        """
        if type(self)._submit_dryrun is not DockerScheduler._submit_dryrun:
            return  # a client's subclass makes requests of its own, with images from elsewhere
        check(app, cfg if isinstance(cfg, DockerOpts) else DockerOpts.from_cfg(cfg or {}))

    def _submit_dryrun(self, app: AppDef, cfg: DockerOpts) -> AppDryRunInfo[DockerJob]:
        return AppDryRunInfo(make_request(app, cfg), format_request)

    # -- submitting

    def lives_in_client(self, cfg: Mapping[str, CfgVal]) -> bool:
        """Return True: ``torchx run`` waits for the app and cancels it when interrupted.

        The engine would run the app to its end without this process, which ``torchx run --detach``
        allows.
        """
        return True

    def schedule(self, dryrun_info: AppDryRunInfo[DockerJob]) -> str:
        """Starts the containers of an app and returns its id.

        Raises:
            BackendError: the engine does not answer, or refuses; nothing is left of the app
            WorkspaceError: its workspace cannot be built
        """
        from torchx_sched_docker.submit import start

        built = self.build_pending(dryrun_info)
        job = dryrun_info.request
        pull = str(dryrun_info.cfg.get("pull") or "always") if dryrun_info.cfg else "always"
        start(self._docker_client, job, _to_fetch(job, dryrun_info.app, built), pull)
        return job.app_id

    # -- submitted apps

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Returns what the engine knows of an app, None if nothing.

        While the engine is away, perhaps to start again, the state of an app that was seen before
        is UNKNOWN; once that has lasted for long, it is an error.
        """
        from torchx_sched_docker.describe import describe
        from torchx_sched_docker.logs import PATIENCE

        begun = time.time()
        try:
            found = describe(self._docker_client, app_id, self._get_app_state)
        except NoEngineError as e:
            if self._lost_at is None:
                self._lost_at = time.monotonic()
            if app_id not in self._looked_at or time.monotonic() - self._lost_at > PATIENCE:
                raise
            return DescribeAppResponse(app_id, AppState.UNKNOWN, msg=str(e))
        self._lost_at = None
        if found is not None:
            self._looked_at = {**self._looked_at, app_id: begun}
        return found

    def wait(self, app_id: str, timeout: float | None = None) -> bool:
        """Returns when a container of an app has changed since the app was last described, after
        ``timeout`` seconds at the latest.

        Args:
            app_id: the app
            timeout: in seconds, None for no limit
        """
        from torchx_sched_docker.events import wait_for_event

        since = self._looked_at.get(app_id, time.time())
        wait_for_event(self._docker_client, app_id, since, timeout)
        return True

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Returns the apps of all sessions that this engine has containers of."""
        from torchx_sched_docker.states import app_state, summary_state

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
        """Ends the containers that have not ended; they stay, named as cancelled."""
        from torchx_sched_docker.states import summary_state
        from torchx_sched_docker.submit import in_parallel

        in_parallel(
            self._cancel_container,
            [s for s in self._summaries(app_id) if not is_terminal(summary_state(s))],
        )

    def _cancel_container(self, summary: Mapping[str, Any]) -> None:
        import docker.errors

        from torchx_sched_docker.states import name_of

        api, identity, name = self._docker_client.api, summary["Id"], name_of(summary)
        with engine_errors(f"cancel the container {name}"):
            try:
                # first the name: whoever sees that it has ended must see why
                if not name.endswith(CANCELLED_SUFFIX):
                    api.rename(identity, name + CANCELLED_SUFFIX)
                api.stop(identity, timeout=GRACE)
            except docker.errors.NotFound:
                pass  # deleted meanwhile

    def delete(self, app_id: str) -> None:
        """Removes an app's containers, running or not, and its network; does nothing if there is
        none of that id.
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
    ) -> Iterable[str]:
        """Returns the log lines of one replica, of both outputs unless ``streams`` names one.

        A follower sees a replica through its restarts, and through those of the engine.

        Raises:
            UnknownAppException: there is no such app
            RequestError: it has no such role or replica (also a RuntimeError)
        """
        from torchx_sched_docker.logs import STDERR, STDOUT, ContainerLog

        outputs = {Stream.STDOUT: {STDOUT}, Stream.STDERR: {STDERR}}
        log = ContainerLog(
            self._docker_client,
            self._find(app_id, role_name, k)["Id"],
            frozenset(outputs.get(streams or Stream.COMBINED, {STDOUT, STDERR})),
            since,
            until,
        )
        lines: Iterable[str] = log.lines(follow=should_tail)
        return filter_regex(regex, lines) if regex else lines

    # -- containers

    def _summaries(self, app_id: str) -> Sequence[dict[str, Any]]:
        from torchx_sched_docker.describe import summaries

        return summaries(self._docker_client, app_id)

    def _find(self, app_id: str, role_name: str, k: int) -> dict[str, Any]:
        found = self._summaries(app_id)
        if not found:
            raise UnknownAppException(f"local_docker://{self.session_name}/{app_id}")
        of_role = [s for s in found if s["Labels"].get(LABEL_ROLE_NAME) == role_name]
        for summary in of_role:
            if summary["Labels"].get(LABEL_REPLICA_ID) == str(k):
                return summary
        if of_role:
            raise UnknownReplicaError(
                f"role '{role_name}' of {app_id} has no replica {k}, it has {len(of_role)}"
            )
        roles = sorted({str(s["Labels"].get(LABEL_ROLE_NAME)) for s in found})
        raise UnknownReplicaError(
            f"{app_id} has no role '{role_name}';{nearest(role_name, roles)}"
            f" roles: {', '.join(roles)}"
        )

    def _get_container(self, app_id: str, role: str, replica_id: int) -> Container:
        identity = self._find(app_id, role, replica_id)["Id"]
        with engine_errors(f"look at the container {identity}"):
            return self._docker_client.containers.get(identity)

    def _get_containers(self, app_id: str) -> Sequence[Container]:
        with engine_errors(f"look for the containers of {app_id}"):
            found: Sequence[Container] = self._docker_client.containers.list(
                all=True, filters={"label": f"{LABEL_APP_ID}={app_id}"}
            )
        return found

    def _get_app_state(self, container: Container) -> AppState:
        """Returns the state of a container's replica."""
        from torchx_sched_docker.states import replica_state

        state = (container.attrs or {}).get("State")
        code = state.get("ExitCode") if isinstance(state, Mapping) else None
        if container.status == "exited" and code is None:
            code = container.wait(timeout=10)["StatusCode"]
        return replica_state(container.status, code, container.name or "")


def _to_fetch(job: DockerJob, app: AppDef | None, built: Mapping[str, str]) -> list[str]:
    """Returns the images that a registry may have: neither ids nor what was built here."""
    local = set(built)
    for role in app.roles if app else ():
        note = role.metadata.get(METADATA_KEY)
        if isinstance(note, Mapping):
            local.add(str(note.get("image")))
    images = dict.fromkeys(container.image for container in job.containers)
    return [image for image in images if not image.startswith("sha256:") and image not in local]
