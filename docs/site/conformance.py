"""The page with the reports of the conformance suites, which ``nox -s integration`` writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / ".nox" / "reports" / "conformance"
FOLDER = "conformance-reports"

_INTRODUCTION = """# Conformance

[torchx-testing](packages/torchx-testing.md) has a suite of tests for each kind of plugin. The tests
of the schedulers run real jobs. `torchx conformance -s NAME --report DIR` runs them on your own
site; `nox -s integration` runs them on the services of this repository's CI. A report whose name
contains `Double` or `Moto` comes from a program that stands in for the service;
[Support](support.md) lists the versions.
"""
_NO_REPORT = """No suite has run in the checkout from which this site was built.
`nox -s integration -- local`, followed by `nox -s docs`, adds the reports of `local_cwd`.
"""
_KINDS = {
    "scheduler": "Schedulers",
    "tracker": "Trackers",
    "workspace": "Workspace builders",
    "distribution": "Distributions",
}


def report_files() -> Iterator[tuple[str, Path]]:
    """Yield the path on the site and the source of each file of the reports."""
    for report in _reports():
        for name in ("index.html", "badge.svg", "report.json"):
            yield _path(report, name), report.parent / name


def page() -> tuple[str, str]:
    """Return the path and the Markdown of the page."""
    reports = [(report, json.loads(report.read_text("utf-8"))) for report in _reports()]
    parts = [_INTRODUCTION]
    for kind, title in _KINDS.items():
        rows = [_row(report, data) for report, data in reports if data["kind"] == kind]
        if rows:
            parts.append(f"## {title}\n\n| name | report | passed | failed | skipped | date |")
            parts[-1] += "\n|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    if not reports:
        parts.append(_NO_REPORT)
    return "conformance.md", "\n".join(parts)


def _reports() -> list[Path]:
    return sorted(REPORTS.glob("*/*/report.json"))


def _path(report: Path, name: str) -> str:
    """Return the path on the site for the file ``name`` of a report."""
    return f"{FOLDER}/{report.parent.relative_to(REPORTS).as_posix()}/{name}"


def _row(report: Path, data: dict[str, Any]) -> str:
    counts = data["summary"]
    cells = [
        f"`{data['name']}`",
        f"[{data['suite'].removeprefix('Test')}]({_path(report, 'index.html')})",
        *(str(counts[outcome]) for outcome in ("passed", "failed", "skipped")),
        data["started"][:10],
    ]
    return f"| {' | '.join(cells)} |"
