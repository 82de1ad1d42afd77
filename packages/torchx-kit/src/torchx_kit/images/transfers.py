"""Transfers of a Docker Engine: pulls of images, and the progress of pulls and pushes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from torchx_kit.images.engine import EngineError, engine_errors, engine_message, find_image
from torchx_kit.progress import Step
from torchx_specs.errors import BackendError, WorkspaceError

if TYPE_CHECKING:
    from docker.client import DockerClient

logger = logging.getLogger(__name__)

#: Maps the status of a layer in the engine's events to the first word of the step's name.
_STEPS = {"Downloading": "pulling", "Extracting": "extracting", "Pushing": "pushing"}
#: Maps each step to the statuses of a layer whose bytes were all transferred or extracted.
_FINISHED = {
    "pulling": ("Verifying Checksum", "Download complete", "Extracting", "Pull complete"),
    "extracting": ("Pull complete",),
    "pushing": ("Pushed",),
}


def with_progress(
    image: str, events: Iterable[Mapping[str, Any]], quiet: bool = False
) -> Generator[Mapping[str, Any], None, None]:
    """Yield the events of a pull or push, and report the bytes of all layers together.

    The engine reports the size of one layer after the other, so the total may grow.

    Args:
        image: Name of the image, which the progress shows.
        events: The engine's events.
        quiet: If True, report no progress.
    """
    steps: dict[str, Step] = {}
    layers: dict[str, dict[str, tuple[int, int]]] = {}
    with ExitStack() as stack:
        for event in events:
            status, layer = str(event.get("status") or ""), str(event.get("id") or "")
            kind = _STEPS.get(status)
            detail = event.get("progressDetail") or {}
            if kind is not None and detail.get("total"):
                total = int(detail["total"])
                layers.setdefault(kind, {})[layer] = (min(int(detail["current"]), total), total)
            for name, sizes in layers.items():
                if layer in sizes and status in _FINISHED[name]:
                    sizes[layer] = (sizes[layer][1], sizes[layer][1])
                if name not in steps:
                    steps[name] = stack.enter_context(Step(f"{name} {image}", quiet=quiet))
                if layer in sizes:
                    done, whole = (sum(part) for part in zip(*sizes.values(), strict=True))
                    steps[name].set(done, whole)
            yield event


def pull_image(
    client: DockerClient,
    image: str,
    policy: str,
    *,
    quiet: bool = False,
    login: Callable[[str], dict[str, str] | None] = lambda image: None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> dict[str, Any] | None:
    """Pull an image if the policy requires it, and return the engine's description of the image.

    If the pull fails and the engine has the image, warn and use it. The id of an image is never
    pulled.

    Args:
        client: The client of the engine.
        image: The name or id of the image.
        policy: When to pull: ``always``, only if the engine does not have the image (``missing``),
            or ``never``.
        quiet: Whether to report no progress.
        login: Returns the credentials for an image; None means those of ``docker login``.
        is_interrupted: Whether to end the pull, which the engine stops if its client disconnects.

    Returns:
        The description; None if the engine does not have the image, and no pull was required.

    Raises:
        EngineError: The pull failed, and the engine does not have the image.
        BackendError: The engine does not answer, or refuses a request.
    """
    from docker.utils import parse_repository_tag

    with engine_errors(f"inspect the image {image}"):
        found = find_image(client, image)
    if policy == "never" or image.startswith("sha256:") or (policy == "missing" and found):
        return found
    repository, tag = parse_repository_tag(image)
    try:
        with engine_errors(f"pull the image {image}"):
            events = client.api.pull(
                repository,
                tag=tag or "latest",
                stream=True,
                decode=True,
                auth_config=login(image),
            )
            errors = []
            # Read all events: the connection can be reused only after the last event.
            for event in with_progress(image, events, quiet):
                if is_interrupted():
                    raise BackendError(f"the pull of the image {image} was interrupted")
                if "error" in event:
                    errors.append(engine_message(event["error"]))
        if errors:
            raise EngineError(f"cannot pull the image {image}: {errors[0]}")
    except (BackendError, WorkspaceError) as e:
        if found is None:
            raise EngineError(f"{e}; and the engine has no image of that name") from e
        logger.warning("%s; using the image that the engine has", e)
        return found
    with engine_errors(f"inspect the image {image}"):
        return find_image(client, image)
