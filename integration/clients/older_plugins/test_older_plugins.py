"""Tests of installed plugins for upstream's releases: entry points and a namespace package."""

from __future__ import annotations

import json
import re
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
    shown: dict[str, Any] = json.loads(succeeded(call("torchx", "plugins", "-o", "json")))
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


def test_environment_variables_reach_factories_that_accept_them(
    install: Install, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme-torchx", SCHEDULERS, ["acme_schedulers"])
    monkeypatch.setenv("TORCHX_POOL", "blue")
    monkeypatch.setenv("TORCHX_UNHEARD_OF", "1")
    for name in ("acme", "acme_strict"):
        shown = succeeded(call("torchx", "run", "--dryrun", "-s", name, *ECHO))
        assert "pool=blue" in shown


def test_a_plugin_scheduler_hides_no_other_scheduler(install: Install, call: Call) -> None:
    before = {row["name"] for row in plugins(call)["schedulers"]}
    install("acme-torchx", SCHEDULERS, ["acme_schedulers"])
    distributions = {row["name"]: row["distribution"] for row in plugins(call)["schedulers"]}
    assert set(distributions) == before | {"acme", "acme_strict", "acme_workspace"}
    assert distributions["acme"] == "acme_torchx"
    assert succeeded(call("torchx", "run", *ECHO)).startswith("local_cwd://")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("acme_schedulers:create_none", "takes 0 positional arguments but"),
        ("acme_schedulers:nothing", "has no attribute 'nothing'"),
        ("no_such_module:create", "No module named 'no_such_module'"),
    ],
)
def test_a_scheduler_that_cannot_be_created_is_an_error(
    install: Install, call: Call, value: str, message: str
) -> None:
    install("acme-torchx", {"torchx.schedulers": [f"acme = {value}"]}, ["acme_schedulers"])
    done = call("torchx", "run", "--dryrun", "-s", "acme", *ECHO)
    assert done.returncode == 2
    assert "acme_torchx 1.2" in done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert succeeded(call("torchx", "run", "--dryrun", *ECHO))


def test_two_schedulers_with_one_name_are_a_conflict(install: Install, call: Call) -> None:
    install("acme-torchx", SCHEDULERS, ["acme_schedulers"])
    install("other-torchx", {"torchx.schedulers": ["acme = elsewhere:create"]})
    (conflict,) = plugins(call)["conflicts"]
    assert conflict["claimed_by"] == ["acme_torchx 1.2", "other_torchx 1.2"]
    done = call("torchx", "run", "--dryrun", "-s", "acme", *ECHO)
    assert done.returncode == 2
    assert "given by acme_torchx 1.2 and other_torchx 1.2" in done.stderr
    assert succeeded(call("torchx", "run", "--dryrun", *ECHO))


# -- The entry-point group torchx.schedulers.orchestrator


def test_an_orchestrator_has_a_section_of_the_configuration(
    install: Install, script: Script
) -> None:
    groups = {"torchx.schedulers.orchestrator": ["orch = acme_schedulers:create_scheduler"]}
    install("acme-torchx", groups, ["acme_schedulers"])
    Path(".torchxconfig").write_text("[orch]\nqueue = mine\n")
    code = "from torchx.runner.config import apply\ncfg = {}\napply('orch', cfg)\nprint(cfg)\n"
    assert script(code) == "{'queue': 'mine'}\n"


# -- The entry-point group torchx.named_resources


def test_a_named_resource_is_found(install: Install, call: Call) -> None:
    groups = {"torchx.named_resources": ["gpu_x2 = acme_parts:gpu_x2"]}
    install("acme-torchx", groups, ["acme_parts"])
    run = ("torchx", "run", "--dryrun", "--json", "utils.sh", "-h", "gpu_x2", "--", "true")
    (role,) = json.loads(succeeded(call(*run)))["app"]["roles"]
    assert (role["resource"]["gpu"], role["resource"]["memMB"]) == (2, 122_000)
    done = call("torchx", "run", "--dryrun", "utils.sh", "-h", "gpu_x3", "--", "true")
    assert done.returncode == 2
    assert "Did you mean `gpu_x2`?" in done.stderr


