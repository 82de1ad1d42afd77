"""Tests of the commands that run a role's image, and of Enroot's names of images."""

from __future__ import annotations

import pytest

from torchx_kit.scripts.containers import apptainer_command, bind_mounts, enroot_image
from torchx_specs import BindMount, Resource, Role, VolumeMount
from torchx_specs.errors import RequestError


def role(image: str = "ubuntu:24.04", **attributes: object) -> Role:
    return Role("main", image=image, **attributes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "argument"),
    [
        ("ubuntu:24.04", "docker://ubuntu:24.04"),
        ("library://a/b", "library://a/b"),
        ("/images/a", "/images/a"),
        ("./a", "./a"),
        ("../a", "../a"),
        ("a.sif", "a.sif"),
    ],
)
def test_image(image: str, argument: str) -> None:
    assert apptainer_command(role(image)) == ["apptainer", "exec", argument]


def test_options() -> None:
    trainer = role(
        mounts=[BindMount("/a b", "/c"), BindMount("/d", "/e", read_only=True)],
        resource=Resource(cpu=1, gpu=1, memMB=1),
    )
    assert apptainer_command(trainer, "/work")[2:-1] == [
        *("--pwd", "/work", "--nv", "--bind", "/a b:/c", "--bind", "/d:/e:ro"),
    ]


@pytest.mark.parametrize(
    ("mount", "message"),
    [
        (VolumeMount("v", "/v"), "Pyxis supports only bind mounts, not VolumeMount"),
        (BindMount("/a,b", "/c"), "Pyxis cannot mount a path with a comma: '/a,b:/c'"),
    ],
)
def test_unsupported_mount_is_an_error(mount: object, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        bind_mounts(role(mounts=[mount]), "Pyxis")


DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("image", "name"),
    [
        # Docker Hub is the default registry, so its name is removed.
        ("ubuntu", "ubuntu"),
        ("ubuntu:22.04", "ubuntu:22.04"),
        ("pytorch/pytorch:2.5.1", "pytorch/pytorch:2.5.1"),
        ("docker.io/library/ubuntu:22.04", "library/ubuntu:22.04"),
        ("index.docker.io/pytorch/pytorch", "pytorch/pytorch"),
        # Enroot needs "#" after the name of another registry.
        ("ghcr.io/pytorch/torchx:0.7.0", "ghcr.io#pytorch/torchx:0.7.0"),
        ("nvcr.io/nvidia/pytorch:24.10-py3", "nvcr.io#nvidia/pytorch:24.10-py3"),
        ("$oauthtoken@nvcr.io/nvidia/cuda", "$oauthtoken@nvcr.io#nvidia/cuda"),
        ("docker://ghcr.io/a/b:1", "docker://ghcr.io#a/b:1"),
        # The name of a registry may have a port.
        ("localhost:5000/team/image:1", "localhost:5000#team/image:1"),
        ("localhost/team/image", "localhost#team/image"),
        ("registry:5000/image", "registry:5000#image"),
        # Enroot reads a tag or a digest, not both; the digest is kept.
        (f"ubuntu@{DIGEST}", f"ubuntu@{DIGEST}"),
        (f"ghcr.io/a/b@{DIGEST}", f"ghcr.io#a/b@{DIGEST}"),
        (f"host:5000/a/b:1.2@{DIGEST}", f"host:5000#a/b@{DIGEST}"),
        # Enroot reads these names as they are.
        ("ghcr.io#pytorch/torchx:0.7.0", "ghcr.io#pytorch/torchx:0.7.0"),
        ("docker://ghcr.io#a/b", "docker://ghcr.io#a/b"),
        ("dockerd://ghcr.io/a/b", "dockerd://ghcr.io/a/b"),
        ("podman://ghcr.io/a/b", "podman://ghcr.io/a/b"),
        # These are paths.
        ("/images/pytorch.sqsh", "/images/pytorch.sqsh"),
        ("./pytorch.sqsh", "./pytorch.sqsh"),
        ("images.d/pytorch.sqsh", "images.d/pytorch.sqsh"),
        ("/roots/ghcr.io/unpacked", "/roots/ghcr.io/unpacked"),
        ("", ""),
    ],
)
def test_enroot_image(image: str, name: str) -> None:
    assert enroot_image(image) == name
