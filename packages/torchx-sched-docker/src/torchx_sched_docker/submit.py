"""Starting an app's containers: all of them, or none."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from torchx_sched_docker.client import (
    engine_errors,
    is_status,
    make_network,
    networks_of,
    remove_network,
)
from torchx_sched_docker.labels import LABEL_APP_ID, LABEL_ROLE_NAME
from torchx_sched_docker.request import DockerContainer, DockerJob, network_name
from torchx_specs.errors import BackendError

if TYPE_CHECKING:
    from docker.client import DockerClient

#: How many requests the engine gets at the same time.
PARALLEL = 8
#: How long to wait before another look at a network, in seconds.
_LOOK_AGAIN = 0.01

T = TypeVar("T")


def start(client: DockerClient, job: DockerJob, images: Iterable[str], pull: str) -> None:
    """Makes an app's network and containers, and starts them; a failure leaves nothing behind.

    Args:
        client: of the engine
        job: what to start
        images: those of the job that may be fetched
        pull: when to: ``always``, ``missing`` or ``never``

    Raises:
        BackendError: the engine refuses
    """
    submission = _Submission(client, job)
    try:
        submission.run(list(images), pull)
    except BaseException:
        submission.undo()
        raise


def in_parallel(function: Callable[[T], object], items: Iterable[T]) -> None:
    """Calls ``function`` with each item; the first error is raised once all calls that have begun
    have ended."""
    items = list(items)
    if len(items) < 2:
        for item in items:
            function(item)
        return
    with ThreadPoolExecutor(min(PARALLEL, len(items))) as pool:
        calls = [pool.submit(function, item) for item in items]
        try:
            wait(calls, return_when=FIRST_EXCEPTION)
        finally:
            # what has not begun when one fails, or the user interrupts, need not begin
            pool.shutdown(cancel_futures=True)
    calls = [call for call in calls if not call.cancelled()]
    errors = [error for call in calls if (error := call.exception()) is not None]
    if errors:
        raise errors[0]


class _Submission:
    def __init__(self, client: DockerClient, job: DockerJob) -> None:
        self._client = client
        self._job = job
        self._created: dict[int, str] = {}
        self._containers = _containers(client)
        self._network = ""
        self._new_volumes: set[str] = set()
        self._making: Future[None] = Future()

    def run(self, images: list[str], pull: str) -> None:
        """Fetches images, makes the network and the containers, and starts these.

        The first replica starts as soon as one of each role could be made, while the others are
        made: what an engine refuses, it refuses to all replicas of a role. It is in the network
        before the others are started, so that they find its host.

        An image that cannot be fetched is used as it is, if it is here.
        """
        with ThreadPoolExecutor(2) as background:
            # containers name their network, which need not be there before they start
            self._making = background.submit(self._make_network)
            self._note_volumes()
            if pull != "never":
                in_parallel(lambda image: self._fetch(image, pull), images)
            heads = _first_of_each_role(self._job.containers)
            unmade = set(map(id, heads))
            lock = threading.Lock()
            started: list[Future[None]] = []

            def create(container: DockerContainer) -> None:
                self._create(container)
                with lock:
                    unmade.discard(id(container))
                    if not unmade and not started:
                        started.append(background.submit(self._start_first, heads[0]))

            in_parallel(create, heads + [c for c in self._job.containers if id(c) not in unmade])
            others = self._job.containers[1:]
            if others:
                self._wait_for_first(started)
            in_parallel(self._start, others)
            for call in started:
                call.result()

    def _start_first(self, container: DockerContainer) -> None:
        self._making.result()
        self._start(container)

    def _make_network(self) -> None:
        if self._uses_own_network():
            self._network = make_network(self._client, self._job.app_id)

    def _note_volumes(self) -> None:
        """Notes which of the volumes that the containers name the engine is going to make."""
        named = set()
        for container in self._job.containers:
            mounts: Any = container.kwargs.get("mounts") or ()
            named |= {str(mount["Source"]) for mount in mounts if mount["Type"] == "volume"}
        if named:
            with engine_errors("look for volumes"):
                present = self._client.api.volumes()["Volumes"] or ()
            self._new_volumes = named - {volume["Name"] for volume in present}

    def _fetch(self, image: str, pull: str) -> None:
        here = self._is_here(image)
        if pull == "missing" and here:
            return
        import docker.errors
        from docker.utils import parse_repository_tag

        repository, tag = parse_repository_tag(image)
        try:
            with engine_errors(f"fetch the image {image}"):
                events = self._client.api.pull(
                    repository, tag=tag or "latest", stream=True, decode=True
                )
                # to the end: only then is the connection free
                errors = [str(event["error"]) for event in events if "error" in event]
                if errors:
                    raise docker.errors.APIError(errors[0], explanation=errors[0])
        except BackendError as e:
            if not here:
                raise BackendError(f"{e}; and there is no image of that name here") from e
            import logging

            logging.getLogger(__name__).warning("%s; the one that is here is used", e)

    def _is_here(self, image: str) -> bool:
        import docker.errors

        with engine_errors(f"look for the image {image}"):
            try:
                self._client.api.inspect_image(image)
            except docker.errors.NotFound:
                return False
            return True

    def _wait_for_first(self, started: list[Future[None]]) -> None:
        """Waits until the first container is in the network, or its start has ended.

        The engine says nothing of a container that it is just starting, but of its network.
        """
        while not wait(started, timeout=_LOOK_AGAIN).done:
            with engine_errors(f"look at the network {self._network}"):
                if self._network and self._client.api.inspect_network(self._network)["Containers"]:
                    return
        for call in started:
            call.result()

    def _uses_own_network(self) -> bool:
        own = network_name(self._job.app_id)
        return any(container.kwargs.get("network") == own for container in self._job.containers)

    def _create(self, container: DockerContainer) -> None:
        early = not self._making.done()
        try:
            self._create_once(container)
        except BackendError as e:
            # an engine that wants the network to be there first
            if not early or not is_status(e, 404):
                raise
            self._making.result()
            self._create_once(container)

    def _create_once(self, container: DockerContainer) -> None:
        kwargs: dict[str, Any] = dict(container.kwargs)
        network, hostname = kwargs.get("network"), kwargs.get("hostname")
        with engine_errors(f"create the container {kwargs.get('name', '')}"):
            if network and hostname and "networking_config" not in kwargs:
                # the name may change (a cancelled container's does), this alias stays
                endpoint = self._client.api.create_endpoint_config(aliases=[hostname])
                kwargs["networking_config"] = {network: endpoint}
            created = self._containers.create(
                container.image, container.command, detach=True, **kwargs
            )
        self._created[id(container)] = str(created)

    def _start(self, container: DockerContainer) -> None:
        with engine_errors(f"start the container {container.kwargs.get('name', '')}"):
            self._client.api.start(self._created[id(container)])

    def undo(self) -> None:
        """Removes what was made, as far as the engine lets it."""
        with contextlib.suppress(BackendError):
            remove_app(self._client, self._job.app_id)
        for name in self._new_volumes:
            # not if somebody else uses it by now
            with contextlib.suppress(BackendError), engine_errors(f"remove the volume {name}"):
                self._client.api.remove_volume(name)


def _first_of_each_role(containers: list[DockerContainer]) -> list[DockerContainer]:
    found: dict[Any, DockerContainer] = {}
    for container in containers:
        labels: Any = container.kwargs.get("labels") or {}
        found.setdefault(labels.get(LABEL_ROLE_NAME), container)
    return list(found.values())


def _containers(client: DockerClient) -> Any:
    """Returns the library's containers, without the look it takes at each one it has made."""
    from docker.models.containers import ContainerCollection

    class Containers(ContainerCollection):  # type: ignore[misc]
        def get(self, container_id: str) -> str:
            return container_id

    return Containers(client)


def remove_app(client: DockerClient, app_id: str) -> None:
    """Removes an app's containers, running or not, with their volumes without a name, and its
    network.

    Raises:
        BackendError: the engine refuses
    """

    def remove(identity: str) -> None:
        import docker.errors

        with engine_errors(f"remove the container {identity}"):
            try:
                client.api.remove_container(identity, v=True, force=True)
            except docker.errors.NotFound:
                pass
            except docker.errors.APIError as e:
                # somebody else removes it just now
                if not is_status(e, 409):
                    raise

    with engine_errors(f"look for the containers of {app_id}"):
        found = client.api.containers(all=True, filters={"label": f"{LABEL_APP_ID}={app_id}"})
    in_parallel(remove, [str(summary["Id"]) for summary in found])
    for network in networks_of(client, app_id):
        remove_network(client, network)
