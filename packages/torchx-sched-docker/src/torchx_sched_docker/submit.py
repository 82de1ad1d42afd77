"""Start all containers of an app, or none."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from docker.models.containers import ContainerCollection
from docker.utils import parse_repository_tag

from torchx_kit.images.engine import engine_message
from torchx_kit.images.transfers import with_progress
from torchx_kit.jobs.submission import announce, withdraw
from torchx_kit.secrets import resolve_secrets, with_values
from torchx_sched_docker.client import EngineError, engine_errors, in_parallel, list_containers
from torchx_sched_docker.labels import LABEL_REQUEUE, LABEL_ROLE_NAME
from torchx_sched_docker.networks import create_app_network, remove_app_networks
from torchx_sched_docker.records import open_record, remove_records
from torchx_sched_docker.request import NOT_UTF8, DockerContainer, DockerJob, network_name
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers.request_checks import variable_problems

if TYPE_CHECKING:
    from docker.client import DockerClient

#: How long to wait between two queries of a network's containers, in seconds.
_POLL_INTERVAL = 0.01

logger = logging.getLogger(__name__)


def start(
    client: DockerClient,
    job: DockerJob,
    images: Iterable[str],
    pull: str,
    quiet: bool = False,
) -> None:
    """Create an app's network and containers, and start them; after a failure, remove all of these.

    Args:
        client: The client of the engine.
        job: The containers to start.
        images: The images to pull.
        pull: When to pull them: ``always``, only if the engine has no such image (``missing``), or
            ``never``.
        quiet: Whether to hide the progress of pulls.

    Raises:
        BackendError: The engine does not answer, or refuses a request.
    """
    submission = _Submission(client, job, quiet)
    try:
        submission.run(list(images), pull)
    except BaseException:
        submission.undo()
        raise


def with_secrets(job: DockerJob) -> DockerJob:
    """Return a job in which secrets replace the references to them; ``job`` is not changed.

    Raises:
        RequestError: A secret is missing, is not protected from other users, or cannot be sent to
            the engine (for example, it is not UTF-8).
    """
    environments: list[Any] = [c.kwargs.get("environment") or {} for c in job.containers]
    mappings = [env for env in environments if isinstance(env, dict)]
    secrets = resolve_secrets(mappings)
    if not secrets:
        return job
    containers = []
    for container, env in zip(job.containers, environments, strict=True):
        if isinstance(env, dict):
            env = with_values(env, secrets)
            problems = [p for item in env.items() for p in variable_problems(*item, NOT_UTF8)]
            if problems:
                raise RequestError(problems)
        containers.append(replace(container, kwargs={**container.kwargs, "environment": env}))
    return replace(job, containers=containers)


def remove_app(client: DockerClient, app_id: str) -> None:
    """Remove an app's containers, running or not, their anonymous volumes, its network and record.

    Raises:
        BackendError: The engine does not answer, or refuses a request.
    """

    def remove(container: str) -> None:
        try:
            with engine_errors(f"remove the container {container}"):
                client.api.remove_container(container, v=True, force=True)
        except EngineError as e:
            # 404: the container does not exist; 409: another process is removing it.
            if e.status not in (404, 409):
                raise

    found = list_containers(client, app_id)
    in_parallel(remove, [str(summary["Id"]) for summary in found])
    remove_app_networks(client, app_id)
    if any(LABEL_REQUEUE in summary["Labels"] for summary in found):
        remove_records(client, app_id)


class _Submission:
    """Creates and starts the containers of one app, and removes them again after a failure.

    A thread creates the network while others create containers. Most engines accept a container
    whose network does not exist yet, if the network exists when the container starts.
    """

    def __init__(self, client: DockerClient, job: DockerJob, quiet: bool) -> None:
        self._client = client
        self._job = job
        self._ids: dict[int, str] = {}
        self._containers = _ContainersWithoutInspect(client)
        self._network = ""
        self._new_volumes: set[str] = set()
        self._network_created: Future[None] = Future()
        self._is_interrupted = False
        self._quiet = quiet

    def run(self, images: list[str], pull: str) -> None:
        """Pull images, create the network and the containers, and start the containers.

        The first replica starts as soon as one container of each role exists, while the other
        containers are created. By then the engine has accepted a container of every role, and the
        replicas of a role hardly differ. The other replicas start once the first one is in the
        network, so that they can resolve its host name.
        """
        with ThreadPoolExecutor(2) as background:
            self._network_created = background.submit(self._create_network)
            self._find_new_volumes()
            if pull != "never":
                in_parallel(lambda image: self._pull(image, pull), images, self._interrupt)
            first_of_roles = _first_of_each_role(self._job.containers)
            awaited = set(map(id, first_of_roles))
            lock = threading.Lock()
            first_start: list[Future[None]] = []

            def create(container: DockerContainer) -> None:
                self._create(container)
                with lock:
                    awaited.discard(id(container))
                    if not awaited and not first_start:
                        first_start.append(background.submit(self._start_first, first_of_roles[0]))

            rest = [c for c in self._job.containers if id(c) not in awaited]
            announce(self._job.app_id)
            in_parallel(create, first_of_roles + rest)
            others = self._job.containers[1:]
            if others:
                self._wait_for_first(first_start)
            in_parallel(self._start, others)
            for call in first_start:
                call.result()

    def undo(self) -> None:
        """Remove the app's containers, network and new volumes; ignore errors of the engine."""
        with contextlib.suppress(BackendError):
            remove_app(self._client, self._job.app_id)
            withdraw()
        for name in self._new_volumes:
            # The engine refuses this if a container of another app has begun to use the volume.
            with contextlib.suppress(BackendError), engine_errors(f"remove the volume {name}"):
                self._client.api.remove_volume(name)

    def _create_network(self) -> None:
        if self._uses_own_network():
            self._network = create_app_network(self._client, self._job.app_id)

    def _interrupt(self) -> None:
        """End the pulls in other threads; the engine stops a pull whose client disconnects."""
        self._is_interrupted = True

    def _uses_own_network(self) -> bool:
        own = network_name(self._job.app_id)
        return any(container.kwargs.get("network") == own for container in self._job.containers)

    def _find_new_volumes(self) -> None:
        """Record the app's volumes that do not exist yet; the engine will create them."""
        named = set()
        for container in self._job.containers:
            mounts: Any = container.kwargs.get("mounts") or ()
            named |= {str(mount["Source"]) for mount in mounts if mount["Type"] == "volume"}
        if named:
            with engine_errors("list volumes"):
                present = self._client.api.volumes()["Volumes"] or ()
            self._new_volumes = named - {volume["Name"] for volume in present}

    def _pull(self, image: str, pull: str) -> None:
        """Pull an image; if that fails and the engine has the image, warn and use it."""
        is_present = self._has_image(image)
        if pull == "missing" and is_present:
            return
        try:
            self._pull_from_registry(image)
        except BackendError as e:
            if not is_present:
                raise BackendError(f"{e}; and the engine has no image of that name") from e
            logger.warning("%s; using the image that the engine has", e)

    def _pull_from_registry(self, image: str) -> None:
        repository, tag = parse_repository_tag(image)
        with engine_errors(f"pull the image {image}"):
            pulled = self._client.api.pull(
                repository, tag=tag or "latest", stream=True, decode=True
            )
            # Read all events: the connection can be reused only after the last event.
            errors = []
            for event in with_progress(image, pulled, self._quiet):
                if self._is_interrupted:
                    raise BackendError(f"the pull of the image {image} was interrupted")
                if "error" in event:
                    errors.append(str(event["error"]))
        if errors:
            raise EngineError(f"cannot pull the image {image}: {engine_message(errors[0])}")

    def _has_image(self, image: str) -> bool:
        try:
            with engine_errors(f"inspect the image {image}"):
                self._client.api.inspect_image(image)
        except EngineError as e:
            if e.status != 404:
                raise
            return False
        return True

    def _create(self, container: DockerContainer) -> None:
        network_may_be_missing = not self._network_created.done()
        try:
            self._create_once(container)
        except EngineError as e:
            # Some engines create a container only if its network exists.
            if not network_may_be_missing or e.status != 404:
                raise
            self._network_created.result()
            self._create_once(container)

    def _create_once(self, container: DockerContainer) -> None:
        kwargs: dict[str, Any] = dict(container.kwargs)
        network, hostname = kwargs.get("network"), kwargs.get("hostname")
        with engine_errors(f"create the container {kwargs.get('name', '')}"):
            if network and hostname and "networking_config" not in kwargs:
                # Cancelling renames the container; with this alias, its host name stays valid.
                endpoint = self._client.api.create_endpoint_config(aliases=[hostname])
                kwargs["networking_config"] = {network: endpoint}
            created = self._containers.create(
                container.image, container.command, detach=True, **kwargs
            )
        self._ids[id(container)] = str(created)

    def _start_first(self, container: DockerContainer) -> None:
        self._network_created.result()
        if LABEL_REQUEUE in _labels(container):
            open_record(self._client, self._ids[id(container)])
        self._start(container)

    def _wait_for_first(self, first_start: list[Future[None]]) -> None:
        """Wait until the first container is in the network, or its start request has returned.

        This method queries the network, because the engine does not answer queries about a
        container while it starts the container.
        """
        while not wait(first_start, timeout=_POLL_INTERVAL).done:
            with engine_errors(f"inspect the network {self._network}"):
                if self._network and self._client.api.inspect_network(self._network)["Containers"]:
                    return
        for call in first_start:
            call.result()

    def _start(self, container: DockerContainer) -> None:
        with engine_errors(f"start the container {container.kwargs.get('name', '')}"):
            self._client.api.start(self._ids[id(container)])


def _first_of_each_role(containers: list[DockerContainer]) -> list[DockerContainer]:
    firsts: dict[Any, DockerContainer] = {}
    for container in containers:
        firsts.setdefault(_labels(container).get(LABEL_ROLE_NAME), container)
    return list(firsts.values())


def _labels(container: DockerContainer) -> dict[str, str]:
    labels: Any = container.kwargs.get("labels")
    return labels or {}


class _ContainersWithoutInspect(ContainerCollection):  # type: ignore[misc]
    """A collection of containers whose ``create`` returns only the id of the new container.

    The docker library's ``create`` calls ``get``, which makes another request to inspect the
    container.
    """

    def get(self, container_id: str) -> str:
        return container_id
