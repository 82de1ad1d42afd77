"""The end of ``.ci/run``: what failed, and how many tests and checks passed, failed, were skipped.

``python3 tools/summary.py FOLDER EXIT_CODE`` adds up the JUnit reports in ``FOLDER`` and the
sessions in its ``nox*.json``; a session counts as one check unless its tests are counted already.
Exits 1 if anything failed, ``EXIT_CODE`` included.
"""

from __future__ import annotations

import json
import sys

# Only ever reads files that our own pytest has just written.
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def count_tests(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped tests of one JUnit report."""
    passed = failed = skipped = 0
    for suite in ElementTree.parse(report).iter("testsuite"):  # noqa: S314
        bad = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        left_out = int(suite.get("skipped", 0))
        failed += bad
        skipped += left_out
        passed += int(suite.get("tests", 0)) - bad - left_out
    return passed, failed, skipped


def failures(report: Path) -> list[str]:
    """A line for each test of a report that failed: which one, and the beginning of why."""
    found = []
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314
        for bad in [*case.iter("failure"), *case.iter("error")]:
            why = " ".join((bad.get("message") or "").split())[:300]
            found.append(f"FAILED {case.get('classname')}::{case.get('name')}: {why}")
    return found


def main(folder: Path, exit_code: int) -> int:
    passed = failed = skipped = 0
    for report in sorted(folder.glob("*.xml")):
        counts = count_tests(report)
        print(f"{report.stem}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped")
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
        print(*failures(report), sep="\n", end="\n" if counts[1] else "")
    reports = sorted(folder.glob("nox*.json"))
    for session in (s for path in reports for s in json.loads(path.read_text("utf-8"))["sessions"]):
        print(f"nox -s {session['signatures'][0]}: {session['result']}")
        passed += session["result"] == "success"
        failed += session["result"] in ("failed", "aborted")
        skipped += session["result"] == "skipped"
    if exit_code and not failed:
        print(f"stopped with exit code {exit_code}")
        failed = 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
