"""Compare speed and memory with upstream's release of TorchX: ``nox -s bench -- [ROW ...]``.

Upstream's release is called the peer. Both sides are installed as users install them: our wheels in
one environment, the peer from PyPI in another, with the same Python. Each row runs the two sides in
turn, so that other load on the machine affects both, and compares the medians.

Without names of rows, the script measures all rows and writes ``docs/benchmarks.md``. It exits with
1 if a row exceeds its limit or cannot be measured. ``TORCHX_BENCH_PEER`` may name an environment
that already has the peer. All rows together need 15 GB in ``TMPDIR``.
"""

from __future__ import annotations

import argparse
import ast
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from table import LARGEST_EXPONENT, ROWS, SERIES, Row  # noqa: E402
from workspace import ROOT, version  # noqa: E402

PEER = ("torchx-nightly==2026.10.26", "kubernetes", "submitit==1.5.4")
# The driver of chromium, for rows that measure pages.
BROWSER = "playwright"
# integration/trackers uses the peer's environment in this folder, too.
WORK = ROOT / ".nox" / "benchmarks"
WHEELS = ROOT / ".nox" / "dist"
PAGE = ROOT / "docs" / "benchmarks.md"


class Failed(Exception):
    """A row could not be measured; the message has the reason."""


@dataclass
class Result:
    """The measurements of a row: one value for each round and side, and each script's remark.

    Attributes:
        failures: Why a side could not be measured, by its name: ours or peer.
    """

    row: Row
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The value that the limit applies to: ours / peer of the medians, or only our median."""
        ours = statistics.median(self.ours)
        return ours if self.row.absolute else ours / statistics.median(self.peer)

    @property
    def kept(self) -> bool:
        """Whether the limit is kept; a peer that fails sets none."""
        if self.failures:
            return "ours" not in self.failures
        return self.row.limit is None or self.value <= self.row.limit


def uv(*arguments: object) -> None:
    """Run uv.

    Raises:
        Failed: uv failed; the message is the last line of its output.
    """
    command = [str(Path(sys.prefix) / "bin" / "uv"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or ["uv failed without a message"])[-1])


def both_environments(version: str) -> tuple[Path, Path]:
    """Create an environment with our wheels and one with the peer, and return their folders.

    Our environment is always created again; an existing environment of the peer is reused.

    Args:
        version: The version of Python, such as ``"3.10"``; empty for this process's Python.

    Raises:
        Failed: The Python version is not installed, or a package cannot be installed.
    """
    python = version or sys.executable
    ours, peer = (WORK / "-".join(filter(None, (side, version))) for side in ("ours", "peer"))
    print(f"installing our wheels into {ours.name}", flush=True)
    uv("venv", "--clear", "--python", python, ours)
    # Compile all modules, as pip does, so that the first start is not slower than later ones.
    install = ("pip", "install", "--compile-bytecode", "--python")
    uv(*install, ours, *sorted(WHEELS.glob("*.whl")))
    named = os.environ.get("TORCHX_BENCH_PEER")
    if named and not version:
        return ours, Path(named).resolve()
    if not list(peer.glob("lib/python*/site-packages/submitit")):
        print(f"installing {PEER[0]} into {peer.name}", flush=True)
        uv("venv", "--clear", "--python", python, peer)
        uv(*install, peer, *PEER)
    return ours, peer


def peer_environment(row: Row, ours: Path) -> Path:
    """Return the environment of a row's peer, which is not TorchX.

    Args:
        row: The row. If it measures pages, both sides get the driver of the browser.
        ours: Our environment.

    Raises:
        Failed: A package cannot be installed.
    """
    packages = (*row.peer_packages, *([BROWSER] if row.in_browser else []))
    peer = WORK / "-".join(("peer", *(name_of(package) for package in row.peer_packages)))
    install = ("pip", "install", "--compile-bytecode", "--python")
    if row.in_browser:
        uv(*install, ours, BROWSER)
    if not peer.exists():
        uv("venv", "--python", sys.executable, peer)
    print(f"installing {', '.join(packages)} into {peer.name}", flush=True)
    uv(*install, peer, *packages)
    return peer


def name_of(requirement: str) -> str:
    """Return the package that a requirement such as ``kubernetes<32`` names."""
    return re.split(r"[<>=!~]", requirement, maxsplit=1)[0]


def run_once(row: Row, environment: Path, argv: tuple[str, ...], home: str) -> tuple[float, str]:
    """Run one side of a row once; return its value (seconds or MB) and the script's remarks.

    Args:
        row: The row.
        environment: The environment of the side.
        argv: The side's command and its arguments.
        home: A new folder, which is the home and the working directory of the command.

    Raises:
        Failed: The command did not exit with 0.
    """
    if argv[0].endswith(".py"):
        command = [str(environment / "bin" / "python"), str(HERE / "rows" / argv[0])]
    else:
        command = [str(environment / "bin" / argv[0])]
    keep = {key: os.environ[key] for key in ("LANG", "TMPDIR") if key in os.environ}
    path = f"{environment / 'bin'}{os.pathsep}{os.defpath}"
    variables = {**keep, "PATH": path, "HOME": home, "TORCHX_HOME": f"{home}/torchx"}
    begun = time.perf_counter()
    done = subprocess.run(
        [*command, *argv[1:]],
        cwd=home,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise Failed(f"exit code {done.returncode}: {output[-1]}")
    if row.clock == "process":
        return seconds, ""
    printed = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    value = printed.pop("seconds", None)
    if value is None:
        value = printed.pop("megabytes")
    return float(value), ", ".join(f"{key} {count:,}" for key, count in printed.items())


def measure(row: Row, ours: Path, peer: Path, rounds: int | None, homes: str) -> Result:
    """Run both sides of a row in turn, in several rounds. A side that fails does not run again.

    Args:
        row: The row.
        ours: Our environment.
        peer: The environment of the peer.
        rounds: The number of rounds; None means ``row.rounds``.
        homes: The folder in which each run gets a new folder. The caller deletes these folders
            after all measurements, because many deletions slow down the creation of files.
    """
    result = Result(row)
    sides = [("ours", ours, row.ours, result.ours)]
    if row.peer is not None:
        sides.append(("peer", peer, row.peer, result.peer))
    # The first of several rounds only fills the file cache.
    fills_cache = row.rounds > 1
    for number in range((rounds or row.rounds) + fills_cache):
        for name, environment, argv, values in sides:
            if name in result.failures:
                continue
            home = tempfile.mkdtemp(dir=homes)
            try:
                value, result.remarks[name] = run_once(row, environment, argv, home)
            except Failed as failure:
                result.failures[name] = str(failure)
                continue
            if number or not fills_cache:
                values.append(value)
    return result


def shown(values: list[float], row: Row) -> str:
    value = statistics.median(values)
    if row.absolute and row.unit == "MB":
        return f"{value:.1f} MB"
    if row.absolute and row.unit != "s":
        return f"{value:g} {row.unit}"
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def side_cell(result: Result, name: str, values: list[float]) -> str:
    if name in result.failures:
        return f"fails: {result.failures[name]}"
    remark = result.remarks[name]
    return shown(values, result.row) + (f" ({remark})" if remark else "")


def table_line(result: Result) -> str:
    """Return the Markdown line of a row in the table of docs/benchmarks.md."""
    row = result.row
    if row.absolute and not result.failures:
        ours = shown(result.ours, row)
        limit = f"{row.limit:g} {row.unit}"
        cells = [row.work, ours, "", "", limit, "yes" if result.kept else "**no**"]
    else:
        ours = side_cell(result, "ours", result.ours)
        peer = "" if row.peer is None else side_cell(result, "peer", result.peer)
        ratio = "" if result.failures else f"{result.value:.3f}"
        judged = ["", ""]
        if row.limit is not None:
            kept = "" if result.failures else "yes"
            judged = [f"{row.limit:.2f}", kept if result.kept else "**no**"]
        cells = [row.work, ours, peer, ratio, *judged]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@dataclass
class Growth:
    """The measurements of a series, in the order of the sizes."""

    results: list[Result]

    @property
    def exponent(self) -> float:
        """The exponent between the two largest sizes; constant costs hide it at smaller ones."""
        *_, before, last = (statistics.median(result.ours) for result in self.results)
        return math.log10(last / before)

    @property
    def kept(self) -> bool:
        return not self.failure and self.exponent <= LARGEST_EXPONENT

    @property
    def failure(self) -> str:
        return next((result.failures["ours"] for result in self.results if result.failures), "")

    def table_line(self) -> str:
        """Return the Markdown line of the series in the table of docs/benchmarks.md."""
        row = self.results[0].row
        cells = [row.work, row.ours[-1]]
        if self.failure:
            cells += [f"not measured: {self.failure}", "", "", "", "no"]
        else:
            cells += [shown(result.ours, row) for result in self.results]
            cells += [f"{self.exponent:.2f}", "yes" if self.kept else "**no**"]
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def processor() -> str:
    """Return the name of the machine's processor, or its architecture if the name is unknown."""
    try:
        for text in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def page(results: list[Result], growths: list[Growth], missing: list[Row]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Written by `nox -s bench`; do not edit. The peer is upstream's release of TorchX. Each",
        "figure is the median of several runs on one machine, in which both sides took turns. The",
        "limit (*at most*) applies to the ratio ours / peer.",
        "",
        f"- {date.today().isoformat()}, {os.cpu_count()} × {processor()}",
        f"- 5-minute load average at the end: {os.getloadavg()[1]:.1f} (benchmarks: about 1)",
        f"- Python {platform.python_version()}, {platform.system()} {platform.release()}",
        f"- ours {version()} from wheels, peer `{PEER[0]}`",
        "",
        "| work | ours | peer | ratio | at most | kept |",
        "|---|---|---|---|---|---|",
        *map(table_line, results),
        "",
        "## Growth",
        "",
        "Processor time at n, 10 n and 100 n, and the exponent of the growth from 10 n to 100 n,",
        f"which is at most {LARGEST_EXPONENT}.",
        "",
        "| work | n | at n | at 10 n | at 100 n | exponent | kept |",
        "|---|---|---|---|---|---|---|",
        *(growth.table_line() for growth in growths),
    ]
    if missing:
        lines += ["", "Not measured, because a distribution has no wheel in `.nox/dist`:", ""]
        lines += [f"- {row.work} ({', '.join(row.needs)})" for row in missing]
    return "\n".join([*lines, ""])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Compare with upstream's release.")
    series = [one.rows() for one in SERIES]
    known = [row.name for row in (*ROWS, *(sizes[0] for sizes in series))]
    parser.add_argument(
        "rows", nargs="*", metavar="ROW", help=f"row to measure (default: all): {', '.join(known)}"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each row (default: the row's number)")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.rows if name not in known]
    if unknown:
        parser.error(f"unknown row {', '.join(unknown)}; choose from {', '.join(known)}")
    present = {path.name.partition("-")[0].replace("_", "-") for path in WHEELS.glob("*.whl")}
    rows = [row for row in ROWS if row.name in arguments.rows or not arguments.rows]
    series = [sizes for sizes in series if sizes[0].name in arguments.rows or not arguments.rows]
    wanted = [*rows, *(sizes[0] for sizes in series)]
    missing = [row for row in wanted if not present.issuperset(row.needs)]
    measured = [row for row in rows if row not in missing]
    series = [sizes for sizes in series if sizes[0] not in missing]
    try:
        sides = {
            version: both_environments(version)
            for version in dict.fromkeys(row.python for row in wanted if row not in missing)
        }
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    results = []
    with tempfile.TemporaryDirectory(prefix="torchx-bench-") as homes:
        for row in measured:
            ours, peer = sides[row.python]
            if row.peer_packages:
                peer = peer_environment(row, ours)
            results.append(measure(row, ours, peer, arguments.rounds, homes))
            print(table_line(results[-1]), flush=True)
        growths = []
        for sizes in series:
            ours, peer = sides[""]
            growths.append(
                Growth([measure(row, ours, peer, arguments.rounds, homes) for row in sizes])
            )
            print(growths[-1].table_line(), flush=True)
    if not arguments.rows:
        PAGE.write_text(page(results, growths, missing), "utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    over = [result.row.name for result in results if not result.kept]
    over += [growth.results[0].row.name for growth in growths if not growth.kept]
    names = f": {', '.join(over)}" if over else ""
    judged = len(growths) + sum(result.row.limit is not None for result in results)
    print(f"bench: {judged - len(over)} limits kept, {len(over)} not{names}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
