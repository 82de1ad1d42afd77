"""Collects the results of a run as plain data, without secrets."""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import one_line
from torchx_testing.declared import PROPERTY

if TYPE_CHECKING:
    import pytest

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
