"""Images made by a Docker Engine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any

from torchx_kit.workspace.ignore import TORCHX_DOCKERFILE
from torchx_specs.errors import BackendError, WorkspaceError
from torchx_specs.options.run_options import CfgVal
from torchx_specs.version import __version__
from torchx_workspace_docker.build_cache import recall, remember
from torchx_workspace_docker.builder import Plan, check_unchanged, log
from torchx_workspace_docker.image_config import LABEL_BASE, patched_config, working_folder
from torchx_workspace_docker.layer import (
    LAYER_FORMAT,
    layer_folder,
    listing,
    remove_folder,
    tar_header,
    tar_pieces,
    tar_size,
    write_tar,
)
from torchx_workspace_docker.progress import Progress

if TYPE_CHECKING:
    from docker.client import DockerClient

    from torchx_kit.workspace import WorkspaceFile
    from torchx_specs.workspace import BuiltReference

LABEL_VERSION = "torchx.pytorch.org/version"
DEFAULT_DOCKERFILE = b"\nARG IMAGE\nFROM $IMAGE\n\nCOPY . .\n"

_CONTEXT = "workspace"
_ADDED_DOCKERFILE = DEFAULT_DOCKERFILE.replace(b"COPY . .", b"COPY workspace/ ./")
_TIMEOUT = 600
_PIECE = 1 << 20
_BLOCKS_AHEAD = 4
#: After so many changes that were added one by one, an image is made of one layer again.
_MOST_LAYERS = 20
#: A change is added to the image before if the whole is that many times as large.
_WORTHWHILE = 4
#: Folders that an image has in its root, some of them links: only the engine can add to those.
_OF_THE_SYSTEM = frozenset(
    {"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt"}
    | {"opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"}
)
_ROOT_USERS = frozenset({"", "0", "root", "0:0", "root:root"})


class FullEngineError(BackendError, WorkspaceError):
    """The engine has no room for the image."""

    exit_code = 3


def build_in_engine(
    plan: BuiltReference,
    details: Plan,
    cfg: Mapping[str, CfgVal],
    client: DockerClient | None = None,
) -> str:
    """Makes an image in the engine, unless it is there and its base is still the same.

    Returns:
        the image's id

    Raises:
        WorkspaceError: there is no base image, or the build fails
        BackendError: no engine answers
    """
    held = client or connect()
    try:
        with engine_errors(f"build {plan.image}"):
            base = _base(held, details.base, cfg)
            found = _existing(held, plan.image, base["Id"])
            if found:
                log().info("%s is there already", plan.image)
                return found
            with ThreadPoolExecutor(1) as meanwhile:  # the engine takes its time to say what it is
                told = meanwhile.submit(_tell_architecture, held, details.base, base)
                made = _make(held, plan, details, base, cfg)
                told.result()
                return made
    finally:
        if client is None:
            held.close()


def _make(
    client: DockerClient,
    plan: BuiltReference,
    details: Plan,
    base: Mapping[str, Any],
    cfg: Mapping[str, CfgVal],
) -> str:
    workspace = str(plan.workspace)
    if details.has_dockerfile or _needs_build(details, base):
        return _docker_build(client, plan.image, details, base, workspace, cfg)
    with Progress(plan.image, bool(cfg.get("quiet"))) as progress:
        return _load(client, plan.image, details, base, workspace, progress)


def push_from_engine(image: str, cfg: Mapping[str, CfgVal]) -> str:
    """Pushes an image of the engine; returns the digest the registry gave it."""
    client = connect()
    digest = ""
    try:
        with engine_errors(f"push {image}"):
            for event in _to_the_end(
                f"cannot push {image}",
                client.api.push(image, stream=True, decode=True, auth_config=_login(image)),
            ):
                digest = str((event.get("aux") or {}).get("Digest") or digest)
    finally:
        client.close()
    return digest


def _login(image: str) -> dict[str, str] | None:
    """Returns credentials for Amazon's registries; the docker library finds those of others."""
    from torchx_workspace_docker.references import Reference
    from torchx_workspace_docker.registry.credentials import credentials_for
    from torchx_workspace_docker.registry.ecr import is_ecr

    registry = Reference.parse(image).registry
    found = credentials_for(registry) if is_ecr(registry) else None
    return {"username": found.user, "password": found.secret} if found is not None else None


def connect() -> DockerClient:
    try:
        from docker.client import from_env
    except ImportError:
        raise WorkspaceError(
            "to build images by a Docker Engine: pip install 'torchx-workspace-docker[docker]'"
        ) from None
    with engine_errors("reach the Docker Engine"):
        client: DockerClient = from_env(timeout=_TIMEOUT, version=_api_version(from_env))
        return client


def _api_version(from_env: Callable[..., DockerClient]) -> str:
    """Returns the version of the API that this machine's engine speaks, ``auto`` to have the docker
    library ask: it does so by ``/version``, for which an engine runs two programs."""
    if not (os.environ.get("DOCKER_HOST") or "unix:").startswith("unix:"):
        return "auto"
    from docker.constants import MINIMUM_DOCKER_API_VERSION

    client = from_env(timeout=_TIMEOUT, version=MINIMUM_DOCKER_API_VERSION)  # asks nobody
    try:
        answer = client.api.get(f"{client.api.base_url}/_ping", timeout=_TIMEOUT)
        return str(answer.headers.get("Api-Version") or "auto")
    finally:
        client.close()


