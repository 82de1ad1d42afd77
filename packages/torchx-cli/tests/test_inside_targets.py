"""Tests of parsing the texts that name replicas, paths in replicas, and ports."""

from __future__ import annotations

import click
import pytest

from torchx_cli.commands.inside.forward import _ports
from torchx_cli.commands.inside.targets import find_target, parse_remote_path
from torchx_runner import Runner
from torchx_specs import AppDef, Role
from torchx_specs.errors import RequestError


class Apps(Runner):
    """A runner that only describes one app."""

    def __init__(self, *roles: Role) -> None:
        super().__init__("test", {})
        self.app = AppDef("app", list(roles))

    def describe(self, app_handle: str) -> AppDef | None:
        return self.app


def role(name: str, count: int) -> Role:
    return Role(name, image="", num_replicas=count)


def test_an_app_with_one_replica_needs_no_replica() -> None:
    assert find_target(Apps(role("main", 1)), "x://s/app") == ("x://s/app", "main", 0)
    two = Apps(role("main", 1), role("other", 2))
    assert find_target(two, "x://s/app/main") == ("x://s/app", "main", 0)
    assert str(find_target(two, "x://s/app/other/1")) == "other/1"


def test_the_candidates_are_listed() -> None:
    runner = Apps(role("main", 1), role("worker", 20))
    with pytest.raises(RequestError) as caught:
        find_target(runner, "x://s/app")
    assert str(caught.value) == (
        "which replica? x://s/app has 21: main/0, worker/0, worker/1, worker/2, worker/3,"
        " worker/4, worker/5, worker/6 and 13 more; for example: x://s/app/main/0"
    )
    with pytest.raises(RequestError, match="has no role 'wrker'; did you mean 'worker'"):
        find_target(runner, "x://s/app/wrker")
    with pytest.raises(RequestError, match=r"has 2: worker/0, worker/1; for"):
        find_target(runner, "x://s/app/worker/0,1")


@pytest.mark.parametrize(
    ("text", "replica", "path"),
    [
        ("local_cwd://torchx/a-1/main/0:out/a:b", "local_cwd://torchx/a-1/main/0", "out/a:b"),
        ("kubernetes://torchx/ns:a/main/0:/x", "kubernetes://torchx/ns:a/main/0", "/x"),
        ("kubernetes://torchx/ns:a:/x", "kubernetes://torchx/ns:a", "/x"),
        ("kubernetes://torchx/ns:a:x", "kubernetes://torchx/ns:a", "x"),
        ("slurm:///12:", "slurm:///12", ""),
        ("slurm://12:out/x", "slurm://12", "out/x"),
        ("kubernetes://ns:a:x", "kubernetes://ns:a", "x"),
        ("slurm://12/main/0:out/a:b", "slurm://12/main/0", "out/a:b"),
        ("@1:x", "@1", "x"),
        ("@1/main/0:x/y", "@1/main/0", "x/y"),
        ("train:~/x", "train", "~/x"),
    ],
)
def test_a_path_in_a_replica(text: str, replica: str, path: str) -> None:
    assert parse_remote_path(text) == (replica, path)


@pytest.mark.parametrize("text", ["a", "./a:b", "/a:b", "../a:b", "~/a:b", "-", "a/b"])
def test_a_path_of_this_machine(text: str) -> None:
    assert parse_remote_path(text) is None


def test_a_replica_without_a_path_is_refused() -> None:
    with pytest.raises(RequestError, match="names no path"):
        parse_remote_path("slurm://torchx/12/main/0")


def test_ports() -> None:
    assert _ports("8888") == (8888, 8888)
    assert _ports("9000:80") == (9000, 80)
    assert _ports("0:80") == _ports(":80") == (0, 80)
    for text in ("", "x", "80:", "70000", "1:70000", "1:0", "0", "-1", "1:2:3", "８０"):
        with pytest.raises(click.BadParameter, match="is not PORT or LOCAL:REMOTE"):
            _ports(text)
