"""Run failed tests again: ``python3 tools/flakes.py REPORTS``, after the tests of ``.ci/run``.

In the gate, each run of pytest writes its failed tests to ``REPORTS/NAME.failures.json``, as the
option ``--failures`` of conftest.py requests. The tests of a fixture that failed are one failure.
If there are at most :data:`MOST_FLAKES` failures, each runs :data:`RUNS` times more, alone. Tests
that pass each time are flaky: their names are written to ``REPORTS/flaky.txt``, and to
``tools/flaky.txt``, which is committed. A test that is in ``tools/flaky.txt`` already has failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple

KNOWN = Path(__file__).resolve().parent / "flaky.txt"
MOST_FLAKES = 3
RUNS = 3


class Failure(NamedTuple):
    """Tests that failed for one cause, and how to run them: command, directory, environment."""

    names: list[str]
    command: list[str]
    folder: str
    variables: dict[str, str]


def failures(reports: Path) -> list[Failure]:
    """Return the failures of all runs of pytest; each run counts."""
    found = []
    for file in sorted(reports.glob("*.failures.json")):
        record = json.loads(file.read_text("utf-8"))
        run = (record["command"], record["folder"], record["variables"])
        causes: dict[str, list[str]] = {}
        for name, cause in record["tests"].items():
            causes.setdefault(cause, []).append(name)
        found += [Failure(tests, *run) for tests in causes.values()]
    return found


def names(known: Path) -> set[str]:
    """Return the tests that a file of flaky tests lists, one on a line: the date, then the name."""
    if not known.exists():
        return set()
    lines = [line for line in known.read_text("utf-8").splitlines() if not line.startswith("#")]
    return {line.partition(" ")[2] for line in lines if line}


def passes(failure: Failure) -> bool:
    """Run the tests of a failure alone; print the outcome, and the output if one fails."""
    began = time.monotonic()
    done = subprocess.run(
        [*failure.command, *failure.names],
        cwd=failure.folder,
        env={**os.environ, **failure.variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if done.returncode:
        print(done.stdout.decode(errors="replace"))
    outcome = "failed" if done.returncode else "passed"
    others = f" and {len(failure.names) - 1} others" if failure.names[1:] else ""
    seconds = time.monotonic() - began
    print(f"again, alone: {failure.names[0]}{others}: {outcome} in {seconds:.0f} s", flush=True)
    return not done.returncode


def flaky(failed: list[Failure], known: set[str], run: Callable[[Failure], bool]) -> list[str]:
    """Return the names of the failed tests that are flaky and were not flaky before."""
    if len(failed) > MOST_FLAKES:
        print(f"{len(failed)} failures, more than {MOST_FLAKES}: no test runs again")
        return []
    found = []
    for failure in failed:
        before = [name for name in failure.names if name in known]
        for name in before:
            print(f"{name}: was flaky before (tools/flaky.txt), so it counts as failed")
        if not before and all(run(failure) for _ in range(RUNS)):
            found += failure.names
    return found


def main(reports: Path) -> None:
    found = flaky(failures(reports), names(KNOWN), passes)
    (reports / "flaky.txt").write_text("".join(f"{name}\n" for name in found), "utf-8")
    with KNOWN.open("a", encoding="utf-8") as file:
        file.writelines(f"{date.today().isoformat()} {name}\n" for name in found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
