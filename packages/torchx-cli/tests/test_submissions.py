"""Tests of ``torchx history``, ``rerun`` and ``diff``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchx_specs.errors import BackendError


@pytest.fixture
def run(cli: Any, components: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs ``torchx run`` with given words, and returns the handle."""

    def submit(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["/usr/bin/torchx", "run", *words])
        result = cli("run", *words)
        assert result.code == 0, result.err
        return str(result.out.strip())

    return submit


# -- torchx history


def test_history_shows_submissions_without_a_query(
    run: Any, cli: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("comp.py:job", "--name", "one")
    run("-cfg", "queue=q", "comp.py:job", "--name", "two")
    plugin.schedulers = []
    lines = cli("history").out.splitlines()
    assert lines[0].split("  ")[0] == "NUMBER"
    assert lines[2].startswith("@1        fake://torchx/two-1  two         20")
    assert lines[2].endswith("torchx run -cfg queue=q comp.py:job --name two")
    assert lines[3].startswith("@2        fake://torchx/one-0  one")
    assert len(lines) == 4


def test_history_data(run: Any, cli: Any, tmp_path: Path) -> None:
    for name in ("one", "two", "one"):
        run("comp.py:job", "--name", name)
    data = json.loads(cli("history", "--json", "--name", "one").out)
    assert [(entry["number"], entry["handle"]) for entry in data] == [
        (1, "fake://torchx/one-2"),
        (3, "fake://torchx/one-0"),
    ]
    # The folder of the tests may be inside a git repository.
    assert {**data[0], "submitted": None, "git_commit": None} == {
        "number": 1,
        "handle": "fake://torchx/one-2",
        "app_id": "one-2",
        "name": "one",
        "scheduler": "fake",
        "submitted": None,
        "command": ["torchx", "run", "comp.py:job", "--name", "one"],
        "folder": str(tmp_path),
        "workspace": {str(tmp_path): ""},
        "workspace_digest": None,
        "git_commit": None,
    }
    assert data[0]["submitted"].endswith("Z")
    assert yaml.safe_load(cli("history", "-o", "yaml", "--name", "one").out) == data
    assert len(json.loads(cli("history", "--json", "-n", "2").out)) == 2
    assert json.loads(cli("history", "--json", "-s", "other").out) == []
    assert json.loads(cli("history", "--json", "--since", "2099-01-01").out) == []


def test_text_with_newlines_stays_in_its_row(run: Any, cli: Any, plugin: Any) -> None:
    run("--env", "A=x\ny", "comp.py:job")
    plugin.add("x", "c\nd")
    assert len(cli("history").out.splitlines()) == 3
    assert len(cli("list").out.splitlines()) == 4


def test_a_failed_submission_is_not_in_the_history(
    run: Any, cli: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: Any) -> Any:
        raise BackendError("the queue is closed")

    monkeypatch.setattr(type(plugin.create("x")), "schedule", refuses)
    assert cli("run", "comp.py:job").code == 3
    assert json.loads(cli("history", "--json").out) == []


def test_a_journal_that_cannot_be_written_does_not_fail_a_run(
    run: Any, cli: Any, tmp_path: Path
) -> None:
    (tmp_path / "home").write_text("")
    result = cli("run", "comp.py:job")
    assert (result.code, result.out) == (0, "fake://torchx/job-0\n")
    [line] = [line for line in result.err.splitlines() if "WARNING" in line]
    assert "has no entry for fake://torchx/job-0" in line
    assert cli("history").code == 0


# -- torchx rerun


def test_rerun_submits_the_same_app(run: Any, cli: Any, plugin: Any, tmp_path: Path) -> None:
    first = run("-cfg", "queue=q", "comp.py:job", "--replicas", "3")
    (tmp_path / "comp.py").unlink()  # the component is not needed
    result = cli("rerun", first)
    assert (result.code, result.out) == (0, "fake://torchx/job-1\n")
    one, two = plugin.apps["job-0"], plugin.apps["job-1"]
    assert two.cfg == one.cfg
    assert two.cfg["queue"] == "q"
    for app in (one.app, two.app):
        app.roles[0].env.pop("TORCHX_JOB_ID")
    assert two.app == one.app
    assert json.loads(cli("history", "--json", "-n", "1").out)[0]["handle"] == "fake://torchx/job-1"


def test_rerun_changes_fields_and_options(run: Any, cli: Any, plugin: Any) -> None:
    run("-cfg", "queue=q,project=p", "comp.py:job")
    words = ["--set", "env.LR=0.1", "--set", "main.num_replicas=2", "--set", "name=new"]
    assert cli("rerun", "@1", *words, "-cfg", "queue=r").out == "fake://torchx/new-1\n"
    new = plugin.apps["new-1"]
    assert (new.app.roles[0].num_replicas, new.app.roles[0].env["LR"]) == (2, "0.1")
    assert (new.cfg["queue"], new.cfg["project"]) == ("r", "p")


def test_rerun_changes_arguments_of_the_component(run: Any, cli: Any, plugin: Any) -> None:
    run("--env", "A=1", "comp.py:job", "--replicas", "2")
    result = cli("rerun", "@1", "--replicas", "3", "-cfg", "queue=r")
    assert result.out == "fake://torchx/job-1\n"
    assert "the call is now: torchx run comp.py:job --replicas 3" in result.err
    cli("rerun", "@1", "--name", "other")
    roles = {app_id: app.app.roles[0] for app_id, app in plugin.apps.items()}
    assert [(r.num_replicas, r.env["A"]) for r in roles.values()] == [(2, "1"), (3, "1"), (3, "1")]
    assert [*roles] == ["job-0", "job-1", "other-2"]


def test_rerun_keeps_the_given_name_of_the_app(run: Any, cli: Any) -> None:
    run("--name", "mine", "comp.py:job")
    assert cli("rerun", "@1", "--replicas", "3").out == "fake://torchx/mine-1\n"


def test_rerun_opens_the_call_in_an_editor(
    run: Any, cli: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("comp.py:job", "--replicas", "2")
    monkeypatch.setenv("VISUAL", "sed -i s/2/5/")
    assert cli("rerun", "@1", "--edit").out == "fake://torchx/job-1\n"
    assert plugin.apps["job-1"].app.roles[0].num_replicas == 5
    monkeypatch.setenv("VISUAL", "true")
    assert "nothing is submitted" in cli("rerun", "@1", "--edit").error


def test_rerun_of_an_app_without_a_component_names_set(run: Any, cli: Any, tmp_path: Path) -> None:
    role = {"name": "r", "image": "i", "entrypoint": "e"}
    app = {"name": "a", "roles": [{**role, "resource": {"cpu": 1, "gpu": 0, "memMB": 1}}]}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(app))
    run("job.yaml")
    assert "change fields of the app with --set" in cli("rerun", "@1", "--x", "1").error


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "job"),
        ("from torchx_specs import AppDef\ndef job(x: int = 1) -> AppDef: ...\n", "--replicas"),
    ],
)
def test_rerun_of_a_component_that_has_changed_is_one_line(
    run: Any, cli: Any, tmp_path: Path, source: str, message: str
) -> None:
    run("comp.py:job", "--replicas", "2")
    (tmp_path / "comp.py").write_text(source)
    result = cli("rerun", "@1", "--x", "3")
    assert result.code == 2
    assert message in result.error


