"""Measures the design's figures beside the released peer: ``nox -s bench -- [ROW ...]``.

Both sides are installed as users install them: wheels of ours in one environment, the peer from
PyPI in another, the same Python. Each row runs one side and the other in turn, so that whatever
else the machine does falls on both, and compares medians. Without rows named, all are measured and
``docs/benchmarks.md`` is written; the exit code says whether every limit was kept.

``TORCHX_BENCH_PEER`` names an environment that has the peer already. All rows together want 15 GB
in ``TMPDIR``.
"""

from __future__ import annotations

import argparse
import ast
import os
import platform
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

from check_projects import version  # noqa: E402
from table import ROWS, Row  # noqa: E402
from workspace import ROOT  # noqa: E402

PEER = ("torchx-nightly==2026.10.26", "kubernetes")
# integration/trackers looks for the peer here.
WORK = ROOT / ".nox" / "benchmarks"
WHEELS = ROOT / ".nox" / "dist"
PAGE = ROOT / "docs" / "benchmarks.md"


class Failed(Exception):
    """Why a row could not be measured."""


@dataclass
class Result:
    """What a row gave: one value per round and side, and what its script said beside the time."""

    row: Row
    ours: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    remarks: dict[str, str] = field(default_factory=dict)
    failure: str = ""

    @property
    def value(self) -> float:
        """What the limit is for: a ratio of medians, or the value itself."""
        ours = statistics.median(self.ours)
        return ours if self.row.absolute else ours / statistics.median(self.peer)

    @property
    def kept(self) -> bool:
        return not self.failure and (self.row.limit is None or self.value <= self.row.limit)


