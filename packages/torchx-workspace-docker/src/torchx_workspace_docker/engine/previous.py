"""Find the image that the previous build of a workspace made, to add only changed files to it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchx_workspace_docker.build_cache import recall, remember
from torchx_workspace_docker.engine.client import find_image
from torchx_workspace_docker.layer import LAYER_FORMAT, layer_contents
from torchx_workspace_docker.plan import Plan

if TYPE_CHECKING:
    from docker.client import DockerClient

    from torchx_kit.workspace import WorkspaceFile

#: Maximum number of layers on top of the base; a build after that starts again with one layer.
_MAX_LAYERS = 20
#: Add only the changed files if the workspace is at least this many times as large as these files.
_MIN_RATIO = 4


@dataclass(frozen=True)
class Increment:
    """The files of a new image, and the image to which they are added.

    Args:
        parent: The engine's description of the base image, or of the workspace's previous image.
        files: The files that ``parent`` lacks, or has with other contents.
        key: The cache key under which the workspace's last image is recorded.
        contents: For each path of the workspace, the text that :func:`layer_contents` returns.
    """

    parent: Mapping[str, Any]
    files: Sequence[WorkspaceFile]
    key: str
    contents: Mapping[str, str]

    def remember(self, image: str) -> None:
        """Write the id of the new image to the cache, so that the next build can add to it."""
        remember("images", self.key, {"image": image, "content": dict(self.contents)})


def plan_increment(
    client: DockerClient, plan: Plan, base: Mapping[str, Any], workspace: str
) -> Increment:
    """Return the files of the new image, and the image to which they are added.

    Changed files are added to the workspace's previous image. If that image cannot be used, all
    files are added to the base image.

    Args:
        client: The client of the engine.
        plan: The contents of the new image.
        base: The engine's description of the base image.
        workspace: The workspace as a text; part of the cache key.
    """
    contents = layer_contents(plan.files, plan.digests)
    key = json.dumps([LAYER_FORMAT, str(base["Id"]), workspace])
    parent, files = _previous_image(client, key, base, plan.files, contents) or (base, plan.files)
    return Increment(parent, files, key, contents)


def workspace_key(base: str, workspace: str) -> str:
    """Return the value of the label :data:`~.image_config.LABEL_WORKSPACE`.

    Args:
        base: The name of the base image.
        workspace: The workspace as a text.
    """
    text = f"{base}\n{os.path.abspath(os.path.expanduser(workspace))}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def layers_of(image: Mapping[str, Any]) -> list[str]:
    """Return the digests of an image's layers before compression."""
    return list(image["RootFS"].get("Layers") or [])


def _previous_image(
    client: DockerClient,
    key: str,
    base: Mapping[str, Any],
    files: Sequence[WorkspaceFile],
    contents: Mapping[str, str],
) -> tuple[dict[str, Any], Sequence[WorkspaceFile]] | None:
    """Return the workspace's previous image, and the files that differ from it.

    Return None if there is no such image, if many bytes have changed, or if the image has
    :data:`_MAX_LAYERS` layers already. Return None also if a file was removed from the workspace:
    the base image may have a file of the same name, which would have to reappear.
    """
    cached = recall("images", key)
    if cached is None or not cached["content"].keys() <= contents.keys():
        return None
    previous = find_image(client, cached["image"])
    if previous is None:
        return None
    changed = [
        entry for entry in files if cached["content"].get(entry.path) != contents[entry.path]
    ]
    total, size = (sum(entry.size for entry in some) for some in (files, changed))
    added_layers = len(layers_of(previous)) - len(layers_of(base))
    if added_layers >= _MAX_LAYERS or size * _MIN_RATIO > total:
        return None
    return previous, changed
