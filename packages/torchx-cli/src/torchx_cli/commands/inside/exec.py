"""The commands ``torchx exec`` and ``torchx shell``."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from torchx_cli.arguments.command import Command
from torchx_cli.commands.inside.streams import (
    STDIN,
    STDOUT,
    check_terminal,
    run_session,
    terminal_size,
)
from torchx_cli.commands.inside.targets import REPLICA, find_target
from torchx_cli.exit_codes import fail
from torchx_cli.runner_context import open_runner

# Runs $SHELL of the replica if it is an executable, else bash if there is one, else sh.
_SHELL = """\
if [ -n "$SHELL" ] && [ -x "$SHELL" ]; then exec "$SHELL"; fi
if command -v bash > /dev/null 2>&1; then exec bash; fi
exec sh
"""


@click.command("exec", cls=Command)
@click.option(
    "-i", "--interactive", "stdin", is_flag=True, help="Pass standard input to the command."
)
@click.option("-t", "--tty", is_flag=True, help="Run the command in a terminal.")
@click.argument("replica", metavar=REPLICA)
@click.argument("words", metavar="-- COMMAND...", nargs=-1, required=True)
def exec_command(replica: str, words: tuple[str, ...], stdin: bool, tty: bool) -> None:
    """Run COMMAND in a replica, with the replica's environment and working directory.

    \b
    torchx exec @1 -- nvidia-smi
    torchx exec -it slurm://torchx/17/trainer/3 -- bash
    torchx exec -i @1/trainer/0 -- sh -c 'cat > in.txt' < in.txt

    The exit code is that of COMMAND (128 + N if signal N ended it). Output is passed byte for byte.
    Without -t, Ctrl-C is sent to COMMAND as a signal; a second Ctrl-C ends the session.
    """
    _run(replica, words, stdin, tty)


@click.command("shell", cls=Command)
@click.argument("replica", metavar=REPLICA)
def shell_command(replica: str) -> None:
    """Open a shell in a replica, with the replica's environment and working directory.

    The shell is $SHELL of the replica, else bash, else sh. If standard input is not a terminal, the
    shell reads commands from it.
    """
    _run(replica, ("sh", "-c", _SHELL), True, os.isatty(STDIN) and os.isatty(STDOUT))


def _run(replica: str, command: Sequence[str], stdin: bool, tty: bool) -> None:
    if tty:
        check_terminal(stdin)
    with open_runner() as runner:
        target = find_target(runner, replica)
        size = terminal_size() if tty else None
        session = runner.open_session(*target, command, tty=size, stdin=stdin)
        code = run_session(session, stdin=stdin, has_tty=tty)
    if code:
        fail(code)
