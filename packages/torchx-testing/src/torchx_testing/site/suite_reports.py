"""Writes the reports of ``--torchx-report``: one for each conformance suite that pytest runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx_testing.site.report import write_report
from torchx_testing.site.results import ResultCollector
from torchx_testing.site.settings import without_secrets

if TYPE_CHECKING:
    import pytest

#: The property of a test report that names the suite: kind, name of the tested object, class.
SUITE = "torchx_conformance_suite"


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
