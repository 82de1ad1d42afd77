"""Find the images in a Docker Engine that TorchX built and nothing uses.

An image counts as built by TorchX only if it has the label :data:`~.image_config.LABEL_BASE`, if
TorchX made the newest entry of its history, and if one of its tags is a digest or it has no tags.
An image that a user derived from such an image inherits the label, but has another history.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from torchx_kit.times import datetime_of
from torchx_specs.errors import WorkspaceError
from torchx_specs.workspace.pruning import Prunable, PruneQuery
from torchx_workspace_docker.build_cache import used_at
from torchx_workspace_docker.engine.client import connect, engine_errors, find_image
from torchx_workspace_docker.engine.load import layers_of
from torchx_workspace_docker.image_config import CREATED_BY, LABEL_BASE, LABEL_WORKSPACE

if TYPE_CHECKING:
    from docker.client import DockerClient

#: The default of ``PruneQuery.older_than``, in seconds: more recently used images stay.
DEFAULT_AGE = 3600.0
#: The longest time between a submission's check of an image and the start of its containers, in
#: seconds. An image that was used within this time stays, even if the user sets a shorter age.
MIN_AGE = 600.0

#: A text in the last step of TorchX's ``docker build``, which sets labels. Some engines make one
#: step for each label.
_LABEL_STEP = f"LABEL {LABEL_BASE.partition('/')[0]}/"

_OWN_TAG = re.compile(r".+:[0-9a-f]{64}")


def unused_images(query: PruneQuery) -> Iterator[Prunable]:
    """Yield TorchX's images that were not used lately, except for the newest of each workspace.

    An image that must stay, for example because a container uses it, is yielded with the reason.

    Args:
        query: The user's request. With ``include_newest``, the newest images are yielded too.

    Raises:
        BackendError: The engine does not answer.
        WorkspaceError: The engine refuses a request.
    """
    try:
        client = connect()
    except WorkspaceError:
        return  # The docker library is not installed; without it, no image is built in an engine.
    with contextlib.closing(client), engine_errors("list images"):
        images = list(_all_images(client))
        own = [image for image in images if _is_own(client, image)]
        used = {str(container["ImageID"]) for container in client.api.containers(all=True)}
    age = max(MIN_AGE, DEFAULT_AGE if query.older_than is None else query.older_than)
    newest = set() if query.include_newest else {image.id for image in _newest(own)}
    removed = []
    for image in sorted(own, key=lambda image: -image.used):
        if image.id in newest or time.time() - image.used <= age:
            continue
        reason = _use_of(image, images, used)
        if reason:
            yield Prunable(image.name, None, None, image.used, reason)
        else:
            removed.append(image)
    remaining = {image.id: image for image in images}
    for image in removed:
        del remaining[image.id]
        size = image.size_without(remaining.values())
        yield Prunable(image.name, size, partial(_remove, image), image.used)


@dataclass(frozen=True)
class _Image:
    """An image of the engine.

    Args:
        id: The id.
        tags: The names with tags, such as ``python:3.12``.
        layers: The digests of the layers before compression.
        size: The size of all layers, in bytes.
        labels: The labels.
        used: When the image was built or used last, in seconds since 1970.
    """

    id: str
    tags: Sequence[str]
    layers: Sequence[str]
    size: int
    labels: Mapping[str, str]
    used: float

    @classmethod
    def from_engine(cls, data: Mapping[str, Any]) -> _Image:
        """Make an image from the engine's description."""
        tagged = (data.get("Metadata") or {}).get("LastTagTime")
        tags = sorted(tag for tag in data.get("RepoTags") or () if not tag.startswith("<none>"))
        return cls(
            str(data["Id"]),
            tags,
            layers_of(data),
            int(data.get("Size") or 0),
            dict((data.get("Config") or {}).get("Labels") or {}),
            max(_seconds(tagged), _seconds(data.get("Created")), *map(used_at, tags)),
        )

    @property
    def name(self) -> str:
        """A tag, preferably one that TorchX has set; the id if the image has no tags."""
        ordered = sorted(self.tags, key=lambda tag: _OWN_TAG.fullmatch(tag) is None)
        return ordered[0] if ordered else self.id

    def size_without(self, others: Iterable[_Image]) -> int | None:
        """Return the size of the layers that no other image has, in bytes; None if unknown.

        Args:
            others: The other images.
        """
        others = list(others)
        shared = max((_common(self.layers, other.layers) for other in others), default=0)
        if shared == len(self.layers):
            return 0
        if shared == 0:
            return self.size
        # The size of the shared layers is known if another image consists of exactly these layers.
        wholes = [other.size for other in others if list(other.layers) == self.layers[:shared]]
        return max(self.size - wholes[0], 0) if wholes else None


