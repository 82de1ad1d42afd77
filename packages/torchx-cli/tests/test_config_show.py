"""Tests of ``torchx config show``, of profiles, and of resources in the configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def files(plugin: Any, tmp_path: Path) -> list[str]:
    """Write a file in the home directory and one in the working directory; return their paths."""
    (tmp_path / "home").mkdir(exist_ok=True)
    Path(".torchxconfig").write_text(
        "# comment\n[DEFAULT]\nproject = p\n\n"
        "[fake]\nqueue = here\ntags = a\n  b\napi_token = t0k\n"
    )
    Path("home/.torchxconfig").write_text("[cli:run]\nwait = true\n[fake]\nqueue: home\n")
    return [str(tmp_path / "home" / ".torchxconfig"), str(tmp_path / ".torchxconfig")]


def test_each_value_has_its_file_and_line(cli: Any, files: list[str]) -> None:
    home, here = files
    data = json.loads(cli("config", "show", "--origin", "--json").out)
    found = {(d["section"], d["key"]): (d["value"], d["file"], d["line"]) for d in data}
    assert found.pop(("environment", "TORCHX_CONTEXT_NAME")) == ("test", None, None)
    assert found == {
        ("cli:run", "wait"): ("true", home, 2),
        ("fake", "queue"): ("home", home, 4),
        ("fake", "tags"): ("a\nb", here, 7),
        ("fake", "api_token"): ("***", here, 9),
        ("fake", "project"): ("p", here, 3),
    }


def test_text_and_hidden_values(cli: Any, files: list[str]) -> None:
    home, here = files
    lines = cli("config", "show", "fake", "--origin", "--all").out.splitlines()
    assert lines[0].split() == ["SECTION", "KEY", "VALUE", "ORIGIN", "APPLIES"]
    rows = [line.split() for line in lines[2:]]
    assert ["fake", "queue", "home", f"{home}:4", "yes"] in rows
    assert ["fake", "queue", "here", f"{here}:6", "no"] in rows
    assert "origin" not in cli("config", "show").out.lower()


def test_secrets_of_notifiers_and_variables_are_masked(cli: Any, plugin: Any) -> None:
    Path(".torchxconfig").write_text(
        "[notifier:a]\nurl = https://hooks.test/s3cret\nkey = s3cret\n"
        "[notifiers:older]\nurl = https://hooks.test/s3cret\nkey = s3cret\n"
        "[notifiers:b]\nurl = ${secret:hook}\n"
        "[cli:run]\nenv = HF_TOKEN=s3cret,LR=1\n"
        "[component:utils.sh]\nenv = A=1,API_KEY=s3cret\n"
    )
    out = cli("config", "show").out
    assert "s3cret" not in out
    assert "${secret:hook}" in out
    assert "HF_TOKEN=***,LR=1" in out


def test_a_malformed_file_is_one_line(cli: Any, plugin: Any) -> None:
    Path(".torchxconfig").write_text("[fake\n")
    result = cli("config", "show")
    assert result.code == 2
    assert ".torchxconfig:1: a [section] ends with a bracket" in result.error


PROFILE = (
    "[fake]\nqueue = here\n[profile.big.fake]\nqueue = large\n[profile.big.cli:run]\nwait = true\n"
)


def test_the_origin_names_the_profile(cli: Any, plugin: Any, tmp_path: Path) -> None:
    Path(".torchxconfig").write_text(PROFILE)
    path = tmp_path / ".torchxconfig"
    shown = cli("--profile", "big", "config", "show", "--origin", "--all", "fake").out
    assert f"{path}:4 (profile big)" in shown
    rows = [line.split() for line in shown.splitlines()[2:]]
    assert ["fake", "queue", "here", f"{path}:2", "no"] in rows
    again = cli("config", "show", "--origin", "fake").out  # a profile lasts for one command
    assert "large" not in again


def test_the_variable_selects_a_profile(
    cli: Any, plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(".torchxconfig").write_text(PROFILE)
    monkeypatch.setenv("TORCHX_PROFILE", "big")
    [row] = json.loads(cli("config", "show", "fake", "--json").out)
    assert (row["value"], row["profile"], row["line"]) == ("large", "big", 4)


def test_an_unknown_profile_is_one_line_and_help_still_works(cli: Any, plugin: Any) -> None:
    Path(".torchxconfig").write_text(PROFILE)
    result = cli("--profile", "bgi", "list", "-s", "fake")
    assert result.code == 2
    assert result.error.startswith("unknown profile 'bgi'; did you mean 'big'? profiles: big")
    assert cli("--profile", "bgi", "--help").code == 0


def test_a_profile_sets_options_of_schedulers_and_of_commands(
    cli: Any, plugin: Any, components: str
) -> None:
    Path(".torchxconfig").write_text(PROFILE)
    result = cli("--profile", "big", "run", "-s", "fake", f"{components}:job")
    assert result.code == 0
    [app] = plugin.apps.values()
    assert app.cfg["queue"] == "large"
    assert app.states[0].name == "SUCCEEDED"  # the profile sets wait = true
    assert (
        cli("--profile", "big", "run", "-s", "fake", "-cfg", "queue=q", f"{components}:job").code
        == 0
    )
    assert list(plugin.apps.values())[1].cfg["queue"] == "q"


def test_an_unknown_section_is_an_error_with_the_nearest_name(cli: Any, files: list[str]) -> None:
    result = cli("config", "show", "fakes")
    assert result.code == 2
    assert "no configuration file has a section [fakes]" in result.err
    assert "did you mean 'fake'?" in result.err
    result = cli("config", "show", "cli:rnu")
    assert result.code == 2
    assert "no configuration file has a section [cli:rnu]" in result.err
    assert "did you mean 'cli:run'?" in result.err
    assert cli("config", "show", "cli:status").code == 0  # no file sets an option of this command


def test_variables_whose_names_begin_with_torchx_are_listed(
    cli: Any, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHXCONFIG", files[1])
    monkeypatch.setenv("TORCHX_SECRET_HF", "s3cret")
    rows = json.loads(cli("config", "show", "environment", "--json").out)
    assert ("TORCHXCONFIG", files[1]) in {(row["key"], row["value"]) for row in rows}
    assert all(row["key"].startswith("TORCHX") for row in rows)
    assert "s3cret" not in [row["value"] for row in rows]


def test_a_resource_of_the_configuration_is_an_argument(cli: Any, plugin: Any) -> None:
    Path(".torchxconfig").write_text("[resources.big]\ncpu = 8\nmemMB = x\n")
    Path("train.py").write_text(
        "from torchx_specs import AppDef, Role, resource\n"
        "def job(h: str) -> AppDef:\n"
        "    return AppDef('x', roles=[Role('r', 'i', entrypoint='e', resource=resource(h=h))])\n"
    )
    result = cli("run", "-s", "fake", "train.py:job", "-h", "big")
    assert result.code == 2
    assert ".torchxconfig:3: [resources.big] memMB: 'x' is not a whole number" in result.error
    Path(".torchxconfig").write_text("[resources.big]\ncpu = 8\n")
    assert cli("run", "-s", "fake", "train.py:job", "-h", "big").code == 0
