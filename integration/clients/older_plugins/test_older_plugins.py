"""Tests of installed plugins for upstream's releases: entry points and a namespace package."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]
Script = Callable[..., str]
Install = Callable[..., None]

SCHEDULERS = {
    "torchx.schedulers": [
        "acme = acme_schedulers:create_scheduler",
        "acme_strict = acme_schedulers:create_strict",
        "acme_workspace = acme_schedulers:create_with_workspace",
    ]
}
ECHO = ("utils.echo", "--msg", "hi")


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def plugins(call: Call) -> dict[str, Any]:
    done = call("torchx", "plugins", "-o", "json")
    shown: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (2 if shown["problems"] or shown["conflicts"] else 0), done.stderr
    return shown


def problems(call: Call) -> list[tuple[str, str]]:
    return [(p["distribution"], p["message"]) for p in plugins(call)["problems"]]


# -- The entry-point group torchx.schedulers


def test_a_scheduler_of_0_7_0_runs_jobs(install: Install, call: Call, script: Script) -> None:
    install("acme-torchx", SCHEDULERS, ["acme_schedulers"])
    shown = succeeded(
        call(
            *("torchx", "run", "--dryrun", "-s", "acme", "-cfg", "queue=fast,labels=a;b"),
            *("utils.echo", "--msg", "hi", "--image", "image:1"),
        )
    )
    assert "pool=none queue=fast labels=['a', 'b']" in shown
    assert "image:1" in shown
    done = call("torchx", "run", "--wait", "-s", "acme", *ECHO)
    assert succeeded(done).strip() == "acme://torchx/job-1"
    refused = call("torchx", "run", "-s", "acme", "utils.echo", "--num_replicas", "5")
    assert refused.returncode == 2
    assert "acme: more than four replicas" in refused.stderr
    assert "Traceback" not in refused.stderr
    listed = json.loads(succeeded(call("torchx", "list", "-s", "acme", "-o", "json")))
    assert [row["app_id"] for row in listed] == ["job-0"]
    assert "queue=QUEUE" in succeeded(call("torchx", "runopts", "acme"))
    # The library finds and uses the scheduler like the command.
    assert (
        script(
            """
            from torchx.runner import get_runner
            from torchx.components.utils import echo
            from torchx.specs import AppState
            with get_runner() as runner:
                handle = runner.run(echo("hi"), "acme", {"queue": "q"})
                status = runner.status(handle)
                assert status.state == AppState.SUCCEEDED
                print(handle, status.roles[0].replicas[0].hostname)
                print(*runner.log_lines(handle, "echo"), end="")
                runner.cancel(handle)
            """
        )
        == "acme://torchx/job-1 host\nline of echo/0 of job-1\n"
    )


def test_a_workspace_is_built_by_the_method_of_0_7_0(install: Install, call: Call) -> None:
    install("acme-torchx", SCHEDULERS, ["acme_schedulers"])
    run = ("torchx", "run", "--dryrun", "-s", "acme_workspace", "-cfg", "copy_to=/x", *ECHO)
    assert f"echo: {Path.cwd()}@/x" in succeeded(call(*run))


# -- The entry-point group torchx.schedulers.orchestrator


# -- The entry-point group torchx.named_resources


# -- The entry-point group torchx.components, with the results that upstream's page shows


def builtins(call: Call) -> list[str]:
    return [row["name"] for row in json.loads(succeeded(call("torchx", "builtins", "-o", "json")))]


@pytest.mark.parametrize(
    ("entries", "trainer", "prefix"),
    [
        (["foo = my_project.bar", "torchx = torchx.components"], "foo.baz.trainer", "torchx."),
        (["_0 = my_project.bar", "_1 = torchx.components"], "baz.trainer", ""),
        (["_ = my_project.bar", "_x = torchx.components"], "baz.trainer", ""),
    ],
)
def test_built_in_components_can_be_added_back(
    install: Install, call: Call, entries: list[str], trainer: str, prefix: str
) -> None:
    before = builtins(call)
    install("my-project", {"torchx.components": entries}, ["my_project"])
    assert sorted(builtins(call)) == sorted([trainer, *(f"{prefix}{name}" for name in before)])
    assert succeeded(call("torchx", "run", "--dryrun", f"{prefix}utils.echo"))


def test_component_groups_may_overlap(install: Install, call: Call) -> None:
    groups = {"torchx.components": ["foo = my_project.bar", "test = my_project"]}
    install("my-project", groups, ["my_project"])
    assert sorted(builtins(call)) == ["foo.baz.trainer", "test.bar.baz.trainer"]


# -- The entry-point group torchx.tracker


def test_a_tracker_stores_data_that_the_command_lists(
    install: Install, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install("acme-torchx", {"torchx.tracker": ["acme = acme_parts:create_tracker"]}, ["acme_parts"])
    file = tmp_path / "tracked"
    config = f"[torchx:tracker]\nacme =\n\n[tracker:acme]\nconfig = {file}\n"
    Path(".torchxconfig").write_text(config)
    Path("job.py").write_text(
        "from torchx.tracker import app_run_from_env\n"
        "run = app_run_from_env()\nrun.add_metadata(lr=0.5)\nrun.add_artifact('m', '/m.pt')\n"
    )
    run = ("torchx", "run", "-s", "local_cwd", "utils.sh", "python", "job.py")
    handle = succeeded(call(*run)).strip()
    shown = succeeded(call("torchx", "tracker", "list", "metadata", handle))
    assert shown.split()[-2:] == ["lr", "0.5"]
    assert handle in succeeded(call("torchx", "tracker", "list", "jobs"))
    assert "/m.pt" in succeeded(call("torchx", "tracker", "list", "artifacts", handle))


# -- The entry-point group torchx.event_handlers


# -- The entry-point group torchx.cli.cmds


# -- The entry-point groups torchx.file and torchx.version


# -- The namespace package torchx_plugins


def test_plugins_in_namespace_packages_are_found(
    install: Install, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install("site", {}, ["torchx_plugins", "acme_schedulers", "acme_parts"])
    monkeypatch.setenv("ACME_EVENTS", str(tmp_path / "events"))
    shown = plugins(call)
    for kind, name in (
        ("schedulers", "site_batch"),
        ("named_resources", "site_a100_4"),
        ("named_resources", "site_default"),
        ("trackers", "site_tracker"),
        ("event_handlers", "null"),
    ):
        assert name in [row["name"] for row in shown[kind]], kind
    ((_, message),) = problems(call)
    assert "torchx_plugins.schedulers.broken" in message
    assert "the cluster's library is missing" in message
    done = call("torchx", "run", "--dryrun", "-s", "site_batch", *ECHO)
    assert "pool=namespace" in succeeded(done)
    run = ("torchx", "run", "--dryrun", "--json", "utils.sh", "-h", "site_a100_4", "--", "true")
    resource = json.loads(succeeded(call(*run)))["app"]["roles"][0]["resource"]
    assert (resource["cpu"], resource["gpu"]) == (32, 4)
    assert [json.loads(line)["api"] for line in (tmp_path / "events").read_text().splitlines()]
    monkeypatch.setenv("TORCHX_PLUGINS_SOURCE", "2")
    assert "site_batch" not in [row["name"] for row in plugins(call)["schedulers"]]
    assert problems(call) == []
