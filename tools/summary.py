"""Print the result of ``.ci/run``: ``python3 tools/summary.py FOLDER EXIT_CODE``.

Read the JUnit reports in FOLDER (``ENVIRONMENT.xml`` or ``ENVIRONMENT--PART.xml``) and nox's
reports of its sessions (``nox*.json``). A test counts once, however many environments it ran in: as
failed if it failed in one of them, as skipped if it was skipped in all of them. A failed test that
``flaky.txt`` lists counts as passed, and is printed (tools/flakes.py). If no test failed, each
failed session counts as a failure. Exit with 1 if anything failed, EXIT_CODE included.
"""

from __future__ import annotations

import json
import sys

# The parser needs no protection from hostile files, because our own pytest writes the reports.
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


def results(report: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, outcome and error message of each test in a JUnit report."""
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314
        name = f"{case.get('classname')}::{case.get('name')}"
        failures = [*case.iter("failure"), *case.iter("error")]
        if failures:
            yield name, FAILED, " ".join((failures[0].get("message") or "").split())[:300]
        else:
            yield name, PASSED if case.find("skipped") is None else SKIPPED, ""


def name_in_reports(test: str) -> str:
    """Return the name that a test, ``FILE.py::CLASS::NAME``, has in a JUnit report."""
    address, bracket, parameters = test.partition("[")
    path, *parts = address.split("::")
    module = path.removesuffix(".py").replace("/", ".")
    return f"{'.'.join([module, *parts[:-1]])}::{''.join(parts[-1:])}{bracket}{parameters}"


def main(folder: Path, exit_code: int) -> int:
    tests: dict[str, set[str]] = {}
    listed = folder / "flaky.txt"
    names = listed.read_text("utf-8").splitlines() if listed.exists() else []
    flaky = {name_in_reports(name): name for name in names}
    environments = set()
    for report in sorted(folder.glob("*.xml")):
        environment = report.stem.partition("--")[0]
        environments.add(environment)
        counts = dict.fromkeys((PASSED, FAILED, SKIPPED), 0)
        messages: dict[str, list[str]] = {}
        for name, outcome, message in results(report):
            if outcome == FAILED and name in flaky:
                print(f"FAILED ONCE in {environment}: {name}: {message}")
                outcome = PASSED
            tests.setdefault(name, set()).add(outcome)
            counts[outcome] += 1
            if outcome == FAILED:
                messages.setdefault(message, []).append(name)
        for message, (name, *others) in messages.items():
            more = f" (and {len(others)} others for the same reason)" if others else ""
            print(f"FAILED in {environment}: {name}{more}: {message}")
        print(f"{report.stem}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    failed = sum(FAILED in outcomes for outcomes in tests.values())
    skipped = sum(outcomes == {SKIPPED} for outcomes in tests.values())
    passed = len(tests) - failed - skipped
    failed_sessions = 0
    for path in sorted(folder.glob("nox*.json")):
        for session in json.loads(path.read_text("utf-8"))["sessions"]:
            print(f"nox -s '{session['signatures'][0]}': {session['result']}")
            failed_sessions += session["result"] in ("failed", "aborted")
    if exit_code and not failed + failed_sessions:
        print(f"stopped with exit code {exit_code}")
    failed = failed or failed_sessions or int(exit_code != 0)
    for name in sorted(flaky.values()):
        print(f"FLAKY: {name}")
    print(f"{len(tests):,} unique tests in {len(environments)} environments")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