@contextlib.contextmanager
def engine_errors(what: str) -> Iterator[None]:
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.APIError as e:
        raise WorkspaceError(f"cannot {what}: {one_line(e.explanation or e)}") from e
    except (docker.errors.DockerException, requests.exceptions.RequestException) as e:
        where = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
        raise BackendError(
            f"cannot {what}: no answer from the Docker Engine at {where} ({one_line(e)});"
            " start it, or set DOCKER_HOST to where it is"
        ) from e


def _base(client: DockerClient, image: str, cfg: Mapping[str, CfgVal]) -> dict[str, Any]:
    import docker.errors

    pull = str(cfg.get("pull") or "always")
    failure = ""
    if not image.startswith("sha256:") and pull == "always":
        failure = _pull(client, image)
    try:
        found: dict[str, Any] = client.api.inspect_image(image)
    except docker.errors.NotFound:
        if pull == "missing":
            failure = _pull(client, image)
            with contextlib.suppress(docker.errors.NotFound):
                return dict(client.api.inspect_image(image))
        why = f": {failure}" if failure else ""
        raise WorkspaceError(
            f"there is no image {image} for the workspace to be added to{why}"
        ) from None
    return found


def _pull(client: DockerClient, image: str) -> str:
    """Fetches an image; returns why that failed, empty if it did not."""
    import docker.errors
    from docker.utils import parse_repository_tag

    repository, tag = parse_repository_tag(image)
    try:
        events = client.api.pull(
            repository,
            tag=tag or "latest",
            stream=True,
            decode=True,
            auth_config=_login(image),
        )
        errors = [one_line(event["error"]) for event in events if "error" in event]
        return errors[0] if errors else ""
    except docker.errors.APIError as e:
        return one_line(e.explanation or e)
    except WorkspaceError as e:
        return str(e)


def _existing(client: DockerClient, image: str, base: str) -> str:
    import docker.errors

    try:
        found = client.api.inspect_image(image)
    except docker.errors.NotFound:
        return ""
    labels = found["Config"].get("Labels") or {}
    return str(found["Id"]) if labels.get(LABEL_BASE) == base else ""


def _needs_build(details: Plan, base: Mapping[str, Any]) -> bool:
    """Returns True if a layer made here could hide what is in the image."""
    config = base.get("Config") or {}
    if str(config.get("User") or "") not in _ROOT_USERS:
        return True  # the working folder may be somebody's own
    if working_folder(config) != "/":
        return False
    return any(entry.path.partition("/")[0] in _OF_THE_SYSTEM for entry in details.files)


def _docker_build(
    client: DockerClient,
    image: str,
    details: Plan,
    base: Mapping[str, Any],
    workspace: str,
    cfg: Mapping[str, CfgVal],
) -> str:
    folder = layer_folder()
    try:
        path = os.path.join(folder, "context.tar")
        with _disk_errors(path), open(path, "wb+") as context:
            _write_context(details, context)
            context.seek(0)
            check_unchanged(details)
            events = client.api.build(
                fileobj=context,
                custom_context=True,
                dockerfile=TORCHX_DOCKERFILE,
                buildargs={"IMAGE": details.base, "WORKSPACE": workspace},
                pull=False,
                rm=True,
                forcerm=True,  # also when it fails
                decode=True,
                tag=image,
                labels={LABEL_VERSION: __version__, LABEL_BASE: str(base["Id"])},
            )
            _follow_build(events, bool(cfg.get("quiet")))
    finally:
        remove_folder(folder)
    return str(client.api.inspect_image(image)["Id"])


def _write_context(details: Plan, out: IO[bytes]) -> None:
    if details.has_dockerfile:
        # its rules were followed already, and the engine would not know those of .torchxignore
        files = [entry for entry in details.files if entry.path != ".dockerignore"]
        write_tar(files, "", out)
    else:
        write_tar(details.files, _CONTEXT, out, {TORCHX_DOCKERFILE: _ADDED_DOCKERFILE})


