"""The scheduler reaches its cluster only through its host."""

from __future__ import annotations

import ast
import importlib.util
import posixpath
from pathlib import Path

import pytest

from torchx_kit.hosts.fake import FakeHost
from torchx_sched_lsf.scheduler import create_scheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.schedulers import Stream

PACKAGE = importlib.util.find_spec("torchx_sched_lsf")
assert PACKAGE is not None
MODULES = sorted(Path(str(PACKAGE.origin)).parent.glob("*.py"))
# Modules with which files could be accessed or commands be run.
SYSTEM = {"os", "io", "pathlib", "shutil", "subprocess", "tempfile", "glob", "asyncio", "socket"}


def system_uses(source: str) -> list[str]:
    """Return the imports and calls by which a module reaches the local machine."""
    uses = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            uses += [alias.name for alias in node.names if alias.name.partition(".")[0] in SYSTEM]
        elif isinstance(node, ast.ImportFrom):
            uses += [node.module] if str(node.module).partition(".")[0] in SYSTEM else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            uses += ["open()"] if node.func.id == "open" else []
    return [str(use) for use in uses]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_module_accesses_no_files_and_runs_no_commands_itself(path: Path) -> None:
    assert system_uses(path.read_text()) == []


def test_the_check_finds_uses() -> None:
    assert system_uses("import os.path\nfrom subprocess import run\nopen('x')") == [
        *("os.path", "subprocess", "open()"),
    ]


def test_app_of_a_remote_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)

    def command(argv: list[str]) -> str:
        if argv[0] == "/bin/bash":
            return "submitted 0 0 101\n"
        return "101 RUN project name n1\n" if argv[0] == "bjobs" else ""

    host = FakeHost(str(tmp_path / "remote"), command)
    scheduler = create_scheduler("test", host=host)
    app = AppDef("app", [Role("main", image="", entrypoint="true")])
    app_id = scheduler.submit(app, {"jobdir": "job"})

    [[_, script]] = host.commands
    record = f"/cluster/home/job/.torchx-lsf/{app_id}"
    assert posixpath.dirname(script) == record
    assert host.read_text(script).startswith("#!/bin/bash")
    assert "tx_folder=/cluster/home/job\n" in host.read_text(script)

    host.write(f"{record}/replica-0-0", "0 n1 5\n")
    host.write(f"/cluster/home/job/{app_id}-main-0.out", "one\n")
    description = scheduler.describe(app_id)
    assert description is not None
    assert description.state == AppState.RUNNING
    assert description.roles_statuses[0].replicas[0].node == "n1"
    assert list(scheduler.log_iter(app_id, "main")) == ["one\n"]

    followed = scheduler.log_iter(app_id, "main", should_tail=True, streams=Stream.STDOUT)
    host.write(f"{record}/replica-0-0", "0 n1 5 6 0\n")
    assert list(followed) == ["one\n"]
    assert [(item.app_id, item.state) for item in scheduler.list()] == [
        (app_id, AppState.SUCCEEDED)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["remote", "torchx"]
