"""Where every error of the command ends: one line on standard error, and an exit code.

====  ====================================================================================
0     done
1     the job failed, or the app asked for does not exist
2     something is wrong in the request
3     the scheduler's system failed, or something unforeseen happened
124   ``wait --timeout`` ran out
130   interrupted by Ctrl-C (143 by SIGTERM)
141   whoever read the output has closed it
====  ====================================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

import click

from torchx_specs.errors import TorchXError, nearest, one_line

JOB_FAILED = 1
BAD_REQUEST = 2
BACKEND_FAILED = 3
TIMED_OUT = 124
INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141


#: Where a context's ``meta`` has the words of the command line, for messages.
ARGV_KEY = "torchx.argv"


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived."""


class GlobalOptions:
    """What the global options say; the ``obj`` of every click context."""

    def __init__(self) -> None:
        self.debug = False


def exit_code_of(body: Callable[[], object], frame: GlobalOptions) -> int:
    """Runs the command and returns its exit code, whatever happens.

    Args:
        body: runs it; what it returns is no exit code
        frame: the global options
    """
    code = 0
    try:
        body()
    except BaseException as e:  # the last one to see it
        code = report_error(e, frame)
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as e:
        code = code or report_error(e, frame)
        discard_output()
    return code


def fail(code: int) -> NoReturn:
    """Ends the command with an exit code, everything having been said."""
    raise click.exceptions.Exit(code)


def print_error(message: str) -> None:
    """Writes ``torchx: error: ...`` on standard error, as one line."""
    print_message(f"error: {message}")


def print_message(message: str) -> None:
    """Writes ``torchx: ...`` on standard error, as one line."""
    try:
        print(f"torchx: {one_line(message)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass  # nobody can be told


def report_error(error: BaseException, frame: GlobalOptions) -> int:
    """Tells of an error, and returns the exit code for it."""
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return interrupt_exit_code(error)
    if isinstance(error, BrokenPipeError):
        discard_output()
        return BROKEN_PIPE
    if isinstance(error, SystemExit):
        return _system_exit(error)
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if frame.debug:
        import traceback

        traceback.print_exception(type(error), error, error.__traceback__)
    if isinstance(error, click.UsageError):
        print_error(usage_message(error))
        return BAD_REQUEST
    if isinstance(error, click.ClickException):
        print_error(error.format_message())
        return BAD_REQUEST
    if isinstance(error, TorchXError):
        print_error(one_line(error))
        return error.exit_code
    if isinstance(error, FileNotFoundError) and not _has_working_directory():
        print_error("the working directory was removed; change to another one")
        return BAD_REQUEST
    hint = "" if frame.debug else " (torchx --debug ... shows where)"
    print_error(f"{type(error).__name__}: {one_line(error)}{hint}")
    # a scheduler may leave a method out; asking it for that is a bad request
    return BAD_REQUEST if isinstance(error, NotImplementedError) else BACKEND_FAILED


def _has_working_directory() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def interrupt_exit_code(error: BaseException) -> int:
    """Returns the exit code for an interrupt."""
    return TERMINATED if isinstance(error, Terminated) else INTERRUPTED


def _system_exit(error: SystemExit) -> int:
    """``sys.exit()`` of a component or a plugin's command: text is a message, as Python has it."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print_error(str(error.code))
    return 1


def usage_message(error: click.UsageError) -> str:
    """Returns what is wrong with the words of a command line, with the nearest right one."""
    ctx = error.ctx
    if isinstance(error, click.NoSuchOption) and ctx is not None:
        name = _as_typed(error.option_name, ctx)
        options = [opt for p in ctx.command.params for opt in (*p.opts, *p.secondary_opts)]
        message = f"no such option {name};{nearest(name, options)}".rstrip(";")
    else:
        message = error.format_message().rstrip(".")
    if ctx is None:
        return message
    command = ctx.command_path.partition(" ")[2]
    return f"{command + ': ' if command else ''}{message} (see {ctx.command_path} --help)"


def _as_typed(option: str, ctx: click.Context) -> str:
    """Returns the word that holds an option as it was typed.

    Of ``-cgf a=b`` click only reports ``-c``, of ``--parent_id`` it reports ``--parent-id``.
    """
    for word in ctx.meta.get(ARGV_KEY, ()):
        name = str(word.partition("=")[0])
        if name.replace("_", "-") == option or (len(option) == 2 and name.startswith(option)):
            return name
    return option


def discard_output() -> None:
    """Keeps the interpreter from complaining at its end that it cannot flush."""
    try:
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, sys.stdout.fileno())
    except (OSError, ValueError):
        pass
