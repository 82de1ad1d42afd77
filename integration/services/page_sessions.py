"""Check the shell sessions on the pages of docs/schedulers: the commands must print what is shown.

With ``TORCHX_WRITE_SESSIONS=1``, write the output of the commands into the pages instead.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

PAGES = Path(__file__).resolve().parents[2] / "docs" / "schedulers"
WRITE = os.environ.get("TORCHX_WRITE_SESSIONS") == "1"

_SESSION = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.M | re.S)
_WAITS = re.compile(
    r" INFO +(PENDING|SUBMITTED|RUNNING|UNKNOWN)\b| WARNING +\S+ has not answered for \d+ s;"
)
# Texts that differ from run to run, and their replacements.
_VARIABLE = (
    (re.compile(r"(\w+://torchx/)[\w:./@-]*"), r"\1ID"),
    (re.compile(r"(?<= on )[\w.-]+(?=:)"), "HOST"),
    (re.compile(r"(UI URL: .*/)[\w-]+$"), r"\1ID"),
    (re.compile(r"#jobs/.*"), "#jobs/ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?"), "TIME"),
    (re.compile(r"\b\d+ (ms|s|min|h)( \d+ (s|min))?\b"), "AGE"),
    # The command may report the end of a job before the time of the end is known.
    (re.compile(r"(?<=job finished: SUCCEEDED) after AGE"), ""),
    (re.compile(r"\(\d+\)|\b\d+%"), "NUMBER"),
    (re.compile(r"[-\s]+"), " "),
)


def check(page: str, folder: Path, environment: Mapping[str, str]) -> None:
    """Run the session of a page; compare the output with the page, or if ``WRITE``, write it there.

    Args:
        page: Name of the page, which is the name of a scheduler.
        folder: Working directory of the commands.
        environment: Environment variables of the commands.
    """
    path = PAGES / f"{page}.md"
    text = path.read_text("utf-8")
    found = _SESSION.search(text)
    assert found is not None, f"{path} has no block ```console"
    shown = found[0]
    commands = [line[2:] for line in shown.splitlines() if line.startswith("$ ")]
    printed = "".join(f"$ {command}\n{_run(command, folder, environment)}" for command in commands)
    if WRITE:
        path.write_text(f"{text[: found.start()]}{printed}{text[found.end() :]}", "utf-8")
        return
    differences = "\n".join(difflib.ndiff(_normalized(shown), _normalized(printed)))
    assert not re.search(r"^[-+] ", differences, re.M), differences


def _run(command: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command line in bash; return both output streams, with the paths that pages show."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout.replace(str(folder.parent / "home"), "/home/ada").replace(
        str(folder), "/home/ada/project"
    )


def _normalized(text: str) -> list[str]:
    """Return the lines sorted and without variable texts, for a comparison of two runs.

    The lines of two replicas come in any order. Lines about a waiting app or a slow command of the
    cluster are left out, because their number depends on the load of the machine.
    """
    lines = [line for line in text.splitlines() if not _WAITS.search(line)]
    for pattern, name in _VARIABLE:
        lines = [pattern.sub(name, line) for line in lines]
    return sorted(lines)
