"""Start all containers of an app, or none."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from docker.client import DockerClient
from docker.models.containers import ContainerCollection

from torchx_kit.images.transfers import pull_image
from torchx_kit.jobs.submission import announce, withdraw
from torchx_kit.secrets import resolve_secrets, with_values
from torchx_sched_docker.client import (
    create_app_network,
    engine_errors,
    ignoring,
    in_parallel,
    list_containers,
    remove_app_networks,
)
from torchx_sched_docker.labels import LABEL_REQUEUE
from torchx_sched_docker.records import open_record, remove_records
from torchx_sched_docker.request import NOT_UTF8, DockerContainer, DockerJob, network_name
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers.request_checks import variable_problems


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
    new_volumes = _find_new_volumes(client, job)
    interrupted = threading.Event()
    try:
        if pull != "never":

            def pull_one(image: str) -> None:
                pull_image(client, image, pull, quiet=quiet, is_interrupted=interrupted.is_set)

            in_parallel(pull_one, images, interrupted.set)
        with ThreadPoolExecutor(1) as background:
            network = background.submit(_create_network, client, job)
            announce(job.app_id)
            ids = in_parallel(lambda container: _create(client, container, network), job.containers)
            network.result()
        if any(LABEL_REQUEUE in (one.kwargs.get("labels") or {}) for one in job.containers):
            open_record(client, ids[0])
        # The first replica starts before the others, which may resolve its host name.
        in_parallel(lambda identity: _start(client, identity), ids[:1])
        in_parallel(lambda identity: _start(client, identity), ids[1:])
    except BaseException:
        with contextlib.suppress(BackendError):
            remove_app(client, job.app_id)
            withdraw()
        for name in new_volumes:
            # The engine refuses this if a container of another app has begun to use the volume.
            with contextlib.suppress(BackendError), engine_errors(f"remove the volume {name}"):
                client.api.remove_volume(name)
        raise


def with_secrets(job: DockerJob) -> DockerJob:
    """Return a job in which secrets replace the references to them; ``job`` is not changed.

    Raises:
        RequestError: A secret is missing, is not protected from other users, or cannot be sent to
            the engine (for example, it is not UTF-8).
    """
    environments = [c.kwargs.get("environment") or {} for c in job.containers]
    secrets = resolve_secrets(env for env in environments if isinstance(env, dict))
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
        with ignoring(404, 409), engine_errors(f"remove the container {container}"):
            client.api.remove_container(container, v=True, force=True)

    found = list_containers(client, app_id)
    in_parallel(remove, [str(summary["Id"]) for summary in found])
    remove_app_networks(client, app_id)
    if any(LABEL_REQUEUE in summary["Labels"] for summary in found):
        remove_records(client, app_id)


def _find_new_volumes(client: DockerClient, job: DockerJob) -> set[str]:
    """Return the app's volumes that do not exist yet; the engine will create them."""
    named = set()
    for container in job.containers:
        mounts = container.kwargs.get("mounts") or ()
        named |= {str(mount["Source"]) for mount in mounts if mount["Type"] == "volume"}
    if not named:
        return named
    with engine_errors("list volumes"):
        present = client.api.volumes()["Volumes"] or ()
    return named - {volume["Name"] for volume in present}


def _create_network(client: DockerClient, job: DockerJob) -> None:
    own = network_name(job.app_id)
    if any(container.kwargs.get("network") == own for container in job.containers):
        create_app_network(client, job.app_id)


def _create(client: DockerClient, container: DockerContainer, network: Future[None]) -> str:
    """Create a container while its network is created, and return the container's id."""
    if not network.done():
        # Some engines create a container only if its network exists.
        with ignoring(404):
            return _create_once(client, container)
        network.result()
    return _create_once(client, container)


def _create_once(client: DockerClient, container: DockerContainer) -> str:
    kwargs = dict(container.kwargs)
    network, hostname = kwargs.get("network"), kwargs.get("hostname")
    with engine_errors(f"create the container {kwargs.get('name', '')}"):
        if network and hostname and "networking_config" not in kwargs:
            # Cancelling renames the container; with this alias, its host name stays valid.
            endpoint = client.api.create_endpoint_config(aliases=[hostname])
            kwargs["networking_config"] = {network: endpoint}
        containers = _ContainersWithoutInspect(client)
        return str(containers.create(container.image, container.command, detach=True, **kwargs))


def _start(client: DockerClient, container: str) -> None:
    with engine_errors(f"start the container {container}"):
        client.api.start(container)


class _ContainersWithoutInspect(ContainerCollection):  # type: ignore[misc]
    """A collection of containers whose ``create`` returns only the id of the new container.

    The docker library's ``create`` calls ``get``, which makes another request to inspect the
    container.
    """

    def get(self, container_id: str) -> str:
        return container_id
