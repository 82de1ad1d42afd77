"""Commands that run a role's image."""

from __future__ import annotations

import pytest

from torchx_kit.scripts.containers import apptainer_command, bind_mounts
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
