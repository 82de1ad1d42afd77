"""Tests of the documentation's page with the reports of the conformance suites."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "site"))
conformance: Any = importlib.import_module("conformance")


def write(folder: Path, name: str, suite: str, passed: int) -> None:
    data: dict[str, Any] = {
        "kind": "scheduler",
        "name": name,
        "suite": suite,
        "started": "2026-11-23T05:00:00",
    }
    data["summary"] = {"passed": passed, "failed": 0, "skipped": 2}
    (folder / name / suite).mkdir(parents=True)
    (folder / name / suite / "report.json").write_text(json.dumps(data))


def test_the_page_links_each_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "REPORTS", tmp_path)
    write(tmp_path, "slurm", "TestSlurm", 90)
    write(tmp_path, "lsf", "TestLsfDouble", 80)
    path, text = conformance.page()
    assert path == "conformance.md"
    link = "[LsfDouble](conformance-reports/lsf/TestLsfDouble/index.html)"
    assert f"| `lsf` | {link} | 80 | 0 | 2 | 2026-11-23 |" in text
    assert text.index("LsfDouble]") < text.index("[Slurm]")
    files = dict(conformance.report_files())
    assert files["conformance-reports/slurm/TestSlurm/badge.svg"].parent.name == "TestSlurm"
    assert len(files) == 6


def test_without_reports_the_page_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "REPORTS", tmp_path)
    assert "nox -s integration -- local" in conformance.page()[1]
    assert list(conformance.report_files()) == []
