"""Tests of options of ``torchx run`` that work for every component, and of misplaced options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchx_kit.jobs.attempts import AttemptOpts


def test_name_and_variables_are_set_for_any_component(
    cli: Any, plugin: Any, components: str, tmp_path: Path
) -> None:
    words = ["--name", "mine", "--env", "A=x=y", "--env", "B="]
    assert cli("run", *words, "comp.py:job").out == "fake://torchx/mine-0\n"
    app = plugin.apps["mine-0"].app
    assert (app.name, app.roles[0].env["A"], app.roles[0].env["B"]) == ("mine", "x=y", "")
    text = cli("run", "--dryrun", "--workspace=", "-o", "yaml", "comp.py:job").out
    (tmp_path / "job.yaml").write_text(text)
    assert cli("run", *words, "job.yaml").out == "fake://torchx/mine-1\n"
    data = json.loads(cli("run", "--dryrun", "--json", *words, "comp.py:job").out)
    assert (data["app"]["name"], data["app"]["roles"][0]["env"]["A"]) == ("mine", "x=y")
    # the journal has the changed app
    assert cli("rerun", "@2").out == "fake://torchx/mine-2\n"


def test_a_wrong_variable_is_an_error_that_does_not_show_it(cli: Any, components: str) -> None:
    result = cli("run", "--env", "A=1", "--env", "sk_secret", "comp.py:job")
    assert result.code == 2
    assert "--env number 2 is not of the form KEY=VALUE" in result.error
    assert "sk_secret" not in result.err


def test_setup_needs_a_scheduler_with_this_option(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = cli("run", "--setup", "module load cuda", "comp.py:job")
    assert result.code == 2
    assert "scheduler fake has no option 'setup'" in result.error
    scheduler = type(plugin.create("x"))
    options = scheduler._run_opts

    def with_setup(self: Any) -> Any:
        opts = options(self)
        opts.add("setup", type_=list[str], help="lines", default=None)
        return opts

    monkeypatch.setattr(scheduler, "_run_opts", with_setup)
    lines = ["--setup", "module load cuda", "--setup", "set -x; echo a,b"]
    assert cli("run", "-cfg", "setup=first", *lines, "comp.py:job").code == 0
    assert plugin.apps["job-0"].cfg["setup"] == ["first", "module load cuda", "set -x; echo a,b"]


def test_time_limit_sets_the_option_with_a_unit(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "fake has no option 'time'" in cli("run", "--time", "2h", "comp.py:job").error
    scheduler = type(plugin.create("x"))
    options = scheduler._run_opts

    def with_time(self: Any) -> Any:
        opts = options(self)
        opts.add("time", type_=str, help="limit", default=None)
        return opts

    monkeypatch.setattr(scheduler, "_run_opts", with_time)
    for text in ("2h", "1-12:00", "1:30", "0:01:30"):
        assert cli("run", "--time", text, "comp.py:job").code == 0
    found = [app.cfg["time"] for app in plugin.apps.values()]
    assert found == ["2h", "1-12:00", "5400s", "90s"]
    for text in ("90", "soon", "1:3", ""):
        result = cli("run", "--time", text, "comp.py:job")
        assert result.code == 2
        assert f"--time {text}: not a time with a unit; write 90s" in result.error


def test_options_of_attempts_need_a_scheduler_with_these_options(
    cli: Any, plugin: Any, components: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {
        "--requeue": True,
        "--resume_dir runs/a": "runs/a",
        "--max_node_failures 0": 0,
        "--max_total_time 1:30": "5400s",
        "--requeue_exit_codes 3,4": ["3", "4"],
    }
    for option, *value in map(str.split, words):
        result = cli("run", option, *value, "comp.py:job")
        assert result.code == 2
        assert f"{option}: scheduler fake has no option '{option[2:]}'" in result.error
    assert not plugin.apps
    scheduler = type(plugin.create("x"))
    options = scheduler._run_opts

    def with_attempts(self: Any) -> Any:
        return options(self) | AttemptOpts.as_runopts()

    monkeypatch.setattr(scheduler, "_run_opts", with_attempts)
    defaults = {name: opt.default for name, opt in AttemptOpts.as_runopts()}
    for given, value in {**words, "": None}.items():
        plugin.apps.clear()
        assert cli("run", *given.split(), "comp.py:job").code == 0
        (app,) = plugin.apps.values()
        changed = {given.split()[0][2:]: value} if given else {}
        assert {name: app.cfg[name] for name in defaults} == {**defaults, **changed}
    assert cli("run", "--max_node_failures", "-1", "comp.py:job").code == 2


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("run comp.py:job --cpu 2", "unknown option --cpu"),
        ("run comp.py:job --wait", "--wait belongs to torchx run; put it before comp.py:job"),
        ("run comp.py:job -s fake", "-s belongs to torchx run; put it before comp.py:job"),
        ("run comp.py:job --env=A=b", "--env belongs to torchx run; put it before comp.py:job"),
        (
            "run comp.py:job --parent-run-id 7",
            "--parent-run-id belongs to torchx run; put it before comp.py:job",
        ),
        ("run --log_level DEBUG comp.py:job", "--log_level belongs to torchx; put it before run"),
        ("status --debug @1", "--debug belongs to torchx; put it before status"),
        ("--wait run comp.py:job", "--wait belongs to torchx run; put it after run"),
        ("-s fake list", "-s belongs to torchx list; put it after list"),
        ("--watch list", "no such option --watch"),
        ("run comp.py:job --wat", "unknown option --wat"),
    ],
)
def test_a_misplaced_option_says_where_it_belongs(
    words: str, error: str, cli: Any, components: str
) -> None:
    result = cli(*words.split())
    assert result.code == 2
    assert error in result.error


def test_an_option_is_added_to_the_list_of_a_file(
    cli: Any, plugin: Any, components: str, tmp_path: Path
) -> None:
    (tmp_path / ".torchxconfig").write_text("[fake]\ntags = a,b\n")
    assert cli("run", "-cfg", "tags+=c,d", "-cfg", "queue=q", "comp.py:job").code == 0
    assert plugin.apps["job-0"].cfg["tags"] == ["a", "b", "c", "d"]
    assert cli("run", "-cfg", "tags=x", "-cfg", "tags+=y", "comp.py:job").code == 0
    assert plugin.apps["job-1"].cfg["tags"] == ["x", "y"]
    assert cli("rerun", "@1", "-cfg", "tags+=z").code == 0
    assert plugin.apps["job-2"].cfg["tags"] == ["x", "y", "z"]
    for literal in ("queue=q,tags+=z", "tags+=z,queue=q"):
        assert cli("run", "-cfg", literal, "comp.py:job").code == 0
        _, app = plugin.apps.popitem()
        assert (app.cfg["queue"], app.cfg["tags"]) == ("q", ["a", "b", "z"])
    result = cli("run", "-cfg", "queue+=q", "comp.py:job")
    assert result.code == 2
    assert "-cfg queue+=: the option 'queue' is no list; write queue=" in result.error


def test_unknown_options_are_dropped_on_request(
    cli: Any, plugin: Any, components: str, tmp_path: Path
) -> None:
    words = ["-cfg", "queue=q,partition=gpu", "comp.py:job"]
    assert "partition" in cli("run", *words).error
    found = cli("run", "--ignore-unknown-cfg", *words)
    assert found.code == 0
    assert "unknown run option `partition` dropped" in found.err
    (tmp_path / ".torchxconfig").write_text("[cli:run]\nignore_unknown_cfg = true\n")
    assert cli("run", *words).code == 0
    assert plugin.apps["job-1"].cfg["queue"] == "q"


@pytest.mark.parametrize(
    "words",
    [
        ["-c", "queue=q"],
        ["--scheduler_arg", "queue=q"],
        ["--work=", "-cfg", "queue=q"],
        ["--parent", "x", "-cfg=queue=q"],
        ["--no-w", "-cfg", "queue=q"],
        ["--na", "job", "-cfg", "queue=q"],
    ],
)
def test_options_before_the_target_may_be_abbreviated(
    cli: Any, plugin: Any, components: str, words: list[str]
) -> None:
    assert cli("run", *words, "comp.py:job", "--rep", "2").code == 0
    assert plugin.apps["job-0"].cfg["queue"] == "q"


def test_an_abbreviation_of_several_options_is_an_error(cli: Any, components: str) -> None:
    result = cli("run", "--n", "x", "comp.py:job")
    assert result.code == 2
    assert "no such option" in result.error.lower()
