"""The command ``torchx configure``."""

from __future__ import annotations

import io
import logging
import os
import re

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.scheduler_choice import choose_scheduler
from torchx_cli.completion.values import complete_schedulers
from torchx_cli.output.printing import write
from torchx_kit.atomic_files import write_atomically
from torchx_runner.config import api as config
from torchx_runner.config.files import parse_config
from torchx_runner.installed_schedulers import split_host
from torchx_specs.errors import ConfigError

logger = logging.getLogger(__name__)

# Editors on Windows write this character first.
_BYTE_ORDER_MARK = "\ufeff"
_HEADER = re.compile(rf"{_BYTE_ORDER_MARK}?\[[^\]]+\]")


@click.command("configure", cls=Command)
@click.option(
    "-s",
    "--schedulers",
    metavar="NAME,...",
    shell_complete=complete_schedulers,
    help="Write the options of these schedulers only.  [default: all installed]",
)
@click.option(
    "-a", "--all", "with_defaults", is_flag=True, help="Write also the options that have a default."
)
@click.option(
    "--print", "to_stdout", is_flag=True, help="Print the configuration to standard output instead."
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(schedulers: str | None, with_defaults: bool, to_stdout: bool, force: bool) -> None:
    """Write ./.torchxconfig with the options of the installed schedulers.

    Missing sections and keys are added to an existing file; the rest stays unchanged, unless
    --force replaces the file.
    """
    names = None
    if schedulers is not None:
        wanted = [name.strip() for name in schedulers.split(",") if name.strip()]
        names = [split_host(choose_scheduler(name))[0] for name in dict.fromkeys(wanted)]
    buffer = io.StringIO()
    config.dump(buffer, names, required_only=not with_defaults)
    text = buffer.getvalue()
    if to_stdout:
        write(text)
        return
    path = os.path.join(os.curdir, config.CONFIG_FILE)
    existing = None if force else _read(path)
    if existing is None:
        replace_file(path, text)
        logger.info("wrote %s", path)
        return
    merged, added = merge(existing, text, path)
    if added:
        replace_file(path, merged)
        logger.info("added to %s: %s", path, ", ".join(added))
    else:
        logger.info("%s is complete; nothing changed (--force replaces it)", path)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as fp:
            return fp.read()
    except FileNotFoundError:
        return None
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror or e}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text; nothing changed") from None


def merge(existing: str, addition: str, path: str) -> tuple[str, list[str]]:
    r"""Add missing sections and keys to a file's text; return the text, and the list of additions.

    >>> addition = "[slurm]\npartition = None\ntime = 1\n"
    >>> text, added = merge("[slurm]\npartition = gpu\n", addition, "file")
    >>> print(text, end="")
    [slurm]
    partition = gpu
    time = 1
    >>> added
    ['[slurm] time']

    Args:
        existing: The file's text. A byte order mark at its start stays.
        addition: The text of a generated file, with one line for each key.
        path: The file, for error messages.

    Raises:
        ConfigError: The file is malformed, or the header of a section is indented.
    """
    have = {
        name: {_fold(key) for key in keys}
        for name, keys in parse_config(existing, path).sections.items()
    }
    newline = "\r\n" if "\r\n" in existing else "\n"
    lines = existing.splitlines(keepends=True)
    added: list[str] = []
    for section in re.split(r"(?m)^(?=\[)", addition)[1:]:
        header, *entries = filter(None, section.splitlines())
        present = have.get(header[1:-1])
        new = [line for line in entries if _fold(_key(line)) not in (present or ())]
        if present is not None:
            at = _end_of_section(lines, header, path)
            added += [f"{header} {_key(line)}" for line in new]
        else:
            at = len(lines)
            new = [*([""] if lines and lines[-1].strip() else []), header, *new]
            added.append(header)
        if new and at and not lines[at - 1].endswith("\n"):
            lines[at - 1] += newline
        lines[at:at] = [line + newline for line in new]
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
    try:
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else None
        write_atomically(target, text, 0o666 if mode is None else mode)
        if mode is not None:
            os.chmod(target, mode)  # the umask may have cleared some bits
    except OSError as e:
        raise ConfigError(f"{path}: cannot be written: {e.strerror or e}") from e


def _end_of_section(lines: list[str], header: str, path: str) -> int:
    """Return where a section ends: after its last line that is neither blank nor a comment."""
    starts = [n for n, line in enumerate(lines) if _HEADER.match(line)]
    start = next((n for n in starts if lines[n].lstrip(_BYTE_ORDER_MARK).startswith(header)), None)
    if start is None:  # configparser accepts it
        raise ConfigError(f"{path}: remove the spaces before {header}; nothing changed")
    end = next((n for n in starts if n > start), len(lines))
    while not lines[end - 1].strip() or lines[end - 1].lstrip()[0] in "#;":
        end -= 1
    return end


def _key(line: str) -> str:
    return line.partition("=")[0].strip()


def _fold(key: str) -> str:
    """Return the form of a key in which ``logDir`` and ``log_dir`` are equal."""
    return key.replace("_", "").lower()
