"""Images made without a Docker Engine: a layer is added to what a registry has."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any

from torchx_kit.workspace import WorkspaceFile
from torchx_specs.errors import WorkspaceError
from torchx_specs.options.run_options import CfgVal
from torchx_workspace_docker.build_cache import recall, remember
from torchx_workspace_docker.builder import Plan, check_unchanged, log
from torchx_workspace_docker.image_config import LABEL_BASE, patched_config, working_folder
from torchx_workspace_docker.layer import (
    LAYER_FORMAT,
    Layer,
    layer_folder,
    layers_of,
    listing,
    make_layer,
    remove_folder,
)
from torchx_workspace_docker.progress import Progress
from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry.client import DOCKER_MANIFEST, INDEX_TYPES, Registry

_LAYER_TYPES = {
    DOCKER_MANIFEST: "application/vnd.docker.image.rootfs.diff.tar.gzip",
}
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "AMD64": "amd64"}
#: In many images these are links into /usr, which a folder of that name would replace.
_LINKED = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libx32"})


def build_in_registry(image: str, plan: Plan, cfg: Mapping[str, CfgVal]) -> str:
    """Makes an image in its registry, unless it is there and its base is still the same.

    Returns:
        the digest of its manifest

    Raises:
        WorkspaceError: the base image cannot be found, or a registry fails; then nothing is tagged
    """
    target, base = Reference.parse(image), Reference.parse(plan.base)
    if plan.base.startswith("sha256:"):
        raise WorkspaceError(
            f"{plan.base[:19]}... is an image of a Docker Engine: name one that a registry has"
        )
    destination = _registry(target, cfg)
    source = destination if base.registry == target.registry else _registry(base, cfg)
    manifest, media_type, digest, chosen = _base_manifest(source, base)
    found = _existing(destination, target, digest)
    if found:
        log().info("%s is there already", image)
        return found
    config = source.json_blob(base.repository, manifest["config"]["digest"])
    if not chosen:
        _check_platform(base, config)
    folder = layer_folder()
    try:
        with Progress(image, bool(cfg.get("quiet"))) as progress:
            root = working_folder(config.get("config") or {})
            _check_links(root, plan)
            for blob in manifest["layers"]:
                _carry(source, base, destination, target, blob, folder, progress)
            layers: dict[str, Layer] = {}
            for files in layers_of(plan.files):
                key = _layer_key(root, listing(files, plan.digests))
                layers[key] = _add_layer(destination, target, key, files, root, folder, progress)
            check_unchanged(plan)
        for key, layer in layers.items():
            what = {"digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
            remember("layers", key, what)
        patched = patched_config(config, [layer.diff_id for layer in layers.values()], digest)
        return _finish(destination, target, manifest, media_type, patched, layers.values())
    finally:
        remove_folder(folder)


def _registry(reference: Reference, cfg: Mapping[str, CfgVal]) -> Registry:
    insecure = cfg.get("insecure_registries")
    told = isinstance(insecure, (list, tuple)) and reference.registry in insecure
    return Registry(reference, insecure=told)


def wanted_platform() -> tuple[str, str]:
    """Returns system and architecture of images: ``DOCKER_DEFAULT_PLATFORM``, or this machine's."""
    given = os.environ.get("DOCKER_DEFAULT_PLATFORM", "")
    system, _, rest = given.partition("/")
    machine = platform.machine()
    return system or "linux", rest.partition("/")[0] or _ARCHITECTURES.get(machine, machine)


def _base_manifest(source: Registry, base: Reference) -> tuple[dict[str, Any], str, str, bool]:
    """Returns manifest, its media type and digest, and whether it was chosen among several."""
    found = source.manifest(base.repository, base.version)
    if found is None:
        raise WorkspaceError(f"there is no image {base} for the workspace to be added to")
    data, media_type, digest = found
    content: dict[str, Any] = json.loads(data)
    if media_type in INDEX_TYPES or "manifests" in content:
        system, architecture = wanted_platform()
        offered = [entry.get("platform") or {} for entry in content["manifests"]]
        for entry, has in zip(content["manifests"], offered, strict=True):
            if (has.get("os"), has.get("architecture")) == (system, architecture):
                found = source.manifest(base.repository, entry["digest"])
                if found is not None:
                    data, media_type, digest = found
                    return json.loads(data), media_type, digest, True
        have = ", ".join(sorted({f"{has.get('os')}/{has.get('architecture')}" for has in offered}))
        raise WorkspaceError(
            f"{base} is not for {system}/{architecture}, only for {have};"
            " DOCKER_DEFAULT_PLATFORM says which is wanted"
        )
    if "config" not in content or "layers" not in content:
        raise WorkspaceError(f"{base} is no image that a layer can be added to ({media_type})")
    return content, media_type, digest, False


