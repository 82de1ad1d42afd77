"""The pytest plugin: lists the features that back ends declare as unsupported."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--torchx-timeout``."""
    group = parser.getgroup("torchx")
    group.addoption(
        "--torchx-timeout",
        type=float,
        metavar="SECONDS",
        help="Time limit of each job in a conformance suite; overrides the limit of the suite.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of the conformance suites."""
    config.addinivalue_line(
        "markers", "conformance: a test of a conformance suite of torchx-testing"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of conformance suites, so that ``-m conformance`` picks them."""
    suite = getattr(item, "cls", None)
    # The class is recognized by its module's name: an import would slow down every run of pytest.
    if suite is not None and any(
        base.__module__ == "torchx_testing.declared" for base in suite.__mro__
    ):
        item.add_marker("conformance")


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
