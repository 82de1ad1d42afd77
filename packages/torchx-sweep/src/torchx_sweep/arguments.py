"""Inserts ``run`` into the command line of ``torchx sweep``; moves options before TARGET."""

from __future__ import annotations

import click

from torchx_cli.arguments.options import Command
from torchx_cli.launch.options import write_options
from torchx_cli.launch.targets import FORM, Form

#: Separates the parameters of one ``--zip``.
ZIP_SEPARATOR = "\x1f"
_AXES = ("--grid", "--zip", "--from")
# The first of these options after TARGET ends the arguments of the target. If TARGET comes after
# one of _AXES, everything after TARGET belongs to the target: it may itself have an option with one
# of these names.
_STARTS = (*_AXES, "--sample", "--max-parallel", "--max_parallel")


class SweepGroup(click.Group):
    """A group whose default sub-command is ``run``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``run`` before the first argument, unless it is a sub-command or ``--help``."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["run", *args]
        return super().parse_args(ctx, args)


class SweepCommand(Command):
    """A command whose options may also follow the target's arguments."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; those for scripts and commands have a section."""
        write_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reorder the arguments as click requires, and parse them."""
        return super().parse_args(ctx, self._reordered(ctx, list(args)))

    def _reordered(self, ctx: click.Context, words: list[str]) -> list[str]:
        """Return the options of this command, the target and its arguments, in this order."""
        options, words = self._take_options(words)
        form = {"-m": Form.MODULE, "--": Form.AFTER_DASHES}.get((words or [""])[0], Form.PLAIN)
        ctx.meta[FORM] = form
        if form is Form.AFTER_DASHES:
            return [*options, *words]
        dashes = []
        if form is Form.MODULE:
            dashes, words = ["--"], words[1:]
        if not words:
            return options
        target, rest = words[0], words[1:]
        end = rest.index("--") if "--" in rest else len(rest)
        start = end
        if not any(_name(word) in _AXES for word in options):
            start = next((i for i in range(end) if _name(rest[i]) in _STARTS), end)
        more, unexpected = self._take_options(rest[start:end])
        if unexpected:
            raise click.UsageError(
                f"unexpected argument '{unexpected[0]}': arguments of {target} go before the"
                " options of the sweep",
                ctx,
            )
        return [*options, *more, *dashes, target, *rest[:start], *rest[end:]]

    def _take_options(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Split a list at ``--``, ``-m``, or the first item that is no option and no value of one.

        The values of each ``--zip`` are joined to one item.
        """
        flags = {
            option
            for param in self.params
            if isinstance(param, click.Option) and (param.is_flag or param.count)
            for option in param.opts
        }
        taken: list[str] = []
        i = 0
        while i < len(words) and words[i].startswith("-") and words[i] not in ("--", "-m"):
            word = words[i]
            i += 1
            if word == "--zip" or word.startswith("--zip="):
                values = [word[len("--zip=") :]] if "=" in word else []
                while i < len(words) and not words[i].startswith("-") and "=" in words[i]:
                    values.append(words[i])
                    i += 1
                taken += ["--zip", ZIP_SEPARATOR.join(values)]
                continue
            taken.append(word)
            takes_value = "=" not in word and word not in flags and word not in ("-h", "--help")
            if takes_value and i < len(words):
                taken.append(words[i])
                i += 1
        return taken, words[i:]


def _name(word: str) -> str:
    return word.partition("=")[0]
