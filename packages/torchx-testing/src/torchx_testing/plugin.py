"""The pytest plugin, which lists the features that backends lack, and writes reports."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--torchx-timeout`` and ``--torchx-report``."""
    group = parser.getgroup("torchx")
    group.addoption(
        "--torchx-timeout",
        type=float,
        metavar="SECONDS",
        help="Time limit of each job in a conformance suite; overrides the limit of the suite.",
    )
    group.addoption(
        "--torchx-report",
        metavar="DIR",
        help="Write a report of each conformance suite to DIR/NAME/SUITE: HTML, JSON and a badge.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of the conformance suites, and the writer of reports."""
    import pytest

    # pytest does so itself only for plugins that it finds by their entry points.
    pytest.register_assert_rewrite("torchx_testing")
    for marker in (
        "conformance: a test of a conformance suite of torchx-testing",
        "gate: one of the few tests that run before every change of a repository is accepted",
    ):
        config.addinivalue_line("markers", marker)
    folder = config.getoption("--torchx-report")
    # In a worker process of pytest-xdist, the main process collects the results.
    if folder and not hasattr(config, "workerinput"):
        from torchx_testing.site.results import SuiteReports

        config.pluginmanager.register(SuiteReports(folder), "torchx-suite-reports")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of conformance suites, so that ``-m conformance`` picks them."""
    suite = getattr(item, "cls", None)
    # The class is recognized by its module's name: an import would slow down every run of pytest.
    if suite is not None and any(
        base.__module__ == "torchx_testing.declared" for base in suite.__mro__
    ):
        item.add_marker("conformance")
        if item.config.getoption("--torchx-report"):
            subject = (suite.kind, suite.subject(), suite.__name__)
            item.user_properties.append(("torchx_conformance_suite", subject))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the unsupported features with their reasons."""
    declared: Counter[tuple[str, str, str]] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", None) != "call":
                continue
            for name, value in report.user_properties:
                if name == "torchx_declared_unsupported":
                    suite, what, reason = value
                    declared[suite, what, reason] += 1
    if not declared:
        return
    terminalreporter.section(f"declared unsupported: {sum(declared.values())}")
    for (suite, what, reason), count in sorted(declared.items()):
        terminalreporter.write_line(f"{suite}: {what} ({count}): {reason}")
