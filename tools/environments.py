"""Virtual environments: finding an interpreter, making one, installing into it.

Standard library only. Errors are :class:`EnvironmentFailure`, one clear line each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


class EnvironmentFailure(Exception):
    """Why an environment could not be made, in one line."""


def interpreter(version: str) -> str | None:
    """The path of a working Python of that version, or None.

    pyenv's versions come first: its shims on ``PATH`` exist even for versions that are switched
    off, and then fail when called.

    Args:
        version: Such as ``"3.12"``.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")), reverse=True)
    candidates += filter(None, [shutil.which(f"python{version}"), sys.executable])
    return next((path for path in candidates if version_of(path) == version), None)


def version_of(python: str | Path) -> str | None:
    """``"3.12"`` for a Python that starts, None for anything else."""
    try:
        done = subprocess.run(
            [str(python), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def python_in(environment: Path) -> Path:
    return environment / "bin" / "python"


def create(
    environment: Path, python: str | Path = sys.executable, *, with_pip: bool = True
) -> None:
    """Makes a virtual environment, in place of one that no longer works.

    Args:
        environment: Its folder.
        python: The interpreter it is made from.
        with_pip: Whether it gets a pip of its own (two seconds); see :func:`pip`.

    Raises:
        EnvironmentFailure: The interpreter has no ``ensurepip``, or the folder can't be written.
    """
    command = [str(python), "-m", "venv", "--clear", str(environment)]
    if not with_pip:
        command.insert(-1, "--without-pip")
    elif subprocess.run([str(python), "-c", "import ensurepip"], capture_output=True).returncode:
        raise EnvironmentFailure(
            f"{python} has no ensurepip, so it can't make a virtual environment: install it "
            "(Debian, Ubuntu: apt-get install python3-venv) or run this with another Python"
        )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        raise EnvironmentFailure(f"can't make {environment}: {lines[-1]}")


def pip(
    environment: Path,
    arguments: Sequence[str],
    *,
    pip_from: Path | None = None,
    show: Callable[[str], None] | None = None,
    log: Path | None = None,
) -> None:
    """Runs pip for ``environment``.

    Args:
        environment: Where it installs to.
        arguments: What follows ``pip``.
        pip_from: An environment whose pip is used, for one that was made without.
        show: Called with each line of output as it comes.
        log: A file that gets all of the output.

    Raises:
        EnvironmentFailure: With pip's own last error line.
    """
    command = [str(python_in(pip_from or environment)), "-m", "pip"]
    if pip_from is not None:
        command += ["--python", str(python_in(environment))]
    command += ["--disable-pip-version-check", "--no-input", *arguments]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None  # noqa: S101 (stdout=PIPE; for the type checker)
        for line in process.stdout:
            lines.append(line.rstrip())
            if show is not None:
                show(lines[-1])
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write("\n".join([" ".join(command), *lines, ""]))
    if process.returncode:
        raise EnvironmentFailure(_reason(lines) + (f" (all of it: {log})" if log else ""))


_NO_CONNECTION = re.compile(r"Retrying .* after connection broken by '(.*)'")
_SYSTEM_ERROR = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")


def lost_connection(line: str) -> str | None:
    """Why pip cannot reach its package index, if the line says that it can't."""
    found = _NO_CONNECTION.search(line)
    if found is None:
        return None
    system = _SYSTEM_ERROR.search(found[1])
    return system[1].strip() if system else found[1].partition("(")[0]


def _reason(lines: Iterable[str]) -> str:
    """pip's first line that says what went wrong, or its last."""
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("ERROR: ")]
    reason = (errors or said[-1:] or ["pip failed without a word"])[0].removeprefix("ERROR: ")
    # without its index, pip says that it found no version
    lost = [why for why in map(lost_connection, said) if why]
    if lost and "from versions: none" in reason:
        return (
            f"pip cannot reach its package index: {lost[-1]}; it needs the network, or an index"
            " that is named by PIP_INDEX_URL"
        )
    return reason
