"""Tests that each place where the command writes text masks secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.hookspecs import CommandPlugin, hookimpl
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import Origin

LEAKY = '''
import logging
import warnings

from torchx_specs import AppDef


def raises() -> AppDef:
    """Raise."""
    raise ValueError("the registry answered:\\n  password: s3cret")


def warns() -> AppDef:
    """Log and warn."""
    logging.getLogger("mine").warning("run %s", ["docker", "login", "-p", "s3cret"])
    try:
        raises()
    except ValueError:
        logging.getLogger("mine").exception("cannot log in")
    warnings.warn("curl -u me:s3cret failed")
    return AppDef("a")
'''


@pytest.fixture
def leaky(cli: Any, tmp_path: Path) -> str:
    (tmp_path / "leaky.py").write_text(LEAKY)
    return "leaky.py"


@pytest.mark.parametrize("options", [[], ["--debug"]])
def test_error_of_a_component_shows_no_secret(cli: Any, leaky: str, options: list[str]) -> None:
    result = cli(*options, "run", "--dryrun", "-s", "fake", f"{leaky}:raises")
    assert result.code == 2
    assert "password: ***" in result.err
    assert ("Traceback" in result.err) == bool(options)
    assert "s3cret" not in result.err


def test_log_records_and_warnings_show_no_secret(cli: Any, leaky: str) -> None:
    result = cli("run", "--dryrun", "-s", "fake", f"{leaky}:warns")
    assert "'-p', '***'" in result.err
    assert "cannot log in\nTraceback" in result.err
    assert "curl -u me:*** failed" in result.err
    assert "s3cret" not in result.err


def test_configured_dictionary_shows_no_secret(cli: Any, plugin: Any) -> None:
    Path(".torchxconfig").write_text(
        "[local_docker]\nenv = HF_TOKEN:s3cret,LR:1\n[fake]\ntags = password: s3cret\n"
    )
    out = cli("config", "show").out
    assert "HF_TOKEN:***,LR:1" in out
    assert "password: ***" in out
    assert "s3cret" not in cli("config", "show", "-o", "json").out


def test_message_of_a_status_shows_no_secret(cli: Any, plugin: Any) -> None:
    plugin.add("a-0", "a", msg="cannot pull from https://me:s3cret@registry.test")
    out = cli("status", "fake://test/a-0").out
    assert "https://me:***@registry.test" in out
    assert "s3cret" not in out


def test_problem_of_a_plugin_shows_no_secret(cli: Any, plugin: Any) -> None:
    class Broken:
        @hookimpl
        def torchx_commands(self) -> list[CommandPlugin]:
            raise ValueError("bad HF_TOKEN=s3cret")

    get_manager().register(Broken(), "broken", Origin("broken-dist", "1", "broken"))
    for output_format in ("table", "json"):
        out = cli("plugins", "-o", output_format).out
        assert "bad HF_TOKEN=***" in out
    assert json.loads(out)["problems"]