def _all_images(client: DockerClient) -> Iterator[_Image]:
    for summary in client.api.images():
        if found := find_image(client, summary["Id"]):  # Otherwise, it was removed meanwhile.
            yield _Image.from_engine(found)


def _is_own(client: DockerClient, image: _Image) -> bool:
    """Return True if TorchX built an image."""
    import docker.errors

    if LABEL_BASE not in image.labels:
        return False
    if image.tags and not any(map(_OWN_TAG.fullmatch, image.tags)):
        return False
    try:
        history = client.api.history(image.id)
    except docker.errors.NotFound:
        return False
    last = str(history[0].get("CreatedBy") or "") if history else ""
    return last == CREATED_BY or _LABEL_STEP in last


def _newest(images: Iterable[_Image]) -> Iterable[_Image]:
    """Return the newest tagged image of each workspace."""
    newest: dict[str, _Image] = {}
    for image in images:
        key = image.labels.get(LABEL_WORKSPACE) or image.labels[LABEL_BASE]
        if image.tags and (key not in newest or image.used > newest[key].used):
            newest[key] = image
    return newest.values()


def _use_of(image: _Image, images: Iterable[_Image], used: set[str]) -> str:
    """Return why an image must stay, or an empty string."""
    if image.id in used:
        return "a container uses it"
    foreign = [tag for tag in image.tags if not _OWN_TAG.fullmatch(tag)]
    if foreign:
        return f"it has the tag {foreign[0]} too"
    derived = [other.name for other in images if other.labels.get(LABEL_BASE) == image.id]
    return f"it is the base of {derived[0]}" if derived else ""


def _remove(image: _Image) -> None:
    """Remove an image and its tags.

    Raises:
        WorkspaceError: The image was used since it was found, or the engine refuses to remove it.
    """
    import docker.errors

    with contextlib.closing(connect()) as client, engine_errors(f"remove {image.name}"):
        data = find_image(client, image.id)
        if data is None:
            return
        current = _Image.from_engine(data)
        # A concurrent prune removes the tags one by one, and some engines record that as a use.
        is_being_removed = set(current.tags) < set(image.tags)
        if not is_being_removed and (current.used > image.used or current.tags != image.tags):
            raise WorkspaceError(f"{image.name} was not removed: it was just used")
        steps = _build_steps(client, data, image.labels[LABEL_BASE])
        # The engine refuses to remove an image that a container uses.
        for name in image.tags or [image.id]:
            try:
                client.api.remove_image(name, noprune=True)
            except docker.errors.APIError:
                if find_image(client, name):  # If not, another process has removed it.
                    raise
        for step in steps:
            with contextlib.suppress(docker.errors.APIError):  # Another image may need this step.
                client.api.remove_image(step, noprune=True)


def _build_steps(client: DockerClient, image: Mapping[str, Any], base: str) -> list[str]:
    """Return the ids of the images that ``docker build`` made between the base and the image."""
    steps: list[str] = []
    parent = str(image.get("Parent") or "")
    while parent and parent != base:
        data = find_image(client, parent)
        if data is None or data.get("RepoTags"):
            break
        steps.append(parent)
        parent = str(data.get("Parent") or "")
    return steps


def _common(some: Sequence[str], others: Sequence[str]) -> int:
    """Return how many items at the beginning of two sequences are equal."""
    equal = takewhile(lambda pair: pair[0] == pair[1], zip(some, others, strict=False))
    return sum(1 for _ in equal)


def _seconds(stamp: object) -> float:
    """Return an RFC 3339 time in seconds since 1970; 0 if it is missing or before 1970."""
    found = datetime_of(stamp)
    return 0.0 if found is None else found.timestamp()
