"""The exit codes of the command; every error is one line on standard error and an exit code.

====  ====================================================================================
0     success
1     the job failed, or the requested app does not exist
2     the request is wrong
3     the scheduler's backend failed, or an unexpected error occurred
124   ``torchx wait --timeout`` expired
130   interrupted by Ctrl-C (143: terminated by SIGTERM or SIGHUP)
141   the reader of the output closed the pipe
====  ====================================================================================

The exit code of each TorchXError is an attribute of its class in :mod:`torchx_specs.errors`.
``cancel`` and ``delete`` of a missing app are warnings with exit code 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import click

from torchx_cli.output.terminal import escape_controls, safe_message
from torchx_specs.errors import TorchXError, nearest, one_line
from torchx_specs.plugins.records import error_text

JOB_FAILED = 1
BAD_REQUEST = 2
BACKEND_FAILED = 3
TIMED_OUT = 124
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141

# In characters. A message about a large document may list thousands of problems, or quote a long
# value.
_LONGEST_MESSAGE = 10_000

#: The key of ``click.Context.meta`` whose value is the arguments as typed, for error messages.
ARGV_KEY = "torchx.argv"


# click before 8.2 prints the help itself.
_NO_COMMAND: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class Terminated(KeyboardInterrupt):
    """The process received SIGTERM or SIGHUP."""


class GlobalOptions:
    """The values of the global options; every click context has this object as ``obj``."""

    def __init__(self) -> None:
        self.debug = False


def exit_code_of(body: Callable[[], object], options: GlobalOptions) -> int:
    """Run the command, report its error if there is one, and return its exit code.

    Args:
        body: Runs the command; its return value is ignored.
        options: The global options.
    """
    code = 0
    try:
        body()
    except BaseException as e:
        code = report_error(e, options)
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as e:
        code = code or report_error(e, options)
        discard_output()
    return code


def fail(code: int) -> NoReturn:
    """Exit with ``code``; the error was already printed."""
    raise click.exceptions.Exit(code)


def print_error(message: str) -> None:
    """Print ``torchx: error: MESSAGE`` on standard error, as one line with secrets masked.

    A very long message is cut.
    """
    from torchx_specs.redaction import masked_text

    line = one_line(masked_text(f"error: {message}"))
    if len(line) > _LONGEST_MESSAGE:
        line = f"{line[:_LONGEST_MESSAGE]}... ({len(line):,} characters)"
    with suppress(OSError, ValueError):  # standard error may be closed
        print(safe_message(f"torchx: {line}"), file=sys.stderr, flush=True)


def report_error(error: BaseException, options: GlobalOptions, subject: str = "") -> int:
    """Print an error on standard error, and return its exit code.

    Nothing is printed for an interrupt, a closed pipe, or an exit without a message. With
    ``--debug``, the traceback is printed, too.

    Args:
        error: The error.
        options: The options before the name of the command.
        subject: The text in front of the message, such as the name of a scheduler.
    """
    where = f"{subject}: " if subject else ""
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return interrupt_exit_code(error)
    if isinstance(error, BrokenPipeError):
        discard_output()
        return BROKEN_PIPE
    if isinstance(error, SystemExit):
        return _system_exit(error)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if options.debug:
        import traceback

        from torchx_specs.redaction import masked_text

        lines = traceback.format_exception(type(error), error, error.__traceback__)
        print(escape_controls(masked_text("".join(lines))), end="", file=sys.stderr)
    if isinstance(error, _NO_COMMAND):  # click's message is the help of the group
        click.echo(error.format_message())
        return 1
    if isinstance(error, click.UsageError):
        print_error(usage_message(error))
        return BAD_REQUEST
    if isinstance(error, click.ClickException):
        print_error(error.format_message())
        return BAD_REQUEST
    if isinstance(error, TorchXError):
        print_error(where + one_line(error))
        return error.exit_code
    if isinstance(error, FileNotFoundError) and not _has_working_directory():
        print_error("the working directory was deleted; change to another directory")
        return BAD_REQUEST
    hint = "" if options.debug else " (torchx --debug ... prints the traceback)"
    print_error(f"{where}{one_line(error_text(error))}{hint}")
    # A scheduler may not support an optional method: the request is wrong.
    return BAD_REQUEST if isinstance(error, NotImplementedError) else BACKEND_FAILED


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def interrupt_exit_code(error: BaseException) -> int:
    """Return 143 for :class:`Terminated`, and 130 for any other interrupt."""
    return TERMINATED if isinstance(error, Terminated) else INTERRUPTED


def _system_exit(error: SystemExit) -> int:
    """Return the exit code of a ``sys.exit()``; if the argument is text, print it and return 1."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print_error(str(error.code))
    return 1


def usage_message(error: click.UsageError) -> str:
    """Return the message for wrong arguments; for an unknown option, name a similar option."""
    ctx = error.ctx
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        name = _as_typed(error.option_name, ctx)
        message = _misplaced_option(name, ctx) or (
            f"no such option {name};{nearest(name, options_of(ctx.command))}".rstrip(";")
        )
    else:
        message = error.format_message().rstrip(".")
    if ctx is None:
        return message
    command = ctx.command_path.partition(" ")[2]
    return f"{command + ': ' if command else ''}{message} (see {ctx.command_path} --help)"


def options_of(command: click.Command) -> list[str]:
    """Return all spellings of a command's options and arguments."""
    return [opt for p in command.params for opt in (*p.opts, *p.secondary_opts)]


def _misplaced_option(name: str, ctx: click.Context) -> str:
    """Return a message that says to which command an unknown option belongs; '' if to none."""
    spelling = name.replace("_", "-")

    def has(command: click.Command) -> bool:
        return spelling in (opt.replace("_", "-") for opt in options_of(command))

    if ctx.parent is not None and has(ctx.parent.command):
        return f"{name} belongs to {ctx.parent.command_path}; put it before {ctx.info_name}"
    if isinstance(ctx.command, click.Group):
        known = ctx.command.list_commands(ctx)
        typed = next((word for word in ctx.meta.get(ARGV_KEY, ()) if word in known), None)
        command = None if typed is None else ctx.command.get_command(ctx, typed)
        if command is not None and has(command):
            return f"{name} belongs to torchx {typed}; put it after {typed}"
    return ""


def _as_typed(option: str, ctx: click.Context) -> str:
    """Return an option as the user typed it.

    click reports ``-c`` for ``-cgf a=b``, and ``--parent-id`` for ``--parent_id``.
    """
    for argument in ctx.meta.get(ARGV_KEY, ()):
        name = str(argument.partition("=")[0])
        if name.replace("_", "-") == option or (len(option) == 2 and name.startswith(option)):
            return name
    return option


def discard_output() -> None:
    """Redirect standard output to the null device, so that the final flush cannot fail."""
    with suppress(OSError, ValueError):
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
