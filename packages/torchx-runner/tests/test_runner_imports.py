"""Tests that importing the runner is cheap, of its public names, and that its examples run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys

import pytest

import torchx_runner

HEAVY = [
    *("pluggy", "yaml", "asyncio", "subprocess", "importlib.metadata", "logging", "argparse"),
    *("configparser", "uuid", "json", "difflib", "tempfile", "traceback"),
]

MODULES = sorted(
    info.name for info in pkgutil.walk_packages(torchx_runner.__path__, "torchx_runner.")
)


def imported_by(code: str) -> set[str]:
    code += "; import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import torchx_runner",
        "from torchx_runner import Runner, get_runner",
        "from torchx_runner import get_runner; get_runner().close()",
        "import torchx_runner.config.api; torchx_runner.config.api.get_cli_defaults('run')",
        "import torchx_runner.components.finder",
    ],
)
def test_nothing_heavy_is_imported(code: str) -> None:
    assert imported_by(code) & set(HEAVY) == set()


def test_package_imports_none_of_its_modules() -> None:
    assert [m for m in imported_by("import torchx_runner") if m.startswith("torchx_runner.")] == []


def test_public_names() -> None:
    assert set(torchx_runner.__all__) == {
        "AsyncRunner",
        "Runner",
        "WaitTimeoutError",
        "get_configured_trackers",
        "get_runner",
    }
    for name in torchx_runner.__all__:
        assert getattr(torchx_runner, name).__module__.startswith("torchx_runner.")
    with pytest.raises(AttributeError):
        torchx_runner.nothing  # noqa: B018


@pytest.mark.parametrize("module", ["torchx_runner", *MODULES])
def test_examples(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
