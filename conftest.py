"""Settings for every test of the repository."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType

import pytest


def ignore(number: int, frame: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


# Tests send signals to the processes that they start. If pytest was started by `nohup`, or by `&`
# in a script, it ignores some signals, and its child processes would ignore them too. A handler
# prevents that: child processes do not inherit handlers.
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, ignore)


# A busy machine may be slow: no example has a time limit, and slow generation is no failure.
try:
    from hypothesis import HealthCheck, settings
except ImportError:
    pass  # the environment of some integration tests does not have it
else:
    slow = [HealthCheck.too_slow]
    settings.register_profile("torchx", settings(), deadline=None, suppress_health_check=slow)
    settings.load_profile("torchx")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--failures",
        type=Path,
        metavar="FILE",
        help="Write the failed tests, and the command that runs them, to FILE (tools/flakes.py).",
    )


def pytest_configure(config: pytest.Config) -> None:
    # With pytest-xdist, the main process gets the results of its workers.
    if config.getoption("--failures") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config), "torchx-failures")


class Failures:
    """Records the failed tests of a run for ``tools/flakes.py``."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._causes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            # A fixture of several tests fails for all of them, with the same message.
            crash = getattr(report.longrepr, "reprcrash", None)
            message = crash.message if crash is not None and report.when == "setup" else ""
            self._causes[report.nodeid] = message or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._causes[report.nodeid] = report.nodeid

    def pytest_sessionfinish(self) -> None:
        variables = {
            key: value
            for key, value in os.environ.items()
            if key in ("CI", "PATH") or key.startswith(("TORCHX_TEST_", "TORCHX_CONSTRAINTS"))
        }
        record = {
            "command": [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
            "folder": str(self._config.rootpath),
            "variables": variables,
            "tests": self._causes,
        }
        file: Path = self._config.getoption("--failures")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(record), "utf-8")
