"""Build images in a registry: upload the layers of the workspace, then tag the image."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any

from torchx_kit.progress import Step
from torchx_kit.workspace import WorkspaceFile
from torchx_specs.errors import WorkspaceError, one_line
from torchx_specs.options.run_options import CfgVal
from torchx_workspace_docker.archive import tar_size
from torchx_workspace_docker.build_cache import recall, remember
from torchx_workspace_docker.builder import Plan, check_unchanged
from torchx_workspace_docker.image_config import LABEL_BASE, patched_config, working_folder
from torchx_workspace_docker.layer import (
    LAYER_FORMAT,
    Layer,
    disk_errors,
    layer_contents,
    make_layer,
    split_into_layers,
    temporary_folder,
)
from torchx_workspace_docker.references import Reference, short_name
from torchx_workspace_docker.registry.client import Repository
from torchx_workspace_docker.registry.connection import Connection
from torchx_workspace_docker.registry.manifests import DOCKER_MANIFEST, Manifest, sha256

_DOCKER_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"
_OCI_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
#: The names of architectures in images, by the names that :func:`platform.machine` returns.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64", "AMD64": "amd64"}
#: Folders that are links to /usr in many images; a layer with such a folder replaces the link.
_LINKED = frozenset({"bin", "sbin", "lib", "lib32", "lib64", "libx32"})
#: An index may have several images for one platform; so many of them are requested.
_MAX_CANDIDATES = 4
#: How many platforms an error names, and how many characters of each.
_NAMED_PLATFORMS, _PLATFORM_LENGTH = 10, 40

logger = logging.getLogger(__name__)


def build_in_registry(image: str, plan: Plan, cfg: Mapping[str, CfgVal]) -> str:
    """Build the planned image unless an up-to-date one exists, and return its digest.

    Raises:
        WorkspaceError: The base image does not exist, the workspace has changed, or a registry
            fails. The image is not tagged then.
    """
    target, base = Reference.parse(image), Reference.parse(plan.base)
    if plan.base.startswith("sha256:"):
        raise WorkspaceError(
            f"the base image {plan.base[:19]}... is the id of an image of a Docker Engine;"
            " use the name of an image in a registry"
        )
    connection = _connection(target, cfg)
    destination = Repository(connection, target.repository, push=True)
    if base.registry != target.registry:
        connection = _connection(base, cfg)
    source = Repository(connection, base.repository)
    manifest, from_index = _base_manifest(source, base)
    existing = _up_to_date_image(destination, target, manifest.digest)
    if existing:
        logger.info("%s exists and is up to date", image)
        return existing
    config = source.image_config(manifest.content["config"]["digest"])
    if not from_index:
        _check_platform(base, config)
    quiet = bool(cfg.get("quiet"))
    with temporary_folder() as folder:
        root = working_folder(config.get("config") or {})
        _check_links(root, plan)
        for blob in manifest.content["layers"]:
            _copy_layer(source, base, destination, blob, folder, quiet)
        layers: dict[str, Layer] = {}
        for files in split_into_layers(plan.files):
            key = _layer_key(root, layer_contents(files, plan.digests))
            layers[key] = _add_layer(destination, target, key, files, root, folder, quiet)
        check_unchanged(plan)
        for key, layer in layers.items():
            values = {"digest": layer.digest, "diff_id": layer.diff_id, "size": layer.size}
            remember("layers", key, values)
        diff_ids = [layer.diff_id for layer in layers.values()]
        patched = patched_config(config, diff_ids, manifest.digest)
        return _push_image(destination, target, manifest, patched, layers.values())


def wanted_platform() -> tuple[str, str]:
    """Return the operating system and the architecture for which to build images.

    The variable ``DOCKER_DEFAULT_PLATFORM`` sets both; the default is Linux on the architecture of
    this machine.
    """
    system, _, rest = os.environ.get("DOCKER_DEFAULT_PLATFORM", "").partition("/")
    machine = platform.machine()
    return system or "linux", rest.partition("/")[0] or _ARCHITECTURES.get(machine, machine)


def _connection(reference: Reference, cfg: Mapping[str, CfgVal]) -> Connection:
    insecure = cfg.get("insecure_registries")
    is_insecure = isinstance(insecure, (list, tuple)) and reference.registry in insecure
    return Connection(reference, insecure=is_insecure)


def _base_manifest(source: Repository, base: Reference) -> tuple[Manifest, bool]:
    """Return the base's manifest, and whether it was selected from an index of platforms."""
    found = source.manifest(base.version)
    if found is None:
        raise WorkspaceError(f"the image {base}, to which the workspace is added, does not exist")
    if not found.is_index:
        return found, False
    system, architecture = wanted_platform()
    names = set()
    candidates = []
    for entry in found.content["manifests"]:
        offered = entry.get("platform") or {}
        names.add(f"{offered.get('os')}/{offered.get('architecture')}")
        if (offered.get("os"), offered.get("architecture")) == (system, architecture):
            candidates.append(entry)
    for entry in candidates[:_MAX_CANDIDATES]:
        image = source.manifest(entry["digest"])
        if image is not None and not image.is_index:
            return image, True
    raise _wrong_platform(base, sorted(names))


