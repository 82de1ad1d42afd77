"""The command ``torchx config``."""

from __future__ import annotations

import os
from operator import itemgetter
from typing import Any

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import output_option
from torchx_cli.completion.values import complete_sections
from torchx_cli.output.printing import TABLE, Column, write_data, write_rows
from torchx_runner.config import api as config
from torchx_runner.config.line_numbers import key_lines
from torchx_runner.installed_schedulers import ConfigurableSchedulers, plugin_manager
from torchx_specs.errors import RequestError, nearest
from torchx_specs.formats.documents import read_text_file
from torchx_specs.redaction import masked_value

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
