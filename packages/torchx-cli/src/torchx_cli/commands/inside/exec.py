"""The commands ``torchx exec`` and ``torchx shell``: a session with this process's terminal."""

from __future__ import annotations

import logging
import os
import queue
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

import click

from torchx_cli.arguments.options import Command
from torchx_cli.commands.inside.targets import REPLICA, find_target
from torchx_cli.exit_codes import Terminated, fail
from torchx_cli.output.terminal import terminal_size
from torchx_cli.runner_context import open_runner
from torchx_specs.errors import RequestError, TorchXError, one_line
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.sessions import Session, TerminalSize

logger = logging.getLogger(__name__)

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_BLOCK = 1 << 16
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
    _run(replica, ("sh", "-c", _SHELL), True, os.isatty(_STDIN) and os.isatty(_STDOUT))


def _run(replica: str, command: Sequence[str], stdin: bool, tty: bool) -> None:
    if tty:
        _check_terminal(stdin)
    with open_runner() as runner:
        target = find_target(runner, replica)
        size = _size() if tty else None
        session = runner.open_session(*target, command, tty=size, stdin=stdin)
        code = _run_session(session, stdin=stdin, has_tty=tty)
    if code:
        fail(code)


# -- the session


def _run_session(session: Session, *, stdin: bool, has_tty: bool) -> int:
    """Connect a session with this process, and return the exit code of the session's command.

    With a terminal and ``stdin``, keys such as Ctrl-C reach the command as bytes. Without one,
    SIGINT, SIGQUIT and SIGTERM are sent to the command; a second Ctrl-C ends the session.

    Args:
        session: The session, which is closed.
        stdin: Whether the command gets the standard input of this process.
        has_tty: Whether the command has a terminal.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with ExitStack() as stack:
        stack.enter_context(session)
        if has_tty and stdin:
            stack.enter_context(_raw_terminal())
        stack.enter_context(_passed_signals(session, has_tty))
        if stdin:
            stack.enter_context(_passed_input(session))
        for stream, data in session.output():
            _write_all(_STDERR if stream == Stream.STDERR else _STDOUT, data)
        return session.wait()


def _write_all(fd: int, data: bytes) -> None:
    """Write all bytes to a descriptor, which may be non-blocking.

    Raises:
        OSError: The descriptor is closed, or its reader has closed the pipe.
    """
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


@contextmanager
def _passed_input(session: Session) -> Iterator[None]:
    """Copy standard input to a session, in a thread, until the end of the context."""
    wake, end = os.pipe()
    thread = threading.Thread(target=_copy_input, args=(session, wake), daemon=True, name="stdin")
    thread.start()
    try:
        yield
    finally:
        os.close(end)
        # If the command does not read its input, the thread may block. Then do not wait for it.
        thread.join(0.5)
        if not thread.is_alive():
            os.close(wake)


def _copy_input(session: Session, wake: int) -> None:
    try:
        while True:
            ready, _, _ = select.select([_STDIN, wake], [], [])
            if wake in ready:
                return
            data = os.read(_STDIN, _BLOCK)
            if not data:
                break
            session.write(data)
    except (OSError, ValueError):
        pass  # standard input is closed, or the session has ended
    except TorchXError as e:
        logger.debug("standard input: %s", e)
    try:
        with suppress(OSError):
            session.close_stdin()
    except TorchXError as e:
        logger.warning("%s", one_line(e))


@contextmanager
def _passed_signals(session: Session, has_tty: bool) -> Iterator[None]:
    """Pass signals and new sizes of the terminal to a session, until the end of the context."""
    # A signal handler may interrupt a method of the session, so it only queues an action.
    actions: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
    interrupts = 0

    def resize(number: int, frame: FrameType | None) -> None:
        actions.put(lambda: session.resize(_size()))

    def forward(number: int, frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if interrupts > 1:
            raise KeyboardInterrupt
        actions.put(lambda: session.send_signal(number))

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    def act() -> None:
        while (action := actions.get()) is not None:
            try:
                action()
            except (TorchXError, OSError) as e:
                logger.debug("%s", one_line(e))

    handlers: dict[int, Callable[[int, FrameType | None], None]] = {
        signal.SIGTERM: end if has_tty else forward,
        signal.SIGHUP: end,
    }
    if has_tty:
        handlers[signal.SIGWINCH] = resize
        resize(signal.SIGWINCH, None)  # the size may have changed since the session was opened
    else:
        handlers[signal.SIGINT] = handlers[signal.SIGQUIT] = forward
    thread = threading.Thread(target=act, daemon=True, name="signals")
    thread.start()
    before = {}
    try:
        for number, handler in handlers.items():
            before[number] = signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old if old is not None else signal.SIG_DFL)
        actions.put(None)


def _check_terminal(wants_input: bool) -> None:
    """Raise an error unless standard output is a terminal.

    Args:
        wants_input: Whether standard input must be a terminal, too.

    Raises:
        RequestError: A stream is not a terminal.
    """
    for name, fd in (("input", _STDIN), ("output", _STDOUT)):
        if not os.isatty(fd) and (wants_input or fd == _STDOUT):
            raise RequestError(f"-t needs a terminal, and standard {name} is none; leave out -t")


def _size() -> TerminalSize:
    return TerminalSize(*terminal_size(sys.stdout))


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Put the terminal into raw mode, in which each key reaches the program; restore it at the end.

    If standard input is not a terminal, nothing changes.
    """
    if not os.isatty(_STDIN):
        yield
        return
    before = termios.tcgetattr(_STDIN)
    try:
        tty.setraw(_STDIN, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
