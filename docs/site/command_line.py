"""The reference page of the command line, from the help texts of click's commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from torchx_cli.main import torchx


def page() -> str:
    """Return the page of ``torchx`` and all its sub-commands, as Markdown."""
    return "# Command line\n\n" + "\n\n".join(_sections(torchx, "torchx", None, 2)) + "\n"


def _sections(
    command: click.Command, name: str, parent: click.Context | None, level: int
) -> Iterator[str]:
    """Yield the parts of the page for a command and its sub-commands.

    Args:
        command: The command.
        name: The command's name.
        parent: The context of the parent command; None for ``torchx``.
        level: The level of the command's heading.
    """
    ctx = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} {ctx.command_path}"
    yield _help(command)
    yield f"```text\n{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}\n```"
    records = [param.get_help_record(ctx) for param in command.get_params(ctx)]
    rows = [
        f"| <code>{_cell(names)}</code> | {_cell(text)} |" for names, text in filter(None, records)
    ]
    if rows:
        yield "\n".join(["| option | effect |", "|---|---|", *rows])
    if isinstance(command, click.Group):
        for each in command.list_commands(ctx):
            found = command.get_command(ctx, each)
            if found is not None:
                yield from _sections(found, each, ctx, min(level + 1, 4))


def _help(command: click.Command) -> str:
    """Return the help of a command; paragraphs that click does not wrap become code blocks."""
    out = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        is_verbatim = paragraph.startswith("\b")
        text = paragraph.removeprefix("\b").strip("\n")
        out.append(f"```text\n{text}\n```" if is_verbatim else text.replace("<", "&lt;"))
    return "\n\n".join(out)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "&#124;").replace("[", "&#91;")
