"""Slurm on another machine: the conformance suite, and stories through the command."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sshd as service
from ssh_conformance import ConformanceOverSsh

from patience import wait_for
from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.lookup import find_host
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_specs import AppDef, AppState, Role, secret
from torchx_specs.errors import RequestError
from torchx_specs.schedulers import Scheduler

Torchx = Callable[..., "subprocess.CompletedProcess[str]"]


class TestSlurmOverSsh(ConformanceOverSsh):
    scheduler_name = "slurm"
    pending_cfg = {"extra": ["hold"]}
    timeout = 90.0
    poll_interval = 0.2

    @pytest.fixture
    def scheduler(self, work: Path) -> Iterator[Scheduler[Any]]:
        scheduler = InstalledSchedulers()["slurm@bash"]("conformance")
        yield scheduler
        scheduler.close()


@pytest.fixture
def laptop(work: Path, environment: dict[str, str]) -> Torchx:
    """Return a function that runs ``torchx`` as a user does whose cluster is behind SSH."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [f"{Path(sys.executable).parent}/torchx", *arguments],
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return call


def output(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.gate
def test_a_user_works_with_a_job_on_another_machine(
    laptop: Torchx, machines: Path, work: Path
) -> None:
    (work / "program.py").write_text("print('code of the laptop')\n")
    arguments = ["utils.sh", "sh", "-c", "echo $USER from $HOME; python3 program.py"]
    done = laptop("run", "-s", "slurm@bash", "--wait", *arguments)
    handle = output(done).strip()
    assert handle.startswith("slurm@bash://torchx/")
    assert "SUCCEEDED" in output(laptop("status", handle))
    home = service.home_of(machines, "bash")
    shown = output(laptop("log", handle))
    assert f"{service.user_of(machines, 'bash')} from {home}" in shown
    assert "code of the laptop" in shown
    assert handle in output(laptop("list", "-s", "slurm@bash"))
    output(laptop("delete", handle))
    assert handle not in output(laptop("list", "-s", "slurm@bash"))


@pytest.mark.gate
@pytest.mark.parametrize("source", ["option", "file"])
def test_the_host_may_be_an_option(laptop: Torchx, work: Path, source: str) -> None:
    option = ["-cfg", "host=bash"] if source == "option" else []
    if source == "file":
        (work / ".torchxconfig").write_text("[slurm]\nhost = bash\n")
    handle = output(laptop("run", "-s", "slurm", *option, "utils.sh", "sleep", "86400")).strip()
    assert handle.startswith("slurm@bash://torchx/")
    assert handle in output(laptop("list", "-s", "slurm", *option))
    output(laptop("cancel", handle))
    assert "CANCELLED" in output(laptop("status", handle))


@pytest.mark.gate
def test_a_script_runs_where_python_is_only_python3(laptop: Torchx, work: Path) -> None:
    (work / "train.py").write_text("import sys\nprint('trained with', *sys.argv[1:])\n")
    path = find_host("bash").resolve("~/only-python3")
    find_host("bash").make_dirs(path)
    find_host("bash").run(["sh", "-c", f"ln -s /usr/bin/* {path}; rm -f {path}/python"])
    run = ["run", "-s", "slurm@bash", "--wait", "--env", f"PATH={path}"]
    handle = output(laptop(*run, "train.py", "--lr", "0.1")).strip()
    assert "trained with --lr 0.1" in output(laptop("log", handle))


def test_a_scheduler_of_this_machine_uses_no_host() -> None:
    with pytest.raises(RequestError, match="'local_cwd' cannot use another machine"):
        InstalledSchedulers()["local_cwd@bash"]("test")


def test_an_unreachable_host_is_one_line_and_exit_code_3(laptop: Torchx) -> None:
    done = laptop("list", "-s", "slurm@no-such-host.invalid")
    assert done.returncode == 3
    assert "Could not resolve hostname" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_runs_in_a_folder_of_the_cluster(laptop: Torchx, machines: Path) -> None:
    folder = service.home_of(machines, "bash") / "project"
    folder.mkdir()
    (folder / "data.txt").write_text("from the cluster")
    shutil.chown(folder, service.user_of(machines, "bash"))
    run = ["run", "-s", "slurm@bash", "-cfg", f"job_dir={folder}", "--wait"]
    handle = output(laptop(*run, "utils.sh", "cat", "data.txt")).strip()
    assert "from the cluster" in output(laptop("log", handle))


@pytest.mark.gate
def test_secrets_of_the_laptop_are_in_no_argument_and_no_variable(
    work: Path,
    machines: Path,
    alias: Callable[..., str],
    connect: Callable[[str], SshHost],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # While sbatch runs, all processes of the user are listed with their variables.
    host = connect("bash")
    folder = host.resolve("listing")
    host.make_dirs(folder)
    sbatch = host.run(["sh", "-c", "command -v sbatch"]).stdout.strip()
    listing = f"ps -ww -e -o args > {folder}/ps; cat /proc/[0-9]*/environ >> {folder}/ps"
    host.write(
        f"{folder}/sbatch", f'#!/bin/sh\n{{ {listing}; }} 2> /dev/null\nexec {sbatch} "$@"\n'
    )
    host.run(["chmod", "700", f"{folder}/sbatch"])
    start_up = service.home_of(machines, "bash") / service.START_UP_FILES["bash"]
    before = start_up.read_text()
    values = {"hf": "value-of-a-variable", "db": "value-of-a-file"}
    monkeypatch.setenv("TORCHX_SECRET_HF", values["hf"])
    secrets = Path(os.environ["TORCHX_HOME"]) / "secrets" / "db"
    secrets.mkdir(0o700, parents=True)
    secrets.parent.chmod(0o700)
    (secrets / "key").write_text(f"{values['db']}\n")
    (secrets / "key").chmod(0o600)
    code = 'printf "%s\n" "$ONE $TWO" | sha256sum'
    env = {"ONE": secret("hf"), "TWO": secret("db", "key")}
    app = AppDef("app", [Role("sh", image="", entrypoint="sh", args=["-c", code], env=env)])
    try:
        start_up.write_text(f"{before}\nexport PATH={folder}:$PATH\n")
        scheduler = InstalledSchedulers()[f"slurm@{alias()}"]("test")
        app_id = scheduler.submit(app, {})
    finally:
        start_up.write_text(before)
    wait_for(lambda: scheduler.describe(app_id).state == AppState.SUCCEEDED)  # type: ignore[union-attr]
    shown = "".join(scheduler.log_iter(app_id, "sh"))
    expected = hashlib.sha256(f"{values['hf']} {values['db']}\n".encode()).hexdigest()
    assert expected in shown
    listed = host.read_text(f"{folder}/ps")
    assert "sbatch" in listed
    assert not any(value in listed for value in values.values())
    records = host.resolve(".torchx-slurm")
    found = host.run(["grep", "-rlE", "|".join(values.values()), records]).stdout.splitlines()
    assert sorted(path.rpartition("/secrets/")[2] for path in found) == ["db/key", "hf"]
    for path in found:
        assert host.run(["stat", "-c", "%a", path]).stdout == "600\n"
    scheduler.delete(app_id)
    assert not any(map(host.exists, found))
    scheduler.close()


@pytest.mark.gate
def test_prune_removes_workspaces_that_no_job_uses(laptop: Torchx, work: Path) -> None:
    host = find_host("bash")
    trees = host.resolve("~/.torchx/workspaces")
    before = {tree.name for tree in host.list_trees(trees)}
    (work / "program.py").write_text("# used")
    run = ["run", "-s", "slurm@bash", "-cfg", "extra=hold", "utils.sh", "true"]
    waiting = output(laptop(*run)).strip()
    [used] = {tree.name for tree in host.list_trees(trees)} - before
    prune = ["workspace", "prune", "--yes", "--only", "host-workspaces", "--older-than", "0s"]
    assert "has not ended, and may use it" in output(laptop(*prune))
    assert host.exists(f"{trees}/{used}")
    output(laptop("cancel", waiting))
    assert f"bash:{trees}/{used}" in output(laptop(*prune))
    assert not host.exists(f"{trees}/{used}")


def test_a_sweep_runs_on_another_machine(laptop: Torchx, work: Path) -> None:
    (work / "train.py").write_text("import sys\nprint('trained', *sys.argv[1:])\n")
    done = laptop(
        "sweep", "-s", "slurm@bash", "--wait", "--grid", "lr=1,2,3", "--", "python3", "train.py"
    )
    handle = output(done).strip().splitlines()[-1]
    assert "SUCCEEDED" in output(laptop("sweep", "status", handle))
    shown = output(laptop("sweep", "log", handle))
    assert [f"--lr {k}" in shown or f"--lr={k}" in shown for k in (1, 2, 3)] == [True] * 3


@pytest.mark.gate
@pytest.mark.parametrize(("name", "level"), [("bash", "ok"), ("no-such-host.invalid", "error")])
def test_doctor_connects_to_a_configured_host(
    laptop: Torchx, work: Path, name: str, level: str
) -> None:
    (work / ".torchxconfig").write_text(f"[slurm]\nhost = {name}\n")
    shown = json.loads(laptop("doctor", "-s", "slurm", "--timeout", "60", "--json").stdout)
    [found] = [one for one in shown if one["check"] == "host"]
    assert found["level"] == level
    assert name in found["message"]
