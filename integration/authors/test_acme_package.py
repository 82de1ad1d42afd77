"""Tests of examples/acme-torchx, the package of an organisation, installed from its wheel."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "acme-torchx"


@pytest.fixture
def site(make_site: Callable[[], Any], tmp_path: Path) -> Any:
    """Return an environment with torchx-cli, torchx-tracker and the wheel of the example."""
    command = [sys.executable, "-m", "uv", "build", "-q", "--wheel", "-o", str(tmp_path / "dist")]
    subprocess.run([*command, str(EXAMPLE)], check=True)
    [wheel] = (tmp_path / "dist").glob("*.whl")
    site = make_site()
    # Jobs record their runs with torchx-tracker.
    site.install("torchx-cli", "torchx-tracker", wheel)
    site.environ["ACME_HOME"] = str(tmp_path / "acme home")
    return site


@pytest.fixture
def worker(site: Any) -> Iterator[subprocess.Popen[str]]:
    """Start ``acme-worker``, and stop it after the test."""
    with subprocess.Popen(
        [str(site.bin / "acme-worker"), "--cpus", "32"],
        env=site.environ,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "32 CPUs for the jobs of queue default" in process.stdout.readline()
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_only_the_requirements_are_installed(site: Any) -> None:
    plugins = json.loads(site.check("torchx", "plugins", "-o", "json"))
    assert plugins["problems"] == []
    assert [s["name"] for s in plugins["schedulers"]] == ["acme"]
    assert {"acme-torchx"} == {
        r["distribution"].replace("_", "-") for r in plugins["named_resources"]
    }


def test_a_job_from_submission_to_deletion(site: Any, worker: Any) -> None:
    (site.work / ".torchxconfig").write_text(
        "[torchx:tracker]\nacme =\n\n[component:acme.train.script]\nproject = vision\n"
    )
    (site.work / "train.py").write_text(
        "import os, sys\n"
        "from torchx_tracker import app_run_from_env\n"
        "replica = os.environ['ACME_REPLICA']\n"
        "if replica == '0':\n"
        "    run = app_run_from_env()\n"
        "    run.add_metadata(lr=float(sys.argv[2]), project=os.environ['ACME_PROJECT'])\n"
        "print('replica', replica, sys.argv[1:])\n"
    )
    arguments = ["--file", site.work / "train.py", "--replicas", "2", "--", "--lr", "0.1"]
    # acme is the only scheduler, so `-s` is not necessary.
    handle = site.check("torchx", "run", "acme.train.script", *arguments).strip()
    assert handle.startswith("acme://torchx/train-")
    site.check("torchx", "wait", handle)
    log = site.check("torchx", "log", handle)
    assert sorted(line.partition(" ")[2] for line in log.splitlines()) == [
        f"replica {k} ['--lr', '0.1']" for k in range(2)
    ]
    code = (
        "import sys\n"
        "from acme_torchx.tracker import create\n"
        "print(dict(create(None).metadata(sys.argv[1])))\n"
    )
    recorded = site.check("python", "-c", code, handle)
    assert recorded == "{'lr': 0.1, 'project': 'vision'}\n"
    assert json.loads(site.check("torchx", "queues", "--json")) == {"default": {"SUCCEEDED": 1}}
    site.check("torchx", "delete", handle)
    assert site.run("torchx", "status", handle).returncode == 1


def test_a_pending_job_is_cancelled(site: Any, worker: Any) -> None:
    run = ["run", "-cfg", "queue=night", "acme.train.script", "--file", "x.py", "--project", "p"]
    handle = site.check("torchx", *run).strip()
    assert site.check("torchx", "queues") == "night: 1 pending, 0 running\n"
    site.check("torchx", "cancel", handle)
    assert json.loads(site.check("torchx", "status", "-o", "json", handle))["state"] == "CANCELLED"


def test_acmes_component_replaces_the_built_in_one(site: Any, worker: Any) -> None:
    program = "import os; print('site', os.environ['ACME_SITE'])"
    handle = site.check("torchx", "run", "utils.python", "-c", program).strip()
    site.check("torchx", "wait", handle)
    assert site.check("torchx", "log", handle).endswith("site berlin\n")
    # The other built-in components are unchanged.
    assert site.run("torchx", "run", "--dryrun", "utils.echo", "--msg", "hi").returncode == 0


def test_an_unreadable_database_is_one_line_and_exit_code_3(site: Any) -> None:
    done = site.run("torchx", "list", "-s", "acme")
    assert done.returncode == 3
    assert "torchx: error: acme: cannot list the jobs in" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_packages_own_checks_pass(make_site: Callable[[], Any], tmp_path: Path) -> None:
    author = make_site()
    author.install("-e", EXAMPLE, "--group", f"{EXAMPLE / 'pyproject.toml'}:dev")
    options = ["-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'pytest'}"]
    assert " passed" in author.check("pytest", *options, cwd=EXAMPLE)
    author.check("ruff", "check", "--no-cache", cwd=EXAMPLE)
    author.check("ruff", "format", "--check", "--no-cache", cwd=EXAMPLE)
    author.check("mypy", "--cache-dir", tmp_path / "mypy", cwd=EXAMPLE)
