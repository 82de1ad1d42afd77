"""The scheduler reaches its cluster only through its host."""

from __future__ import annotations

import ast
import importlib.util
import posixpath
from pathlib import Path

import pytest

from torchx_kit.hosts.fake import FakeHost
from torchx_sched_slurm.scheduler import create_scheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.schedulers import Stream

PACKAGE = importlib.util.find_spec("torchx_sched_slurm")
assert PACKAGE is not None
MODULES = sorted(Path(str(PACKAGE.origin)).parent.glob("*.py"))
# its file is on the user's machine
MODULES = [path for path in MODULES if path.name != "job_dirs.py"]
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


def test_job_of_a_remote_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)
    state = "RUNNING"
    comment = ""

    def command(argv: list[str]) -> str:
        nonlocal comment
        if argv[0] == "sbatch":
            comment = next(arg for arg in argv if arg.startswith("--comment="))
            return "17\n"
        if argv[0] == "squeue":
            row = ["17", state, "", "", "n1", "", "/cluster/home/job", "app"]
            return "\x1f".join([*row, comment.removeprefix("--comment=")])
        return ""

    host = FakeHost(str(tmp_path / "remote"), command)
    scheduler = create_scheduler("test", host=host)
    app = AppDef("app", [Role("main", image="", entrypoint="true")])
    app_id = scheduler.submit(app, {"job_dir": "job"})

    argv = host.commands[0]
    assert "--chdir=/cluster/home/job" in argv
    script = argv[-1]
    record = posixpath.dirname(script)
    assert record.startswith("/cluster/home/job/.torchx-slurm/")
    assert host.read_text(script).startswith("#!/bin/bash")

    host.write(f"{record}/replica-0-0", "0 n1 5\n")
    host.write("/cluster/home/job/slurm-17-main-0.out", "one\n")
    description = scheduler.describe(app_id)
    assert description is not None
    assert description.state == AppState.RUNNING
    assert description.roles_statuses[0].replicas[0].node == "n1"
    assert list(scheduler.log_iter(app_id, "main")) == ["one\n"]

    followed = scheduler.log_iter(app_id, "main", should_tail=True, streams=Stream.STDOUT)
    host.write(f"{record}/outcome", "SUCCEEDED 0 0 9\n")
    assert list(followed) == ["one\n"]
    state = "COMPLETED"
    assert [(item.app_id, item.state) for item in scheduler.list()] == [("17", AppState.SUCCEEDED)]
    assert host.commands[-1][-2:] == ["-u", "fake-user"]

    scheduler.delete(app_id)
    assert not host.exists("/cluster/home/job/.torchx-slurm")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(".torchxslurmjobdirs", "remote", "torchx"),
    ]