def _check_platform(base: Reference, config: Mapping[str, Any]) -> None:
    """Checks that an image is for the platform that was asked for; unasked, any will do: nobody
    knows here where the job runs.
    """
    if not os.environ.get("DOCKER_DEFAULT_PLATFORM"):
        return
    has = (str(config.get("os")), str(config.get("architecture")))
    if has != wanted_platform():
        raise WorkspaceError(
            f"{base} is not for {'/'.join(wanted_platform())}, only for {'/'.join(has)};"
            " DOCKER_DEFAULT_PLATFORM says which is wanted"
        )


def _existing(destination: Registry, target: Reference, base_digest: str) -> str:
    """Returns the digest of what was made before, empty if it is not there or its base is old."""
    found = destination.manifest(target.repository, target.version)
    if found is None:
        return ""
    data, _, digest = found
    config = destination.json_blob(target.repository, json.loads(data)["config"]["digest"])
    labels = (config.get("config") or {}).get("Labels") or {}
    return digest if labels.get(LABEL_BASE) == base_digest else ""


def _check_links(root: str, plan: Plan) -> None:
    if root != "/":
        return
    tops = {entry.path.partition("/")[0] for entry in plan.files if "/" in entry.path}
    clash = sorted(tops & _LINKED)
    if clash:
        raise WorkspaceError(
            f"the workspace has a folder '{clash[0]}', and {plan.base} starts in /, where that may"
            " be the system's: give the image a WORKDIR, or map the workspace to a folder"
        )


def _carry(
    source: Registry,
    base: Reference,
    destination: Registry,
    target: Reference,
    blob: Mapping[str, Any],
    folder: str,
    progress: Progress,
) -> None:
    """Sees to it that the target's repository has a layer of the base."""
    digest, size = str(blob["digest"]), int(blob["size"])
    if destination.has_blob(target.repository, digest):
        return
    if source is destination and destination.mount(target.repository, digest, base.repository):
        return
    path = os.path.join(folder, "base-layer")
    try:
        with open(path, "wb+") as file:
            source.download(base.repository, digest, file)
            progress.begin("copying a layer of the base", size)
            destination.upload(target.repository, digest, size, file, progress.advance)
    except OSError as e:
        raise WorkspaceError(
            f"cannot write {path}: {e.strerror or e}; TMPDIR says where it goes"
        ) from None


def _layer_key(root: str, content: Mapping[str, str]) -> str:
    key = hashlib.sha256(f"{LAYER_FORMAT} {root}\n".encode())
    key.update(json.dumps(content, sort_keys=True).encode())
    return key.hexdigest()


def _add_layer(
    destination: Registry,
    target: Reference,
    key: str,
    files: list[WorkspaceFile],
    root: str,
    folder: str,
    progress: Progress,
) -> Layer:
    """Sees to it that the target's repository has a layer of these files."""
    # another release of zlib may compress to other bytes, which is as good
    known = recall("layers", key)
    if known is not None and destination.has_blob(target.repository, known["digest"]):
        return Layer("", known["size"], known["digest"], known["diff_id"])
    progress.begin("packing", sum(entry.size for entry in files))
    layer = make_layer(files, root, os.path.join(folder, "layer"), progress=progress.advance)
    if not destination.has_blob(target.repository, layer.digest):
        progress.begin("pushing", layer.size)
        with open(layer.path, "rb") as file:
            destination.upload(target.repository, layer.digest, layer.size, file, progress.advance)
    os.unlink(layer.path)
    return layer


def _finish(
    destination: Registry,
    target: Reference,
    manifest: Mapping[str, Any],
    media_type: str,
    config: Mapping[str, Any],
    layers: Iterable[Layer],
) -> str:
    import io

    data = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    if not destination.has_blob(target.repository, digest):
        destination.upload(target.repository, digest, len(data), io.BytesIO(data))
    new = {
        **manifest,
        "mediaType": media_type,
        "config": {**manifest["config"], "digest": digest, "size": len(data)},
        "layers": [
            *manifest["layers"],
            *(
                {
                    "mediaType": _LAYER_TYPES.get(media_type, _OCI_LAYER),
                    "digest": layer.digest,
                    "size": layer.size,
                }
                for layer in layers
            ),
        ],
    }
    new.pop("annotations", None)  # they are the base's
    content = json.dumps(new, sort_keys=True, separators=(",", ":")).encode()
    return destination.put_manifest(target.repository, target.version, content, media_type)
