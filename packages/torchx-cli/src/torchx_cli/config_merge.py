"""Adds missing sections and keys to a ``.torchxconfig``; every other byte stays unchanged."""

from __future__ import annotations

import os
import re
import tempfile

from torchx_runner.config.files import parse_config
from torchx_specs.errors import ConfigError

_HEADER = re.compile(r"\[(?P<name>[^\]]+)\]")


def merge(existing: str, addition: str, path: str) -> tuple[str, list[str]]:
    r"""Return a file's text with the missing sections and keys added, and the list of these.

    >>> addition = "[slurm]\npartition = None\ntime = 1\n"
    >>> text, added = merge("[slurm]\npartition = gpu\n", addition, "file")
    >>> print(text, end="")
    [slurm]
    partition = gpu
    time = 1
    >>> added
    ['[slurm] time']

    Args:
        existing: The file's text.
        addition: The text of a generated file, with one line for each key.
        path: The file, for error messages.

    Raises:
        ConfigError: The file is malformed.
    """
    have = {
        name: {_fold(key) for key in keys}
        for name, keys in parse_config(existing, path).sections.items()
    }
    newline = "\r\n" if "\r\n" in existing else "\n"
    lines = existing.splitlines(keepends=True)
    added: list[str] = []
    for name, entries in _sections(addition):
        missing = [line for line in entries if _fold(_key(line)) not in have.get(name, ())]
        if name in have:
            at = _end_of_section(lines, name)
            new = missing
        else:
            _end_line(lines, newline)
            at = len(lines)
            new = [*([""] if lines and lines[-1].strip() else []), f"[{name}]", *missing]
            added.append(f"[{name}]")
        if new and at:
            _end_line(lines[:at], newline)
            if not lines[at - 1].endswith("\n"):
                lines[at - 1] += newline
        lines[at:at] = [line + newline for line in new]
        added += [f"[{name}] {_key(line)}" for line in missing if name in have]
    return "".join(lines), added


def replace_file(path: str, text: str) -> None:
    """Replace the content of a file atomically: a reader sees the old or the new text.

    Args:
        path: The file. If it is a link, its target is replaced. The permissions stay.
        text: The new content.

    Raises:
        ConfigError: The file cannot be written.
    """
    target = os.path.realpath(path)
    temporary = ""
    try:
        mode = _mode(target)
        fd, temporary = tempfile.mkstemp(prefix=".torchxconfig-", dir=os.path.dirname(target))
        with os.fdopen(fd, "w", encoding="utf-8", newline="") as fp:
            fp.write(text)
            fp.flush()
            os.fsync(fp.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except OSError as e:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise ConfigError(f"{path}: cannot be written: {e.strerror or e}") from e


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Return the sections of a generated file, each with its lines."""
    sections: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            sections.append((header["name"], []))
        elif line.strip() and sections:
            sections[-1][1].append(line)
    return sections


def _end_of_section(lines: list[str], name: str) -> int:
    """Return the index after the last line of a section that is neither blank nor a comment."""
    inside = False
    end = 0
    for number, line in enumerate(lines):
        header = _HEADER.match(line)
        if header:
            inside = header["name"] == name
        if inside and (header or (line.strip() and line.lstrip()[0] not in "#;")):
            end = number + 1
    return end


def _end_line(lines: list[str], newline: str) -> None:
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline


def _key(line: str) -> str:
    return line.partition("=")[0].strip()


def _fold(key: str) -> str:
    """Return the form of a key in which ``logDir`` and ``log_dir`` are equal."""
    return key.replace("_", "").lower()
