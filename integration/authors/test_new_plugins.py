"""Tests that new, unchanged plugins pass their own checks, and that a new scheduler runs jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

KINDS = ("scheduler", "tracker", "component", "resource", "command", "workspace")


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_passes_its_checks_as_created(kind: str, make_site: Callable[[], Any]) -> None:
    author = make_site()
    author.install("torchx-cli")
    name = f"acme-{kind}-torchx"
    said = author.check("torchx", "plugins", "new", name, "--kind", kind)
    assert f"the {kind} 'acme_{kind}'" in said

    folder = author.work / name
    author.install("-e", folder, "--group", f"{folder / 'pyproject.toml'}:dev")
    tested = author.check("pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
    assert " passed" in tested
    author.check("ruff", "check", cwd=folder)
    author.check("ruff", "format", "--check", cwd=folder)
    author.check("mypy", cwd=folder)

    plugins = json.loads(author.check("torchx", "plugins", "-o", "json"))
    assert plugins["problems"] == []
    assert plugins["conflicts"] == []
    listed = {"component": "components", "resource": "named_resources", "scheduler": "schedulers"}
    names = [record["name"] for record in plugins[listed.get(kind, f"{kind}s")]]
    assert any(name.startswith(f"acme_{kind}") for name in names)


def test_a_wheel_of_a_new_scheduler_runs_jobs(make_site: Callable[[], Any]) -> None:
    author = make_site()
    author.install("torchx-cli")
    author.check("torchx", "plugins", "new", "torchx-acme", "--kind", "scheduler")
    user = make_site()
    user.install("torchx-cli", "torchx-components", author.work / "torchx-acme")
    handle = user.check("torchx", "run", "-s", "acme", "utils.echo", "--msg", "hello").strip()
    assert handle.startswith("acme://torchx/echo-")
    user.check("torchx", "wait", handle)
    assert user.check("torchx", "log", handle).endswith("hello\n")
    assert user.check("torchx", "list", "-s", "acme").count(handle) == 1
    user.check("torchx", "delete", handle)
    assert user.run("torchx", "status", handle).returncode == 1
