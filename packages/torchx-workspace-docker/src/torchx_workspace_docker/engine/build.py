"""Build images with a Docker Engine: with ``docker build``, or by loading only the new layer."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

from torchx_kit.images.engine import EngineError
from torchx_kit.images.transfers import pull_image, with_progress
from torchx_kit.workspace.ignore import TORCHX_DOCKERFILE
from torchx_specs.errors import WorkspaceError
from torchx_specs.options.run_options import CfgVal
from torchx_specs.version import __version__
from torchx_workspace_docker.archive import tar_chunks
from torchx_workspace_docker.build_cache import remember
from torchx_workspace_docker.builder import Plan, check_unchanged
from torchx_workspace_docker.engine.client import (
    connect,
    engine_errors,
    find_image,
    has_containerd_store,
    read_events,
    registry_login,
)
from torchx_workspace_docker.engine.load import load_image, plan_increment, workspace_key
from torchx_workspace_docker.image_config import (
    LABEL_BASE,
    LABEL_VERSION,
    LABEL_WORKSPACE,
    working_folder,
)
from torchx_workspace_docker.layer import disk_errors, temporary_folder
from torchx_workspace_docker.references import short_name

if TYPE_CHECKING:
    from docker.client import DockerClient

    from torchx_kit.workspace import BuiltReference, WorkspaceFile

DEFAULT_DOCKERFILE = b"\nARG IMAGE\nFROM $IMAGE\n\nCOPY . .\n"

#: The folder in the build context that contains the workspace, if the workspace has no Dockerfile.
_CONTEXT = "workspace"
_COPY_DOCKERFILE = DEFAULT_DOCKERFILE.replace(b"COPY . .", b"COPY workspace/ ./")
#: System folders. Some of them may be symbolic links in the image. A layer that TorchX makes would
#: replace such a link with a folder, so files in these folders are added by ``docker build``.
_SYSTEM_FOLDERS = frozenset(
    {"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt"}
    | {"opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"}
)
_ROOT_USERS = frozenset({"", "0", "root", "0:0", "root:root"})

logger = logging.getLogger(__name__)


def build_in_engine(
    reference: BuiltReference,
    plan: Plan,
    cfg: Mapping[str, CfgVal],
    client: DockerClient | None = None,
) -> str:
    """Build the planned image unless an up-to-date one exists, and return its id.

    Args:
        reference: The name of the image, and the workspace.
        plan: The contents of the image.
        cfg: The options.
        client: The client to use; None creates one from the environment (``DOCKER_HOST``).

    Raises:
        WorkspaceError: The docker library or the base image is missing, the build fails, or the
            workspace has changed since it was planned.
        BackendError: The engine does not answer.
    """
    if client is not None:
        return _build_unless_up_to_date(client, reference, plan, cfg)
    with contextlib.closing(connect()) as own:
        return _build_unless_up_to_date(own, reference, plan, cfg)


def push_from_engine(image: str, cfg: Mapping[str, CfgVal]) -> str:
    """Push an image of the engine, and return the digest that the registry reports.

    Raises:
        WorkspaceError: The registry refuses the image.
        BackendError: The engine does not answer.
    """
    digest = ""
    action = f"push {image}"
    with contextlib.closing(connect()) as client, engine_errors(action):
        pushed = client.api.push(image, stream=True, decode=True, auth_config=registry_login(image))
        events = with_progress(short_name(image), pushed, bool(cfg.get("quiet")))
        for event in read_events(action, events):
            digest = str((event.get("aux") or {}).get("Digest") or digest)
    return digest


def _build_unless_up_to_date(
    client: DockerClient, reference: BuiltReference, plan: Plan, cfg: Mapping[str, CfgVal]
) -> str:
    with engine_errors(f"build {reference.image}"):
        base = _base_image(client, plan.base, cfg)
        existing = _up_to_date_image(client, reference.image, base["Id"])
        if existing:
            logger.info("%s exists and is up to date", reference.image)
            return existing
        # The engine answers this query slowly, so the query runs during the build.
        with ThreadPoolExecutor(1) as pool:
            check = pool.submit(_warn_of_another_architecture, client, plan.base, base)
            image = _build(client, reference, plan, base, cfg)
            check.result()
        return image


def _build(
    client: DockerClient,
    reference: BuiltReference,
    plan: Plan,
    base: Mapping[str, Any],
    cfg: Mapping[str, CfgVal],
) -> str:
    image, workspace = reference.image, str(reference.workspace)
    if plan.has_dockerfile or _needs_docker_build(plan, base):
        return _docker_build(client, image, plan, plan.base, plan.files, base, workspace, cfg)
    increment = plan_increment(client, plan, base, workspace)
    if has_containerd_store(client, base):
        parent = plan.base if increment.parent is base else str(increment.parent["Id"])
        built = _docker_build(client, image, plan, parent, increment.files, base, workspace, cfg)
    else:
        labels = {LABEL_WORKSPACE: workspace_key(plan.base, workspace)}
        quiet = bool(cfg.get("quiet"))
        built = load_image(client, image, plan, base, increment, labels, quiet)
    increment.remember(built)
    return built


def _base_image(client: DockerClient, image: str, cfg: Mapping[str, CfgVal]) -> dict[str, Any]:
    """Return the engine's description of the base image, after a pull if ``pull`` requires it.

    Raises:
        WorkspaceError: The engine does not have the image.
    """
    policy, quiet = str(cfg.get("pull") or "always"), bool(cfg.get("quiet"))
    try:
        found = pull_image(client, image, policy, quiet=quiet, login=registry_login)
    except EngineError as e:
        raise WorkspaceError(str(e)) from e
    if found is None:
        raise WorkspaceError(f"the image {image}, to which the workspace is added, does not exist")
    return found


def _up_to_date_image(client: DockerClient, image: str, base: str) -> str:
    """Return the image's id if it was built from the base with the id ``base``, else ''.

    If the image is up to date, record that it is used now.
    """
    import docker.errors

    found = find_image(client, image)
    labels = (found["Config"].get("Labels") or {}) if found else {}
    if found is None or labels.get(LABEL_BASE) != base:
        return ""
    try:
        # Record the use, so that no pruner removes the image now. The new tag records it for other
        # users; but an engine whose images containerd stores ignores a tag that exists already.
        remember("used", image, {})
        client.api.tag(image, *image.rsplit(":", 1))
    except docker.errors.NotFound:
        return ""  # A pruner has just removed the image.
    return str(found["Id"])


def _warn_of_another_architecture(
    client: DockerClient, image: str, base: Mapping[str, Any]
) -> None:
    own, architecture = client.api.version().get("Arch"), base.get("Architecture")
    if own and architecture and own != architecture:
        logger.warning(
            "the image %s is for %s, this engine's machine is %s: without emulation its"
            " programs do not start",
            image,
            architecture,
            own,
        )


def _needs_docker_build(plan: Plan, base: Mapping[str, Any]) -> bool:
    """Return True if a layer that TorchX makes could change owners or links of the image."""
    config = base.get("Config") or {}
    if str(config.get("User") or "") not in _ROOT_USERS:
        return True  # A layer would change the owner of the working directory to root.
    if working_folder(config) != "/":
        return False
    return any(entry.path.partition("/")[0] in _SYSTEM_FOLDERS for entry in plan.files)


def _docker_build(
    client: DockerClient,
    image: str,
    plan: Plan,
    parent: str,
    files: Sequence[WorkspaceFile],
    base: Mapping[str, Any],
    workspace: str,
    cfg: Mapping[str, CfgVal],
) -> str:
    """Build an image with ``docker build``, and return its id.

    Args:
        client: The client of the engine.
        image: The name of the new image.
        plan: The planned contents of the new image.
        parent: The image to which files are added.
        files: The files that are added to ``parent``.
        base: The engine's description of the base image.
        workspace: The workspace as a text, for the build argument ``WORKSPACE``.
        cfg: The options.
    """
    build_args = {"IMAGE": parent}
    if plan.has_dockerfile:
        # TorchX's own Dockerfile does not use this argument, and the engine warns of unused ones.
        build_args["WORKSPACE"] = workspace
    with temporary_folder() as folder:
        path = os.path.join(folder, "context.tar")
        with disk_errors(path), open(path, "wb+") as context:
            _write_context(plan, files, context)
            context.seek(0)
            check_unchanged(plan)
            events = client.api.build(
                fileobj=context,
                custom_context=True,
                dockerfile=TORCHX_DOCKERFILE,
                buildargs=build_args,
                pull=False,
                rm=True,
                forcerm=True,  # Remove intermediate containers after a failure too.
                decode=True,
                tag=image,
                labels={
                    LABEL_VERSION: __version__,
                    LABEL_BASE: str(base["Id"]),
                    LABEL_WORKSPACE: workspace_key(plan.base, workspace),
                },
            )
            _log_build(image, events, bool(cfg.get("quiet")))
    return str(client.api.inspect_image(image)["Id"])


def _write_context(plan: Plan, files: Sequence[WorkspaceFile], out: IO[bytes]) -> None:
    if plan.has_dockerfile:
        # plan() has applied both ignore files. If the context had .dockerignore, the engine would
        # remove files that .torchxignore includes.
        files = [entry for entry in files if entry.path != ".dockerignore"]
        out.writelines(tar_chunks(files, ""))
    else:
        extra = {TORCHX_DOCKERFILE: _COPY_DOCKERFILE}
        out.writelines(tar_chunks(files, _CONTEXT, extra))


def _log_build(image: str, events: Iterable[Mapping[str, Any]], quiet: bool) -> None:
    for event in read_events(f"build {image}", events):
        text = str(event.get("stream") or "").rstrip()
        if text and not quiet:
            logger.info("%s", text)