# -- The entry-point group torchx.components, with the results that upstream's page shows


def builtins(call: Call) -> list[str]:
    return [row["name"] for row in json.loads(succeeded(call("torchx", "builtins", "-o", "json")))]


def test_plugin_components_replace_the_built_in_ones(install: Install, call: Call) -> None:
    install("my-project", {"torchx.components": ["foo = my_project.bar"]}, ["my_project"])
    shown = succeeded(call("torchx", "builtins"))
    assert shown.splitlines()[0] == "Found 1 builtin components:"
    assert shown.split()[-1] == "foo.baz.trainer"
    run = ("torchx", "run", "--dryrun", "--json", "foo.baz.trainer", "--", "--name", "test app")
    assert json.loads(succeeded(call(*run)))["app"]["name"] == "test app"
    assert call("torchx", "run", "--dryrun", *ECHO).returncode == 2


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


def test_a_missing_component_module_is_reported_without_a_traceback(
    install: Install, call: Call
) -> None:
    install("my-project", {"torchx.components": ["foo = my_projekt.bar"]}, ["my_project"])
    done = call("torchx", "builtins")
    assert "my_projekt" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    done = call("torchx", "run", "--dryrun", "foo.baz.trainer")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


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


def test_an_event_handler_gets_the_events_of_the_runner(
    install: Install, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    groups = {"torchx.event_handlers": ["null = acme_parts:event_handler"]}
    install("acme-torchx", groups, ["acme_parts"])
    monkeypatch.setenv("ACME_EVENTS", str(tmp_path / "events"))
    succeeded(call("torchx", "run", *ECHO))
    events = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    apis = [event["api"] for event in events]
    assert apis[:2] == ["dryrun", "schedule"]
    assert {event["scheduler"] for event in events[:2]} == {"local_cwd"}


# -- The entry-point group torchx.cli.cmds


def test_an_argparse_command_is_a_sub_command(install: Install, call: Call) -> None:
    groups = {"torchx.cli.cmds": ["quota = acme_parts:CmdQuota", "gone = acme_parts:CmdGone"]}
    install("acme-torchx", groups, ["acme_parts"])
    help_ = succeeded(call("torchx", "--help"))
    assert re.search(r"^  quota +Show the quota of a team\.$", help_, re.M)
    assert re.search(r"^  gone +\(broken: ", help_, re.M)
    assert "  run " in help_
    assert succeeded(call("torchx", "quota", "--team", "ml", "a")) == "quota of ml: ['a']\n"
    help_ = succeeded(call("torchx", "quota", "--help"))
    assert "usage: torchx quota" in help_
    assert "the name of the team" in help_
    assert call("torchx", "quota").returncode == 2
    done = call("torchx", "gone")
    assert done.returncode == 2
    assert "has no attribute 'CmdGone'" in done.stderr


# -- The entry-point groups torchx.file and torchx.version


def test_a_plugin_reads_component_files(install: Install, call: Call) -> None:
    groups = {"torchx.file": ["get_file_contents = acme_parts:get_file_contents"]}
    install("acme-torchx", groups, ["acme_parts"])
    run = ("torchx", "run", "--dryrun", "--json", "store://train.py:job", "--name", "n2")
    assert json.loads(succeeded(call(*run)))["app"]["name"] == "n2"
    done = call("torchx", "run", "--dryrun", "store://nothing.py:job")
    assert done.returncode == 2
    assert "store://nothing.py" in done.stderr


def test_a_plugin_sets_the_default_image(install: Install, call: Call, script: Script) -> None:
    groups = {"torchx.version": ["get_torchx_image = acme_parts:get_torchx_image"]}
    install("acme-torchx", groups, ["acme_parts"])
    image, by_component = script(
        """
        from torchx.components.utils import echo
        import torchx
        print(torchx.IMAGE, echo("hi").roles[0].image)
        """
    ).split()
    assert image.startswith("registry.acme.example/torchx:")
    assert by_component == image
    run = ("torchx", "run", "--dryrun", "--json", *ECHO)
    assert json.loads(succeeded(call(*run)))["app"]["roles"][0]["image"] == image


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
