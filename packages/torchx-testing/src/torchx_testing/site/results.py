"""Collects the results of a run or of each suite as plain data, without secrets."""

from __future__ import annotations

import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import one_line
from torchx_testing.declared import PROPERTY
from torchx_testing.site.report import write_report
from torchx_testing.site.settings import without_secrets

if TYPE_CHECKING:
    import pytest

#: The property of a test report that names the suite: kind, name of the tested object, class.
SUITE = "torchx_conformance_suite"
#: The version of the format of ``report.json``.
FORMAT = 1

_LONGEST_REASON = 500


class ResultCollector:
    """A pytest plugin that keeps the result of each test.

    Args:
        kind: What is tested, such as ``scheduler``.
        name: Name of the tested object.
        masked: Returns a text without secrets.
        options: The options of the tests, without secrets.
        suite: Name of the class of the tests.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        masked: Callable[[str], str],
        options: Mapping[str, Any] | None = None,
        suite: str = "",
    ) -> None:
        self._subject = {"kind": kind, "name": name, "suite": suite}
        self._masked = masked
        self._options = dict(options or {})
        self._tests: dict[str, dict[str, Any]] = {}
        self._lacking: dict[str, str] = {}
        self._begin = datetime.now(timezone.utc)
        self._clock = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome of one phase of a test."""
        name = report.nodeid.rpartition("::")[2]
        test = self._tests.setdefault(name, {"name": name, "outcome": "passed", "seconds": 0.0})
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        if report.skipped:
            test.update(outcome="skipped", reason=self._text(_skip_reason(report)))
        elif report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = crash.message if crash is not None else str(report.longrepr)
            test.update(outcome="failed", phase=report.when, reason=self._text(reason))
        if report.when == "call":
            properties: list[tuple[str, Any]] = report.user_properties
            for key, value in properties:
                if key == PROPERTY:
                    _, what, reason = value
                    self._lacking[what] = self._text(reason)

    def _text(self, text: str) -> str:
        return self._masked(one_line(text))[:_LONGEST_REASON]

    def data(self) -> dict[str, Any]:
        """Return the report as plain data."""
        tests = list(self._tests.values())
        counts = Counter(test["outcome"] for test in tests)
        return {
            "format": FORMAT,
            **self._subject,
            "started": self._begin.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._clock, 1),
            "summary": {name: counts[name] for name in ("passed", "failed", "skipped")},
            "options": self._options,
            "unsupported": dict(sorted(self._lacking.items())),
            "versions": _versions(),
            "tests": tests,
        }


class SuiteReports:
    """A pytest plugin with one :class:`ResultCollector` for each suite.

    Args:
        folder: The folder of the reports. A report is in ``NAME/SUITE``: the name of the tested
            object, and the class of the tests.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).absolute()
        self._collectors: dict[tuple[str, str, str], ResultCollector] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Pass the result of a conformance test to the collector of its suite."""
        properties: list[tuple[str, Any]] = report.user_properties
        for key, value in properties:
            if key == SUITE:
                kind, name, suite = value
                if (kind, name, suite) not in self._collectors:
                    collector = ResultCollector(kind, name, without_secrets, suite=suite)
                    self._collectors[kind, name, suite] = collector
                self._collectors[kind, name, suite].pytest_runtest_logreport(report)

    def pytest_sessionfinish(self) -> None:
        """Write the reports."""
        for (_, name, suite), collector in self._collectors.items():
            folder = self._folder / re.sub(r"[^\w.-]", "-", name) / suite
            write_report(folder, collector.data())


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def _versions() -> dict[str, str]:
    """Return the versions of Python, of the system, and of the TorchX distributions and plugins."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for distribution in distributions():
        entries = distribution.entry_points
        name = distribution.metadata["Name"]
        if name.lower().replace("_", "-").startswith("torchx") or any(
            entry.group == "torchx" for entry in entries
        ):
            found[name] = distribution.version
    return dict(sorted(found.items()))
