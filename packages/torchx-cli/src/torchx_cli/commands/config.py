"""The command ``torchx config``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import click

from torchx_cli.arguments.command import Command, long_key
from torchx_cli.arguments.options import output_option
from torchx_cli.completion.values import complete_sections
from torchx_cli.output.printing import TABLE, Column, write_data, write_rows
from torchx_runner.config import api as config
from torchx_runner.config.line_numbers import key_lines
from torchx_runner.installed_schedulers import ConfigurableSchedulers
from torchx_specs.errors import RequestError, TorchXError, nearest
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
@click.option(
    "--defaults",
    "with_defaults",
    is_flag=True,
    help="Show also the default values of options: of each given scheduler and cli:COMMAND, or of"
    " all schedulers if no section is given.",
)
@output_option
@click.argument("sections", metavar="[SECTION]...", nargs=-1, shell_complete=complete_sections)
def show(
    sections: tuple[str, ...],
    origin: bool,
    with_hidden: bool,
    with_defaults: bool,
    output_format: str,
) -> None:
    """Show the configuration that applies in this directory.

    A value of $HOME/.torchxconfig wins over that of ./.torchxconfig; $TORCHXCONFIG names the only
    file. With --profile or $TORCHX_PROFILE, the values of that profile win over these. Options on a
    command line win over all. Environment variables whose names begin with TORCHX are listed as the
    section 'environment'. Values that look like secrets are masked.

    \b
    torchx config show --origin slurm cli:run
    torchx --profile big config show --origin --defaults slurm
    """
    found = config.list_values()
    _check_sections(sections, {value.section for value in found})
    values = [
        value
        for value in found
        if (with_hidden or value.effective) and (not sections or value.section in sections)
    ]
    lines = {path: key_lines(read_text_file(path)) for path in {v.path for v in values}}
    rows = [_data(value, lines[value.path]) for value in values]
    if with_defaults:
        given = {(value.section, value.key) for value in values if value.effective}
        rows += [row for row in _defaults(sections) if (row["section"], row["key"]) not in given]
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
    if not sections:
        return
    known = configured | {_ENVIRONMENT} | set(ConfigurableSchedulers())
    for section in sections:
        prefix, _, name = section.partition(config.CONFIG_PREFIX_DELIM)
        if prefix == "cli":
            _command(section, name)
        elif section not in known:
            hint = nearest(section, known)
            text = (
                f"no configuration file has a section [{section}], and no scheduler has this name"
            )
            raise RequestError(f"{text};{hint}".rstrip(";"))


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


def _defaults(sections: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yield the default values of options; without sections, those of all schedulers.

    Args:
        sections: Names of schedulers, and ``cli:COMMAND``; other sections have no defaults.
    """
    installed = ConfigurableSchedulers()
    for name in sorted(installed):
        if not sections or name in sections:
            try:
                opts = config.get_run_opts(name)
            except TorchXError as e:
                logging.getLogger(__name__).warning("%s; its defaults are left out", e)
                continue
            for key, opt in opts:
                if not opt.is_required:
                    yield _row(name, key, str(opt.default), "default")
    for section in sections:
        prefix, _, name = section.partition(":")
        if prefix == "cli":
            yield from _command_defaults(section, name)


def _command_defaults(section: str, name: str) -> Iterator[dict[str, Any]]:
    context = click.get_current_context()
    for param in _command(section, name).params:
        if isinstance(param, click.Option) and param.expose_value:
            default = param.get_default(context)
            yield _row(section, long_key(param), str(default), "default")


def _command(section: str, name: str) -> click.Command:
    context = click.get_current_context()
    group = context.find_root().command
    found = group.get_command(context, name) if isinstance(group, click.Group) else None
    if found is None:
        raise RequestError(f"[{section}]: there is no command '{name}'")
    return found


def _where(row: dict[str, Any]) -> str:
    where: str = row["file"] or row["origin"]
    if row["line"] is not None:
        where += f":{row['line']}"
    return f"{where} (profile {row['profile']})" if row["profile"] else where


_COLUMNS = [Column(key, itemgetter(key), key.upper()) for key in ("section", "key", "value")]
_ORIGIN = Column("origin", _where, "ORIGIN")
_APPLIES = Column("applies", lambda row: "yes" if row["applies"] else "no", "APPLIES")