def test_rerun_needs_no_query_until_the_submission(
    run: Any, cli: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*args: Any) -> Any:
        raise AssertionError("queried")

    handle = run("comp.py:job")
    for method in ("describe", "list"):
        monkeypatch.setattr(type(plugin.create("x")), method, refuses)
    assert cli("rerun", "--dryrun", handle).code == 0
    assert cli("rerun", "--dryrun", "job").code == 0
    assert list(plugin.apps) == ["job-0"]


def test_rerun_on_another_scheduler(run: Any, cli: Any, plugin: Any, others: Any) -> None:
    handle = run("-s", "fake", "-cfg", "queue=q", "comp.py:job")
    assert cli("rerun", "-s", "other", handle).out == "other://torchx/job-0\n"
    assert others.apps["job-0"].cfg["queue"] is None


def test_rerun_waits_and_reports_a_failure(run: Any, cli: Any, plugin: Any) -> None:
    run("-cfg", "end=FAILED", "comp.py:job")
    result = cli("rerun", "--wait", "--json", "@1")
    assert (result.code, json.loads(result.out)["state"]) == (1, "FAILED")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ("@1 --set imag=x", 2, "no field or role 'imag'; did you mean 'image'?"),
        ("@1 --set num_replicas=many", 2, "num_replicas"),
        ("@1 -cfg que=x", 2, "que"),
        ("@1 --nme x", 2, "--nme is not among the arguments; did you mean '--name'?"),
        ("@1 x", 2, "'x' is not the name of an argument"),
        ("--dryrn @1", 2, "no such option --dryrn; did you mean '--dryrun'?"),
        ("fake://torchx/theirs-1", 2, "is not in the journal of your submissions"),
        ("@7", 1, "the journal has 1 submission of this user"),
    ],
)
def test_wrong_reruns_are_one_line(
    words: str, code: int, error: str, run: Any, cli: Any, plugin: Any
) -> None:
    run("comp.py:job")
    plugin.add("theirs-1", "theirs")
    result = cli("rerun", *words.split())
    assert result.code == code
    assert error in result.error


