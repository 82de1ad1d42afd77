"""The conformance suite for the scheduler of docs/batch-systems.md, with a double of its system."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from torchx_specs.schedulers import Scheduler
from torchx_testing.scheduler_suite import SchedulerConformance

DOUBLE = Path(__file__).resolve().parent / "acme_double.py"
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    """Return a module with all code of the page."""
    module = ModuleType("acme_of_the_page")
    sys.modules[module.__name__] = module  # where dataclasses look for the module of a class
    text = (DOUBLE.parents[2] / "docs" / "batch-systems.md").read_text("utf-8")
    exec("\n".join(PYTHON.findall(text)), vars(module))  # noqa: S102
    return module


class TestBatchPage(SchedulerConformance):
    scheduler_name = "acme"
    pending_cfg: ClassVar = {"extra": ["--hold"]}
    poll_interval = 0.1

    @pytest.fixture
    def scheduler(
        self, page: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> Scheduler[Any]:
        programs = tmp_path / "acme bin"
        jobs = tmp_path / "acme jobs"
        for folder in (programs, jobs, tmp_path / "work"):
            folder.mkdir()
        for name in ("asub", "astat", "adel", "afree"):
            program = programs / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{DOUBLE}" {name} "$@"\n')
            program.chmod(0o755)
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        monkeypatch.setenv("BATCH_DOUBLE", str(jobs))
        monkeypatch.chdir(tmp_path / "work")
        return page.create_scheduler("conformance")
