"""Load an image into a Docker Engine by sending only the new layer.

The layer has only the files that the previous build's image lacks, if there is such an image.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from torchx_kit.progress import Step
from torchx_workspace_docker.archive import tar_chunks, tar_header, tar_size
from torchx_workspace_docker.build_cache import recall, remember
from torchx_workspace_docker.builder import Plan, check_unchanged
from torchx_workspace_docker.engine.client import find_image, read_events
from torchx_workspace_docker.image_config import patched_config, working_folder
from torchx_workspace_docker.layer import LAYER_FORMAT, layer_contents
from torchx_workspace_docker.references import short_name

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


#: The smallest size of the blocks that are sent, except the last one, in bytes.
_BLOCK = 1 << 20
_BLOCKS_AHEAD = 4


def load_image(
    client: DockerClient,
    image: str,
    plan: Plan,
    base: Mapping[str, Any],
    increment: Increment,
    labels: Mapping[str, str],
    quiet: bool = False,
) -> str:
    """Load a new image into the engine by sending one layer, and return the image's id.

    Args:
        client: The client of the engine.
        image: The name of the new image.
        plan: The contents of the image.
        base: The engine's description of the base image.
        increment: The files of the layer, and the image to which it is added.
        labels: More labels of the image.
        quiet: Whether to hide the progress.

    Raises:
        WorkspaceError: The engine refuses the image, or the workspace has changed meanwhile.
    """
    archive = _image_archive(image, plan, base, increment, labels, quiet)
    for _ in read_events(f"load {image}", client.api.load_image(archive, quiet=True)):
        pass
    return str(client.api.inspect_image(image)["Id"])


def _image_archive(
    image: str,
    plan: Plan,
    base: Mapping[str, Any],
    increment: Increment,
    labels: Mapping[str, str],
    quiet: bool,
) -> Iterator[bytes]:
    """Yield an archive in the format of ``docker save`` that has only the new layer.

    The format is defined in
    https://github.com/moby/docker-image-spec/blob/main/spec.md#combined-image-json--filesystem-changeset-format.
    The engine skips layers that it already has.

    Raises:
        WorkspaceError: The workspace has changed since it was planned. The engine then ignores the
            incomplete archive.
    """
    root = working_folder(base.get("Config") or {})
    digest = hashlib.sha256()
    size = tar_size(increment.files, root)
    yield tar_header("layer.tar", size)

    def layer() -> Iterator[bytes]:
        for block in _blocks(tar_chunks(increment.files, root)):
            digest.update(block)
            yield block

    with Step(f"loading {short_name(image)}", size, quiet=quiet) as step:
        for block in _read_ahead(layer()):
            yield block
            step.advance(len(block))
    check_unchanged(plan)
    layers = [*layers_of(increment.parent), f"sha256:{digest.hexdigest()}"]
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    added = layers[len(layers_of(base)) :]
    config = patched_config(_config(base), added, str(base["Id"]), now, labels)
    manifest = [
        {
            "Config": "config.json",
            "RepoTags": [image],
            "Layers": [*(f"have-{i}" for i in range(len(layers) - 1)), "layer.tar"],
        }
    ]
    extra = {
        "config.json": json.dumps(config, sort_keys=True).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    # The layer's size is a multiple of tar's block size, so further members may follow.
    yield b"".join(tar_chunks((), "", extra))


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Join small chunks into blocks of at least :data:`_BLOCK` bytes; the last may be smaller."""
    block: list[bytes] = []
    size = 0
    for chunk in chunks:
        block.append(chunk)
        size += len(chunk)
        if size >= _BLOCK:
            yield b"".join(block)
            block, size = [], 0
    yield b"".join(block)


def _read_ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the blocks, while a thread prepares the next ones."""
    with ThreadPoolExecutor(1) as pool:
        pending = deque(pool.submit(next, blocks, None) for _ in range(_BLOCKS_AHEAD))
        try:
            while (block := pending.popleft().result()) is not None:
                pending.append(pool.submit(next, blocks, None))
                yield block
        finally:
            pool.shutdown(cancel_futures=True)


def _config(image: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the engine's description of an image to an image configuration."""
    layers = layers_of(image)
    return {
        "architecture": image.get("Architecture") or "amd64",
        "os": image.get("Os") or "linux",
        "config": dict(image.get("Config") or {}),
        "created": image.get("Created"),
        "rootfs": {"type": "layers", "diff_ids": layers},
        "history": [{"created_by": "base"} for _ in layers],
    }