def uv(*arguments: object) -> None:
    """Run uv.

    Raises:
        Failed: With uv's last line.
    """
    command = [str(Path(sys.prefix) / "bin" / "uv"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed((done.stderr.strip().splitlines() or ["uv failed without a message"])[-1])


def both_environments(version: str) -> tuple[Path, Path]:
    """Make two environments of a version of Python: one with our wheels, and one with the peer.

    Ours is always made anew; the peer's is kept.

    Args:
        version: Such as ``"3.10"``; empty for the one that runs this.

    Raises:
        Failed: There is no such Python, or a package cannot be installed.
    """
    python = version or sys.executable
    ours, peer = (WORK / "-".join(filter(None, (side, version))) for side in ("ours", "peer"))
    print(f"installing our wheels into {ours.name}", flush=True)
    uv("venv", "--clear", "--python", python, ours)
    # pip compiles what it installs, so that a first start is not slower than the others.
    install = ("pip", "install", "--compile-bytecode", "--python")
    uv(*install, ours, *sorted(WHEELS.glob("*.whl")))
    named = os.environ.get("TORCHX_BENCH_PEER")
    if named and not version:
        return ours, Path(named).resolve()
    if not (peer / "bin" / "torchx").exists():
        print(f"installing {PEER[0]} into {peer.name}", flush=True)
        uv("venv", "--clear", "--python", python, peer)
        uv(*install, peer, *PEER)
    return ours, peer


def once(row: Row, environment: Path, words: tuple[str, ...], home: str) -> tuple[float, str]:
    """Runs one side of a row once; its value, and what its script printed beside that.

    Args:
        row: What is measured.
        environment: Of the side.
        words: The command.
        home: A new folder, where it runs.

    Raises:
        Failed: It exited with something else than 0.
    """
    if words[0].endswith(".py"):
        command = [str(environment / "bin" / "python"), str(HERE / "rows" / words[0])]
    else:
        command = [str(environment / "bin" / words[0])]
    keep = {key: os.environ[key] for key in ("LANG", "TMPDIR") if key in os.environ}
    path = f"{environment / 'bin'}{os.pathsep}{os.defpath}"
    variables = {**keep, "PATH": path, "HOME": home, "TORCHX_HOME": f"{home}/torchx"}
    begun = time.perf_counter()
    done = subprocess.run(
        [*command, *words[1:]],
        cwd=home,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["nothing said"]
        raise Failed(f"exit code {done.returncode}: {said[-1]}")
    if row.clock == "process":
        return seconds, ""
    printed = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    value = printed.pop("seconds", None)
    if value is None:
        value = printed.pop("megabytes")
    return float(value), ", ".join(f"{key} {count:,}" for key, count in printed.items())


def measure(row: Row, ours: Path, peer: Path, rounds: int | None, homes: str) -> Result:
    """Runs both sides in turn.

    Args:
        row: What is measured.
        ours: Our environment.
        peer: The peer's.
        rounds: How often, instead of the row's own number.
        homes: Gets a folder for each run. They are kept to the end of all: for a minute after many
            files were deleted, a file system may be slow to make new ones.
    """
    result = Result(row)
    sides = [("ours", ours, row.ours, result.ours)]
    if row.peer is not None:
        sides.append(("peer", peer, row.peer, result.peer))
    try:
        for number in range((rounds or row.rounds) + 1):
            for name, environment, words, values in sides:
                home = tempfile.mkdtemp(dir=homes)
                value, remark = once(row, environment, words, home)
                # The first round fills the file cache, and isn't counted where there are more.
                if number or row.rounds == 1:
                    values.append(value)
                result.remarks[name] = remark
            if row.rounds == 1:
                break
    except Failed as failure:
        result.failure = f"{name}: {failure}"
    return result


def shown(values: list[float], row: Row) -> str:
    value = statistics.median(values)
    if row.absolute:
        return f"{value:.1f} MB"
    return f"{value:.3f} s" if value < 10 else f"{value:.1f} s"


def line(result: Result) -> str:
    """A row of the table."""
    row = result.row
    if result.failure:
        limit = "" if row.limit is None else f"{row.limit:g}"
        cells = [row.work, f"not measured: {result.failure}", "", "", limit, "no"]
    elif row.absolute:
        ours = shown(result.ours, row)
        cells = [row.work, ours, "", "", f"{row.limit:g} MB", "yes" if result.kept else "**no**"]
    else:
        sides = [
            shown(values, row) + (f" ({result.remarks[name]})" if result.remarks[name] else "")
            for name, values in (("ours", result.ours), ("peer", result.peer))
        ]
        judged = ["", ""]
        if row.limit is not None:
            judged = [f"{row.limit:.2f}", "yes" if result.kept else "**no**"]
        cells = [row.work, *sides, f"{result.value:.3f}", *judged]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def processor() -> str:
    """The machine's processor, as far as it says."""
    try:
        for text in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if text.startswith("model name"):
                return text.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def page(results: list[Result], missing: list[Row]) -> str:
    lines = [
        "# Benchmarks",
        "",
        "Written by `nox -s bench`; don't edit. Each figure is the median of several runs, ours",
        "and the peer's in turn on one machine in one go; what counts is the ratio, ours / peer.",
        "",
        f"- {date.today().isoformat()}, {os.cpu_count()} × {processor()}",
        f"- load of the machine at the end: {os.getloadavg()[1]:.1f} (5 minutes; ours is about 1)",
        f"- Python {platform.python_version()}, {platform.system()} {platform.release()}",
        f"- ours {version()} from wheels, peer `{PEER[0]}`",
        "",
        "| work | ours | peer | ratio | at most | kept |",
        "|---|---|---|---|---|---|",
        *map(line, results),
    ]
    if missing:
        lines += ["", "Not measured, because the distribution doesn't exist yet:", ""]
        lines += [f"- {row.work} ({', '.join(row.needs)})" for row in missing]
    return "\n".join([*lines, ""])


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Measures ours beside the released peer.")
    known = [row.name for row in ROWS]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(known)}")
    parser.add_argument("--rounds", type=int, help="rounds of each row, instead of its own number")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.rows if name not in known]
    if unknown:
        parser.error(f"no row named {', '.join(unknown)}; there are {', '.join(known)}")
    present = {path.name.partition("-")[0].replace("_", "-") for path in WHEELS.glob("*.whl")}
    rows = [row for row in ROWS if row.name in arguments.rows or not arguments.rows]
    missing = [row for row in rows if not present.issuperset(row.needs)]
    measured = [row for row in rows if row not in missing]
    try:
        sides = {
            version: both_environments(version)
            for version in dict.fromkeys(row.python for row in measured)
        }
    except Failed as failure:
        print(f"bench: {failure}", file=sys.stderr)
        return 1
    results = []
    with tempfile.TemporaryDirectory(prefix="torchx-bench-") as homes:
        for row in measured:
            results.append(measure(row, *sides[row.python], arguments.rounds, homes))
            print(line(results[-1]), flush=True)
    if not arguments.rows:
        PAGE.write_text(page(results, missing), "utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    over = [result.row.name for result in results if not result.kept]
    names = f": {', '.join(over)}" if over else ""
    judged = [result for result in results if result.row.limit is not None]
    print(f"bench: {len(judged) - len(over)} limits kept, {len(over)} not{names}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