def test_rerun_warns_of_another_commit(run: Any, cli: Any, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=n", "-c", "user.email=e@x"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "one")
    run("comp.py:job")
    assert "has commit" not in cli("rerun", "--dryrun", "@1").err
    git("commit", "-q", "--allow-empty", "-m", "two")
    assert f"workspace {tmp_path} has commit" in cli("rerun", "--dryrun", "@1").err


# -- torchx diff


def test_diff_shows_what_changed_since_the_submission_before(run: Any, cli: Any) -> None:
    run("comp.py:job")
    run("comp.py:job", "--name", "between")
    run("-cfg", "queue=q", "comp.py:job", "--replicas", "2")
    lines = cli("diff", "@1").out.splitlines()
    assert lines[0].startswith("--- fake://torchx/job-0 (20")
    assert lines[1].startswith("+++ fake://torchx/job-2 (20")
    assert lines[2:] == [
        "app.roles.main.num_replicas: 1 -> 2",
        'cfg.queue: (absent) -> "q"',
    ]
    data = json.loads(cli("diff", "--json", "@3", "@1").out)
    assert data["differences"] == [
        {"path": "app.roles.main.num_replicas", "before": 1, "after": 2},
        {"path": "cfg.queue", "before": None, "after": "q"},
    ]
    assert cli("diff", "@1", "@1").out.splitlines()[2:] == ["no differences"]


def test_diff_compares_files_and_apps_that_others_submitted(
    run: Any, cli: Any, plugin: Any, tmp_path: Path
) -> None:
    run("comp.py:job")
    text = cli("run", "--dryrun", "--workspace=", "-o", "yaml", "comp.py:job").out
    (tmp_path / "job.yaml").write_text(text.replace("img", "other"))
    lines = cli("diff", "@1", "job.yaml").out.splitlines()
    assert lines[1:] == ["+++ job.yaml", 'app.roles.main.image: "img" -> "other"']
    assert cli("diff", "job.yaml").out.splitlines()[2:] == lines[2:]
    plugin.add("theirs-1", "theirs")
    assert "app.name" in cli("diff", "@1", "fake://torchx/theirs-1").out
    assert cli("diff", "@1", "fake://torchx/missing").code == 1


def test_diff_names_the_options_of_a_program(run: Any, cli: Any) -> None:
    for lr in ("0.3", "0.5"):
        run("comp.py:script", "--", "--lr", lr)
    assert cli("diff", "@2", "@1").out.splitlines()[2:] == ['--lr: "0.3" -> "0.5"']


def test_diff_masks_secrets(run: Any, cli: Any) -> None:
    run("comp.py:job")
    cli("rerun", "@1", "--set", "env.HF_TOKEN=hf_secret1")
    for words in (["diff", "@1"], ["diff", "--json", "@1"]):
        out = cli(*words).out
        assert "HF_TOKEN" in out
        assert "hf_secret1" not in out


@pytest.mark.parametrize(
    "changed",
    [["--api-key", "two22", "x"], ["--api-key", "two22"], ["--api-key", "two22", "x", "y"]],
)
def test_diff_masks_the_values_of_options(plugin: Any, cli: Any, changed: list[str]) -> None:
    for name, args in (("one", ["--api-key", "one11", "x"]), ("two", changed)):
        role = {"name": "r", "image": "i", "entrypoint": "e", "args": args}
        Path(f"{name}.json").write_text(json.dumps({"name": "job", "roles": [role]}))
    for words in (["diff", "one.json", "two.json"], ["diff", "-o", "json", "one.json", "two.json"]):
        result = cli(*words)
        assert result.code == 0
        assert "args[" in result.out
        assert "one11" not in result.out
        assert "two22" not in result.out


def test_diff_without_an_earlier_submission_is_an_error(run: Any, cli: Any, plugin: Any) -> None:
    run("comp.py:job")
    result = cli("diff", "@1")
    assert result.code == 2
    assert "no earlier submission of an app 'job'" in result.error


def test_a_vanished_app_is_one_line(run: Any, cli: Any, plugin: Any) -> None:
    run("comp.py:job")
    plugin.apps.clear()
    for words in (["status", "@1"], ["describe", "job"], ["log", "@1"], ["wait", "@1"]):
        result = cli(*words)
        assert result.code == 1
        assert result.error.startswith("unknown app: fake://torchx/job-0 ")
    assert cli("rerun", "@1").code == 0
    assert list(plugin.apps) == ["job-0"]