def _check_platform(base: Reference, config: Mapping[str, Any]) -> None:
    """Check the platform of an image only if ``DOCKER_DEFAULT_PLATFORM`` requests a platform.

    Otherwise any platform is valid: the job may run on a machine of another architecture.
    """
    if not os.environ.get("DOCKER_DEFAULT_PLATFORM"):
        return
    offered = (str(config.get("os")), str(config.get("architecture")))
    if offered != wanted_platform():
        raise _wrong_platform(base, ["/".join(offered)])


def _wrong_platform(base: Reference, offered: list[str]) -> WorkspaceError:
    names = [one_line(name)[:_PLATFORM_LENGTH] for name in offered[:_NAMED_PLATFORMS]]
    if len(offered) > _NAMED_PLATFORMS:
        names.append(f"{len(offered) - _NAMED_PLATFORMS} more")
    return WorkspaceError(
        f"{base} is not for {'/'.join(wanted_platform())},"
        f" only for {', '.join(names) or 'no platform'};"
        " set DOCKER_DEFAULT_PLATFORM to the platform to use"
    )


def _up_to_date_image(destination: Repository, target: Reference, base_digest: str) -> str:
    """Return the image's digest if it was built from the base ``base_digest``, else ''."""
    found = destination.manifest(target.version)
    if found is None or found.is_index:
        return ""
    config = destination.image_config(found.content["config"]["digest"])
    labels = (config.get("config") or {}).get("Labels") or {}
    return found.digest if labels.get(LABEL_BASE) == base_digest else ""


def _check_links(root: str, plan: Plan) -> None:
    if root != "/":
        return
    folders = {entry.path.partition("/")[0] for entry in plan.files if "/" in entry.path}
    conflicts = sorted(folders & _LINKED)
    if conflicts:
        raise WorkspaceError(
            f"the workspace has a folder '{conflicts[0]}', which could replace the system's folder:"
            f" the working folder of {plan.base} is /; give the image a WORKDIR, or map the"
            " workspace to a sub-directory"
        )


def _copy_layer(
    source: Repository,
    base: Reference,
    destination: Repository,
    blob: Mapping[str, Any],
    folder: str,
    quiet: bool,
) -> None:
    """Copy a layer of the base image to the target's repository unless that repository has it."""
    digest, size = str(blob["digest"]), int(blob["size"])
    if destination.has_blob(digest):
        return
    is_mountable = source.connection is destination.connection
    if is_mountable and destination.mount(digest, base.repository):
        return
    path = os.path.join(folder, "base-layer")
    with disk_errors(path), open(path, "wb+") as file:
        with Step(f"pulling a layer of {base}", size, quiet=quiet) as step:
            source.download(digest, size, file, step.advance)
        with Step(f"pushing a layer of {base}", size, quiet=quiet) as step:
            destination.upload(digest, size, file, step.advance)


def _layer_key(root: str, contents: Mapping[str, str]) -> str:
    key = hashlib.sha256(f"{LAYER_FORMAT} {root}\n".encode())
    key.update(json.dumps(contents, sort_keys=True).encode())
    return key.hexdigest()


def _add_layer(
    destination: Repository,
    target: Reference,
    key: str,
    files: list[WorkspaceFile],
    root: str,
    folder: str,
    quiet: bool,
) -> Layer:
    """Return the layer of these files; push it unless it is in the target's repository."""
    # The cached layer has the same files, even if another release of zlib has compressed it.
    cached = recall("layers", key)
    if cached is not None and destination.has_blob(cached["digest"]):
        return Layer("", cached["size"], cached["digest"], cached["diff_id"])
    name = short_name(str(target))
    with Step(f"packing {name}", tar_size(files, root), quiet=quiet) as step:
        layer = make_layer(files, root, os.path.join(folder, "layer"), progress=step.advance)
    if not destination.has_blob(layer.digest):
        with (
            Step(f"pushing {name}", layer.size, quiet=quiet) as step,
            open(layer.path, "rb") as file,
        ):
            destination.upload(layer.digest, layer.size, file, step.advance)
    os.unlink(layer.path)
    return layer


def _push_image(
    destination: Repository,
    target: Reference,
    manifest: Manifest,
    config: Mapping[str, Any],
    layers: Iterable[Layer],
) -> str:
    """Push configuration and manifest of an image, and return the manifest's digest."""
    data = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    digest = sha256(data)
    if not destination.has_blob(digest):
        destination.upload(digest, len(data), io.BytesIO(data))
    layer_type = _DOCKER_LAYER if manifest.media_type == DOCKER_MANIFEST else _OCI_LAYER
    added = [
        {"mediaType": layer_type, "digest": layer.digest, "size": layer.size} for layer in layers
    ]
    patched = {
        **manifest.content,
        "mediaType": manifest.media_type,
        "config": {**manifest.content["config"], "digest": digest, "size": len(data)},
        "layers": [*manifest.content["layers"], *added],
    }
    patched.pop("annotations", None)  # The annotations describe the base image.
    content = json.dumps(patched, sort_keys=True, separators=(",", ":")).encode()
    return destination.put_manifest(target.version, content, manifest.media_type)
