"""The commands ``torchx config`` and ``torchx configure``."""

from __future__ import annotations

import io
import logging
import os
import re
from operator import itemgetter
from typing import Any

import click

from torchx_cli.arguments.options import Command, output_option, split_names
from torchx_cli.arguments.scheduler_choice import choose_scheduler
from torchx_cli.completion.values import complete_schedulers, complete_sections
from torchx_cli.output.printing import TABLE, Column, write, write_data, write_rows
from torchx_kit.atomic_files import write_atomically
from torchx_runner.config import api as config
from torchx_runner.config.files import parse_config
from torchx_runner.config.line_numbers import key_lines
from torchx_runner.installed_schedulers import ConfigurableSchedulers, plugin_manager, split_host
from torchx_specs.errors import ConfigError, RequestError, nearest
from torchx_specs.formats.documents import read_text_file
from torchx_specs.redaction import masked_value

logger = logging.getLogger(__name__)

#: The section of the output that lists environment variables.
_ENVIRONMENT = "environment"


@click.group("config")
def command() -> None:
    """Show the configuration."""


@command.command("show", cls=Command)
@click.option("--origin", is_flag=True, help="Show where each value is set: the file and the line.")
@click.option("--all", "with_hidden", is_flag=True, help="Show also values that do not apply.")
@output_option
@click.argument("sections", metavar="[SECTION]...", nargs=-1, shell_complete=complete_sections)
def show(
    sections: tuple[str, ...],
    origin: bool,
    with_hidden: bool,
    output_format: str,
) -> None:
    """Show the configuration that applies in this directory.

    A value of $HOME/.torchxconfig wins over that of ./.torchxconfig; $TORCHXCONFIG names the only
    file. With --profile or $TORCHX_PROFILE, the values of that profile win over these. Options on a
    command line win over all. Environment variables whose names begin with TORCHX are listed as the
    section 'environment'. Values that look like secrets are masked.

    \b
    torchx config show --origin slurm cli:run
    torchx --profile big config show --origin slurm
    """
    found = config.list_values()
    if sections:
        _check_sections(sections, {value.section for value in found})
    values = [
        value
        for value in found
        if (with_hidden or value.effective) and (not sections or value.section in sections)
    ]
    lines = {path: key_lines(read_text_file(path)) for path in {v.path for v in values}}
    rows = [_data(value, lines[value.path]) for value in values]
    if not sections or _ENVIRONMENT in sections:
        rows += _variables()
    if output_format != TABLE:
        write_data(rows, output_format)
        return
    columns = [*_COLUMNS, *([_ORIGIN] if origin else []), *([_APPLIES] if with_hidden else [])]
    write_rows(columns, rows, TABLE)


def _check_sections(sections: tuple[str, ...], configured: set[str]) -> None:
    """Check that each section is in a file, or that a file may have it.

    Args:
        sections: The sections of the command line.
        configured: The sections of the files.

    Raises:
        RequestError: No file has the section, and no scheduler or command has its name.
    """
    commands = [f"cli:{name}" for name in plugin_manager().commands().names()]
    known = configured | {_ENVIRONMENT, *ConfigurableSchedulers(), *commands}
    for section in sections:
        if section not in known:
            raise RequestError(
                f"no configuration file has a section [{section}], and no scheduler or command has"
                f" this name;{nearest(section, known)}".rstrip(";")
            )


def _data(value: config.ConfigValue, lines: dict[tuple[str, str], int]) -> dict[str, Any]:
    section = f"profile.{value.profile}.{value.section}" if value.profile else value.section
    line = lines.get((section, value.key)) or lines.get(("DEFAULT", value.key))
    return _row(
        value.section,
        value.key,
        value.value,
        "file",
        file=value.path,
        line=line,
        profile=value.profile or None,
        applies=value.effective,
    )


def _row(section: str, key: str, value: str, origin: str, **fields: Any) -> dict[str, Any]:
    # The URL of a webhook is a secret: whoever knows it can send messages.
    is_webhook = section.startswith(("notifier:", "notifiers:")) and key in ("url", "key")
    return {
        "section": section,
        "key": key,
        "value": masked_value("webhook" if is_webhook else key, value),
        "origin": origin,
        "file": None,
        "line": None,
        "profile": None,
        "applies": True,
        **fields,
    }


def _variables() -> list[dict[str, Any]]:
    return [
        _row(_ENVIRONMENT, name, value, "environment")
        for name, value in sorted(os.environ.items())
        if name.startswith("TORCHX")
    ]


def _where(row: dict[str, Any]) -> str:
    where: str = row["file"] or row["origin"]
    if row["line"] is not None:
        where += f":{row['line']}"
    return f"{where} (profile {row['profile']})" if row["profile"] else where


_COLUMNS = [Column(key, itemgetter(key), key.upper()) for key in ("section", "key", "value")]
_ORIGIN = Column("origin", _where, "ORIGIN")
_APPLIES = Column("applies", lambda row: "yes" if row["applies"] else "no", "APPLIES")


# -- torchx configure

# Editors on Windows write this character first.
_BYTE_ORDER_MARK = "\ufeff"
_HEADER = re.compile(rf"{_BYTE_ORDER_MARK}?\[[^\]]+\]")


@click.command("configure", cls=Command)
@click.option(
    "-s",
    "--schedulers",
    metavar="NAME,...",
    multiple=True,
    callback=split_names,
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
def configure(
    schedulers: tuple[str, ...], with_defaults: bool, to_stdout: bool, force: bool
) -> None:
    """Write ./.torchxconfig with the options of the installed schedulers.

    Missing sections and keys are added to an existing file; the rest stays unchanged, unless
    --force replaces the file.
    """
    names = [split_host(choose_scheduler(name))[0] for name in schedulers]
    buffer = io.StringIO()
    config.dump(buffer, names or None, required_only=not with_defaults)
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
