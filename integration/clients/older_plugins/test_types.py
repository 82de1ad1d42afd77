"""Tests of the types that mypy infers for the installed facade."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


def mypy(source: str) -> list[str]:
    """Run mypy on source code; return its output without the summary."""
    Path("user_code.py").write_text(source)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "user_code.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout.splitlines()[:-1]


def test_mypy_finds_every_public_name_of_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import public_names

    lines = []
    for module, name in public_names.releases():
        try:
            value = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue  # The name's extra is missing, or docs/public-names.md has the reason.
        if not isinstance(value, ModuleType) and "._" not in module:
            lines.append(f"from {module} import {name} as n{len(lines)}")
    assert len(lines) > 800
    assert mypy("\n".join(lines)) == []


def test_mypy_infers_the_types_of_our_modules() -> None:
    output = mypy(
        "import torchx.specs as specs\n"
        "from torchx.components import dist\n"
        "from torchx.runner import get_runner\n"
        "from torchx.schedulers.local_scheduler import create_scheduler\n"
        "from torchx.specs import *\n"
        "reveal_type(specs.api.Role('r', 'i').env)\n"
        "reveal_type(resource(h='x').gpu)\n"
        "reveal_type(get_runner().status('a'))\n"
        "reveal_type(create_scheduler('s'))\n"
        "reveal_type(dist.ddp(script='x').roles)\n"
        "AppDef(nme='x')\n"
        "specs.Rol\n"
    )
    texts = [line.split(": ", 2)[2] for line in output if "defined in" not in line]
    assert texts == [
        'Revealed type is "dict[str, str]"',
        'Revealed type is "int"',
        'Revealed type is "torchx_specs.model.status.AppStatus | None"',
        'Revealed type is "torchx_sched_local.scheduler.LocalScheduler"',
        'Revealed type is "list[torchx_specs.model.app.Role]"',
        'Unexpected keyword argument "nme" for "AppDef"; did you mean "name"?  [call-arg]',
        'Module has no attribute "Rol"; maybe "Role"?  [attr-defined]',
    ]