def _to_the_end(failure: str, events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields what the engine tells of its work, to the end: only then is the connection free.

    Raises:
        WorkspaceError: it told of an error; ``failure`` says of what
        FullEngineError: it has no room
    """
    errors = []
    for event in events:
        if "error" in event:
            errors.append(one_line(event["error"]))
        else:
            yield event
    if errors:
        if "no space left on device" in errors[0]:
            raise FullEngineError(
                f"{failure}: the disk of the Docker Engine is full ({errors[0]}); docker system df"
                " tells what is there"
            )
        raise WorkspaceError(f"{failure}: {errors[0]}")


def _follow_build(events: Iterable[Mapping[str, Any]], quiet: bool) -> None:
    for event in _to_the_end("the build failed", events):
        text = str(event.get("stream") or "").rstrip()
        if text and not quiet:
            log().info("%s", text)


def _tell_architecture(client: DockerClient, image: str, base: Mapping[str, Any]) -> None:
    here, has = client.api.version().get("Arch"), base.get("Architecture")
    if here and has and here != has:
        log().warning(
            "the image %s is for %s, this engine's machine is %s: without emulation its programs do"
            " not start",
            image,
            has,
            here,
        )


def _load(
    client: DockerClient,
    image: str,
    details: Plan,
    base: Mapping[str, Any],
    sources: str,
    progress: Progress,
) -> str:
    """Adds one layer to an image: the engine gets only that layer.

    If the engine has an image of this workspace as it was before, and only little was added to it
    or changed since, the layer holds that and is added to that image.
    """
    content = listing(details.files, details.digests)
    key = json.dumps([LAYER_FORMAT, str(base["Id"]), sources])
    below, files = _earlier(client, key, base, details.files, content) or (base, details.files)
    archive = _image_tar(image, details, files, base, below, progress)
    for _ in _to_the_end(f"cannot make {image}", client.api.load_image(archive, quiet=True)):
        pass
    made = str(client.api.inspect_image(image)["Id"])
    remember("images", key, {"image": made, "content": content})
    return made


def _earlier(
    client: DockerClient,
    key: str,
    base: Mapping[str, Any],
    files: Sequence[WorkspaceFile],
    content: Mapping[str, str],
) -> tuple[dict[str, Any], Sequence[WorkspaceFile]] | None:
    """Returns the image made last of a workspace, and the files that differ from it.

    None if there is none, if something was removed since (which may be in the base, too, and would
    have to appear again), if much differs, or if the image has many layers already.
    """
    import docker.errors

    known = recall("images", key)
    if known is None or not known["content"].keys() <= content.keys():
        return None
    try:
        found: dict[str, Any] = client.api.inspect_image(known["image"])
    except docker.errors.NotFound:
        return None
    layers, below = (i["RootFS"].get("Layers") or [] for i in (found, base))
    differ = [entry for entry in files if known["content"].get(entry.path) != content[entry.path]]
    whole, size = (sum(entry.size for entry in some) for some in (files, differ))
    if len(layers) - len(below) >= _MOST_LAYERS or size * _WORTHWHILE > whole:
        return None
    return found, differ


def _image_tar(
    image: str,
    details: Plan,
    files: Sequence[WorkspaceFile],
    base: Mapping[str, Any],
    below: Mapping[str, Any],
    progress: Progress,
) -> Iterator[bytes]:
    """Yields an image as ``docker load`` takes it, in pieces worth sending.

    Raises:
        WorkspaceError: the workspace is not what was planned; what was sent has no effect then
    """
    root = working_folder(base.get("Config") or {})
    known = hashlib.sha256()
    size = tar_size(files, root)
    progress.begin("loading", size)
    yield tar_header("layer.tar", size)

    def blocks() -> Iterator[bytes]:
        for block in _blocks(tar_pieces(files, root)):
            known.update(block)
            yield block

    for block in _ahead(blocks()):
        yield block
        progress.advance(len(block))
    check_unchanged(details)
    layers = [*(below["RootFS"].get("Layers") or []), f"sha256:{known.hexdigest()}"]
    config = patched_config(_config_of(base), layers[_depth(base) :], str(base["Id"]))
    manifest = [
        {
            "Config": "config.json",
            "RepoTags": [image],
            # layers that the engine has are not read
            "Layers": [*(f"have-{i}" for i in range(len(layers) - 1)), "layer.tar"],
        }
    ]
    more = {
        "config.json": json.dumps(config, sort_keys=True).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    # what was sent so far is of whole blocks: an archive may go on after that
    yield b"".join(tar_pieces((), "", more))


def _blocks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the same in pieces worth sending."""
    block: list[bytes] = []
    size = 0
    for piece in pieces:
        block.append(piece)
        size += len(piece)
        if size >= _PIECE:
            yield b"".join(block)
            block, size = [], 0
    yield b"".join(block)


def _ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the same; the next ones are made by a thread while one is sent."""
    with ThreadPoolExecutor(1) as pool:
        coming = deque(pool.submit(next, blocks, None) for _ in range(_BLOCKS_AHEAD))
        try:
            while (block := coming.popleft().result()) is not None:
                coming.append(pool.submit(next, blocks, None))
                yield block
        finally:
            pool.shutdown(cancel_futures=True)


def _depth(image: Mapping[str, Any]) -> int:
    return len(image["RootFS"].get("Layers") or [])


def _config_of(base: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of an image of the engine, as registries keep it."""
    return {
        "architecture": base.get("Architecture") or "amd64",
        "os": base.get("Os") or "linux",
        "config": dict(base.get("Config") or {}),
        "created": base.get("Created"),
        "rootfs": {"type": "layers", "diff_ids": list(base["RootFS"].get("Layers") or [])},
        "history": [{"created_by": "base"} for _ in base["RootFS"].get("Layers") or []],
    }


@contextlib.contextmanager
def _disk_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise WorkspaceError(
            f"cannot write {path}: {e.strerror or e}; TMPDIR says where it goes"
        ) from None


def one_line(text: object) -> str:
    return " ".join(str(text).split())
