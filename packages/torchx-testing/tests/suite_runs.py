"""Runs conformance suites on fakes, in a separate process of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree  # parses only the report that this module writes

HERE = Path(__file__).parent


class Case(NamedTuple):
    """A test class: its name, base class and body, and a pattern of tests to run (empty: all)."""

    name: str
    suite: str
    body: str
    test: str = ""


class Run(NamedTuple):
    """The output of pytest, and the outcome of each test."""

    text: str
    #: Maps a class and a test, without parameters, to the outcomes of the test's cases.
    outcomes: dict[tuple[str, str], set[str]]


def run_cases(folder: Path, imports: str, cases: list[Case], *options: str) -> Run:
    """Write the cases to a file in ``folder``, and run this file with pytest."""
    text = f"import pytest\n{imports}\n"
    for case in cases:
        body = "\n".join(f"    {line}" for line in case.body.strip("\n").splitlines())
        text += f"\n\nclass {case.name}({case.suite}):\n{body}\n"
    (folder / "test_case.py").write_text(text)
    report = folder / "report.xml"
    select = " or ".join(f"({c.name} and {c.test})" if c.test else c.name for c in cases)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    command += ["-p", "torchx_testing.plugin"]
    command += ["--rootdir", str(folder), "--junit-xml", str(report), "-k", select, *options]
    done = subprocess.run(
        [*command, "test_case.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "TORCHX_HOME": str(folder / "home"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for test in ElementTree.parse(report).iter("testcase"):  # noqa: S314
        kinds = {child.tag for child in test} & {"failure", "error", "skipped"}
        key = (test.attrib["classname"].rpartition(".")[2], test.attrib["name"].partition("[")[0])
        outcomes[key] |= kinds or {"passed"}
    return Run(done.stdout + done.stderr, outcomes)
