"""Tests of the notifier that runs a program: its section, arguments, standard input, failures."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from torchx_notify.command import create, text_of
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.plugins.manager import PluginManager

DATA: dict[str, Any] = {
    "handle": "s://s/train-1",
    "name": "train",
    "state": "FAILED",
    "summary": "FAILED after 3 s: main/0: exit code 1",
    "ended": "2026-11-21T10:00:00Z",
}
PROGRAM = """
import json, os, sys
data = [sys.argv[2:], sys.stdin.read(), sorted(os.environ)]
open(sys.argv[1], "w").write(json.dumps(data))
"""


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return tmp_path / "result"


def notify(command: str, data: dict[str, Any], **config: str) -> None:
    create({"command": command, **config})(data)


def program(result: Path, *arguments: str) -> str:
    return shlex.join([sys.executable, "-c", PROGRAM, str(result), *arguments])


def test_program_gets_the_text_and_the_fields(
    result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_SECRET_HOOK", "hunter2")
    notify(program(result, "-s", "{name} is {state}", "{summary}", "$HOME `id`; rm -rf *"), DATA)
    arguments, text, variables = json.loads(result.read_text())
    assert arguments == ["-s", "train is FAILED", DATA["summary"], "$HOME `id`; rm -rf *"]
    assert text == (
        "train FAILED after 3 s: main/0: exit code 1\nhandle: s://s/train-1\nstate: FAILED\n"
        "ended: 2026-11-21T10:00:00Z\n"
    )
    assert "PATH" in variables
    assert "TORCHX_SECRET_HOOK" not in variables


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("--exec=rm", " --exec=rm"),
        ("a\nb\x00\x1b[2Jc", "a b??[2Jc"),
        ("{state}", "{state}"),
        ("x" * 5000, "x" * 2000),
    ],
)
def test_hostile_name_stays_one_argument(result: Path, name: str, argument: str) -> None:
    notify(program(result, "{name}"), {**DATA, "name": name})
    assert json.loads(result.read_text())[0] == [argument]


def test_text_has_one_line_for_each_value() -> None:
    text = text_of({"name": "a\nb", "summary": "x\r\ny", "handle": "s://s/\n"})
    assert text == "a b x y\nhandle: s://s/\n"


def test_failing_program_is_an_error_with_its_last_line() -> None:
    code = "import sys; sys.exit('first\\nno such mailbox')"
    with pytest.raises(BackendError, match="ended with exit code 1: no such mailbox"):
        notify(shlex.join([sys.executable, "-c", code]), DATA)


def test_missing_program_is_an_error() -> None:
    with pytest.raises(BackendError, match="cannot run /no/such: No such file or directory"):
        notify("/no/such {summary}", DATA)


def test_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run(['sleep', '600'])"
    with pytest.raises(BackendError, match=r"did not end within 0\.3 s"):
        notify(shlex.join([sys.executable, "-c", code]), DATA, timeout="0.3")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "the key 'command' is missing"),
        ({"command": "mail 'x"}, "cannot be split"),
        ({"command": "{name} x"}, "must not contain a field"),
        ({"command": "mail {nmae}"}, "unknown field {nmae}; fields: summary, name"),
        ({"command": "mail", "url": "x"}, "unknown key 'url'"),
        ({"command": "mail", "timeout": "0"}, "timeout = 0: not a number of seconds"),
    ],
)
def test_malformed_section_is_an_error(config: dict[str, str], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        create(config)
    assert message in str(caught.value)


def test_notifiers_are_found_by_their_types() -> None:
    notifiers = PluginManager().notifiers()
    assert notifiers["command"].load() is create
    assert set(notifiers) >= {"command", "webhook"}
