"""Commands that run a role's image in batch jobs."""

from __future__ import annotations

from collections.abc import Mapping

from torchx_specs.errors import RequestError
from torchx_specs.model.app import Role
from torchx_specs.model.mounts import BindMount
from torchx_specs.settings import PUBLISHED_IMAGE

# Apptainer passes these variables to a container only if they have the prefix APPTAINERENV_.
_APPTAINER_OWN = frozenset({"PATH", "LD_LIBRARY_PATH"})
_DOCKER_HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


def bind_mounts(role: Role, runtime: str) -> list[str]:
    """Return the role's mounts as ``source:destination``, with ``:ro`` if read-only.

    Args:
        role: The role.
        runtime: Name of the container runtime, for error messages.

    Raises:
        RequestError: A mount is not a bind mount, or its path has a comma, which separates mounts.
    """
    mounts = []
    for mount in role.mounts:
        if not isinstance(mount, BindMount):
            raise RequestError(f"{runtime} supports only bind mounts, not {mount}")
        text = f"{mount.src_path}:{mount.dst_path}" + ":ro" * bool(mount.read_only)
        if "," in text:
            raise RequestError(f"{runtime} cannot mount a path with a comma: {text!r}")
        mounts.append(text)
    return mounts


def enroot_image(image: str) -> str:
    """Return the name of an image in the form of Enroot and Pyxis: ``REGISTRY#IMAGE:TAG``.

    Enroot expects ``#`` after the registry. Enroot accepts a tag or a digest, not both: if an image
    has both, the result has only the digest. Paths, squashfs files and names that already have a
    ``#`` stay unchanged.

    >>> enroot_image("ghcr.io/pytorch/torchx:0.7.0"), enroot_image("pytorch/pytorch:2.5.1")
    ('ghcr.io#pytorch/torchx:0.7.0', 'pytorch/pytorch:2.5.1')

    Args:
        image: The image as Docker names it, an Enroot URI, or a path.
    """
    scheme, separator, name = image.rpartition("://")
    is_path = name.startswith(("/", "./", "../", "~")) or name.endswith(".sqsh")
    if is_path or "#" in name or scheme not in ("", "docker"):
        return image
    first, slash, rest = name.partition("/")
    user, at, host = first.rpartition("@")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    if is_host and host in _DOCKER_HUB:
        name = f"{user}{at}{rest}"  # Enroot's default registry
    elif is_host:
        name = f"{user}{at}{host}#{rest}"
    repository, digest_mark, digest = name.rpartition("@sha256:")
    if digest_mark:
        folder, slash, last = repository.rpartition("/")
        name = f"{folder}{slash}{last.partition(':')[0]}{digest_mark}{digest}"
    return f"{scheme}{separator}{name}"


def runs_on_host(image: str) -> bool:
    """Return True if a role with this image runs without a container.

    Such a role has no image, or its image is a directory on the host, or the default image of
    components, which nobody has chosen for this job.

    >>> runs_on_host(""), runs_on_host("/shared/run1"), runs_on_host("ubuntu:24.04")
    (True, True, False)
    >>> runs_on_host(PUBLISHED_IMAGE)
    True
    """
    return image in ("", PUBLISHED_IMAGE) or image.startswith(("/", "~/", "./", "../"))


def apptainer_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables with the names under which Apptainer passes them to a container.

    Apptainer passes on all variables of its environment, except ``PATH`` and ``LD_LIBRARY_PATH``.

    >>> apptainer_env({"PATH": "/opt/bin", "A": "1"})
    {'APPTAINERENV_PATH': '/opt/bin', 'A': '1'}
    """
    return {f"APPTAINERENV_{k}" if k in _APPTAINER_OWN else k: v for k, v in env.items()}


def apptainer_command(role: Role, working_dir: str | None = None) -> list[str]:
    """Return the argv to put before a program, so that Apptainer runs it in the role's image.

    Args:
        role: The role. Its image is a path, a ``.sif`` or ``.img`` file, a URL, or a Docker image.
        working_dir: Working directory in the container; None leaves it to Apptainer.

    Raises:
        RequestError: The role has a mount that Apptainer does not support.
    """
    argv = ["apptainer", "exec"]
    if working_dir:
        argv += ["--pwd", working_dir]
    if role.resource.gpu > 0:
        argv.append("--nv")
    for mount in bind_mounts(role, "Apptainer"):
        argv += ["--bind", mount]
    image = role.image
    is_file = image.startswith(("/", "~/", "./", "../")) or image.endswith((".sif", ".img"))
    return [*argv, image if is_file or "://" in image else f"docker://{image}"]
