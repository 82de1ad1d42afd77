"""Tests of the plugin in docs/plugins.md, installed and used as the page describes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = re.compile(r"^```\w+ title=(\S+)\n(.*?)^```$", re.M | re.S)


@pytest.fixture
def acme(repository: Path, environment: dict[str, str], tmp_path: Path) -> Path:
    """Install the plugin of the page into a folder on PYTHONPATH, and return its source folder."""
    source = tmp_path / "acme"
    files = dict(FILE.findall((repository / "docs" / "plugins.md").read_text("utf-8")))
    packages = {str(Path(name).parent) for name in files} - {"."}
    files.update({f"{package}/__init__.py": "" for package in packages})
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--target", str(site), str(source)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    environment["PYTHONPATH"] = str(site)
    environment["ACME_SPOOL"] = str(tmp_path / "spool")
    return source


def test_plugin_of_the_page_behaves_as_described(
    acme: Path, torchx: Any, environment: dict[str, str]
) -> None:
    listed = torchx("plugins", "-o", "json")
    assert listed.returncode == 0, listed.stderr
    plugins = json.loads(listed.stdout)
    assert plugins["problems"] == []
    assert "acme_torchx" in {d["distribution"].replace("-", "_") for d in plugins["distributions"]}

    assert "Queue of the job." in torchx("runopts", "acme").stdout
    command = ["run", "-s", "acme", "-cfg", "queue=night", "acme.train.hello", "--replicas", "2"]
    refused = torchx(*command)
    spool = Path(environment["ACME_SPOOL"])
    assert refused.returncode == 3
    doctor = torchx("doctor", "-s", "acme")
    assert doctor.returncode == 3, doctor.stdout
    assert f"  error    {spool} is not writable\n" in doctor.stdout
    assert "           remedy: ask the operators for the group acme\n" in doctor.stdout
    assert f"error: cannot write to Acme's spool {spool}: No such file" in refused.stderr
    spool.mkdir()
    ran = torchx(*command, "--name", "you")
    assert ran.returncode == 0, ran.stderr
    handle = ran.stdout.strip()
    [job] = spool.iterdir()
    assert json.loads(job.read_text()) == {
        "app_id": job.name,
        "queue": "night",
        "commands": [["echo", "hello", "you", "from", str(k)] for k in range(2)],
    }
    assert handle == f"acme://torchx/{job.name}"
    assert json.loads(torchx("list", "-s", "acme", "-o", "json").stdout)[0]["handle"] == handle
    assert torchx("cancel", handle).returncode == 0
    assert torchx("status", handle).returncode == 1

    doctor = torchx("doctor", "-s", "acme")
    assert doctor.returncode == 0, doctor.stdout
    assert f"  ok       jobs go to {spool}, queue default\n" in doctor.stdout
    assert torchx("quota", "--team", "ops").stdout == "ops: 42 GPU hours\n"
    assert "acme.train.hello" in torchx("builtins").stdout
    environment["TORCHX_PLUGINS_DISABLED"] = "acme-torchx"
    assert torchx("quota").returncode == 2


def test_log_sink_and_notifier_of_the_page_work(acme: Path, torchx: Any, tmp_path: Path) -> None:
    config = tmp_path / "work" / ".torchxconfig"
    config.write_text("[log_sink:db]\nurl = sqlite://logs.db\n[notifier:ops]\ntype = pager\n")
    command = ["run", "--notify", "ops", "utils.echo", "--msg", "hello sink"]
    refused = torchx(*command)
    assert refused.returncode == 2
    assert "error: [notifier:ops]: the key 'path' is missing; set it" in refused.stderr
    config.write_text(f"{config.read_text()}path = pages\n")
    ran = torchx(*command)
    assert ran.returncode == 0, ran.stderr
    handle = ran.stdout.strip()
    assert (tmp_path / "work" / "pages").read_text() == f"echo SUCCEEDED: {handle}\n"
    assert torchx("delete", handle).returncode == 0
    shown = torchx("log", handle)
    assert shown.stdout == "echo/0 hello sink\n", shown.stderr
    assert "these are the logs in db (sqlite://logs.db)" in shown.stderr


def test_tracker_and_tests_of_the_plugin_work(acme: Path, environment: dict[str, str]) -> None:
    code = (
        "from torchx_tracker import app_run_from_env\n"
        "run = app_run_from_env()\n"
        "run.add_metadata(loss=0.5)\n"
        "[tracker] = run.backends\n"
        "print(tracker.config, dict(tracker.metadata(run.id)))\n"
    )
    job = {"TORCHX_JOB_ID": "acme://s/a", "TORCHX_TRACKERS": "acme"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **job, "TORCHX_TRACKER_ACME_CONFIG": "text"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "text {'loss': 0.5}\n", done.stderr
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_acme.py"],
        cwd=acme,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert re.search(r"\d+ passed", tested.stdout)
