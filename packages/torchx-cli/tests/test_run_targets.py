"""Tests of the targets of ``torchx run``: scripts, modules, commands and components."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from torchx_cli.commands.run import command
from torchx_cli.launch.targets import Form, read_target, split_form
from torchx_specs.errors import ComponentNotFoundException, RequestError
from torchx_specs.hookspecs import ComponentPlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager

COMPONENT = "def {}(x: int = 1) -> 'specs.AppDef':\n    raise RuntimeError\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("import no_such_module\n")
    (tmp_path / "job.py").write_text("raise RuntimeError\n" + COMPONENT.format("train"))
    (tmp_path / "jobs.py").write_text(COMPONENT.format("train") + COMPONENT.format("test"))
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "broken.py").write_text("def (\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def target(
    *argv: str,
    form: Form = Form.PLAIN,
    workspace: str | None = None,
    **size: str,
) -> list[str]:
    found = read_target(form, argv, size, workspace, list(size))
    return [found.component, *found.arguments]


@pytest.mark.parametrize(
    ("args", "form", "rest"),
    [
        ("train.py --lr 1", Form.PLAIN, "train.py --lr 1"),
        ("-s x --log -cfg a=b train.py -m", Form.PLAIN, "-s x --log -cfg a=b train.py -m"),
        ("-s -m -m pkg.train -m", Form.MODULE, "-s -m -- pkg.train -m"),
        ("--name=x -m pkg -- a", Form.MODULE, "--name=x -- pkg -- a"),
        ("--cpu 2 -- -m pkg", Form.AFTER_DASHES, "--cpu 2 -- -m pkg"),
        ("--env -- -- ls", Form.AFTER_DASHES, "--env -- -- ls"),
        ("- -m", Form.PLAIN, "- -m"),
        ("--unknown -m x", Form.MODULE, "--unknown -- x"),
        ("", Form.PLAIN, ""),
    ],
)
def test_form_of_a_target(args: str, form: Form, rest: str) -> None:
    assert split_form(command.params, args.split()) == (form, rest.split())


@pytest.mark.parametrize("script", ["train.py", "./train.py", "broken.py"])
def test_script_becomes_a_call_of_utils_python(folder: Path, script: str) -> None:
    name = os.path.basename(script)
    assert target(script, "--lr", "0.3", "--", "-m") == [
        *("utils.python", "--script", script, "--name", name[:-3]),
        *("--", "--lr", "0.3", "--", "-m"),
    ]


def test_processes_become_a_call_of_dist_ddp(folder: Path) -> None:
    found = target("train.py", "--lr", "1", j="2x8", gpu="4")
    assert found == [
        *("dist.ddp", "--script", "train.py", "-j", "2x8", "--gpu", "4", "--", "--lr", "1"),
    ]
    found = target("pkg.train", "a", form=Form.MODULE, j="8")
    assert found == ["dist.ddp", "-m", "pkg.train", "-j", "8", "--", "a"]


def test_module_becomes_a_call_of_utils_python() -> None:
    found = target("pkg.train", "--lr", "1", form=Form.MODULE, num_replicas="2")
    assert found == [
        *("utils.python", "-m", "pkg.train", "--name", "train", "--num_replicas", "2"),
        *("--", "--lr", "1"),
    ]


def test_command_becomes_a_call_of_utils_sh() -> None:
    found = read_target(
        Form.AFTER_DASHES, ["/bin/ls", "-l", "--", "a b"], {"memMB": "100"}, None, ["memMB"]
    )
    words = ["--memMB", "100", "--", "/bin/ls", "-l", "--", "a b"]
    assert found == ("utils.sh", words, "ls", "/bin/ls")
    assert target("no-such-program", form=Form.AFTER_DASHES)[0] == "utils.sh"
    assert target("train.py", form=Form.AFTER_DASHES)[0] == "utils.sh"


@pytest.mark.parametrize("name", ["acme.train", "job.py:train", "job.yaml", "-"])
def test_component_after_dashes_stays_a_component(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    class Plugin:
        @hookimpl
        def torchx_components(self) -> Any:
            yield ComponentPlugin("acme", "run_target_components")

    (folder / "run_target_components.py").write_text(COMPONENT.format("train"))
    monkeypatch.syspath_prepend(folder)
    manager = PluginManager(discover=False)
    manager.register(Plugin(), "acme")
    set_manager(manager)
    try:
        assert target(name, "--x", "1", form=Form.AFTER_DASHES) == [name, "--x", "1"]
        with pytest.raises(
            ComponentNotFoundException, match=r"'acme.trian'; did you mean 'acme.train'"
        ):
            target("acme.trian", form=Form.AFTER_DASHES)
    finally:
        set_manager(None)


def test_file_with_one_component_runs_the_component(folder: Path) -> None:
    assert target("job.py", "--x", "3") == ["job.py:train", "--x", "3"]
    with pytest.raises(
        RequestError, match=r"several components; name one: jobs.py:train, jobs.py:test"
    ):
        target("jobs.py")


IS_FOLDER = "is a directory; give a script in it"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("trian.py", "script 'trian.py' does not exist; did you mean 'train.py'?"),
        ("zzzz.py", "script 'zzzz.py' does not exist"),
        ("no/train.py", "script 'no/train.py' does not exist"),
        ("folder.py", "script 'folder.py' is a directory"),
        (
            "folder.py/",
            "'folder.py/' is a directory; give a script in it, such as folder.py/train.py",
        ),
    ],
)
def test_script_that_does_not_exist_is_an_error(folder: Path, script: str, message: str) -> None:
    with pytest.raises(RequestError) as error:
        target(script)
    assert str(error.value) == message


def test_script_is_named_relative_to_the_workspace(folder: Path) -> None:
    (folder / "project").mkdir()
    (folder / "project" / "main.py").touch()
    project = str(folder / "project")
    for script in ("project/main.py", f"{project}/main.py", "main.py"):
        assert target(script, workspace=project)[2] == "main.py"
    assert target("train.py", workspace=project)[2] == "train.py"


def test_option_that_does_not_fit_the_target_is_an_error(folder: Path) -> None:
    with pytest.raises(
        RequestError, match=r"--replicas, --cpu: for scripts.*job\.py:train is a comp"
    ):
        target("job.py", num_replicas="2", cpu="3")
    with pytest.raises(RequestError, match="-j and --replicas exclude each other"):
        target("train.py", j="2x8", num_replicas="2")
    with pytest.raises(RequestError, match="-j is for scripts and modules; ls is a command"):
        target("ls", form=Form.AFTER_DASHES, j="2x8")
    # A default of .torchxconfig is for scripts and commands only.
    assert read_target(Form.PLAIN, ["job.py"], {"cpu": "3"}, None)[:2] == ("job.py:train", [])
