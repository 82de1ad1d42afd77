"""Connects the terminal, standard streams and signals of this process with a replica's session."""

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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from torchx_cli.exit_codes import Terminated
from torchx_specs.errors import RequestError, TorchXError, one_line
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.sessions import TerminalSize

if TYPE_CHECKING:
    from types import FrameType

    from torchx_specs.schedulers.sessions import Session

logger = logging.getLogger(__name__)

STDIN, STDOUT, STDERR = 0, 1, 2
_BLOCK = 1 << 16


def run_session(session: Session, *, stdin: bool, has_tty: bool) -> int:
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
            stack.enter_context(raw_terminal())
        stack.enter_context(_passed_signals(session, has_tty))
        if stdin:
            stack.enter_context(_passed_input(session))
        for stream, data in session.output():
            write_all(STDERR if stream == Stream.STDERR else STDOUT, data)
        return session.wait()


def write_all(fd: int, data: bytes) -> None:
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
            ready, _, _ = select.select([STDIN, wake], [], [])
            if wake in ready:
                return
            data = os.read(STDIN, _BLOCK)
            if not data:
                break
            session.write(data)
    except (OSError, ValueError):
        pass  # standard input is closed, or the session has ended
    except TorchXError as e:
        logger.debug("standard input: %s", e)
    try:
        session.close_stdin()
    except TorchXError as e:
        logger.warning("%s", one_line(e))
    except OSError:
        pass


@contextmanager
def _passed_signals(session: Session, has_tty: bool) -> Iterator[None]:
    """Pass signals and new sizes of the terminal to a session, until the end of the context."""
    # A signal handler may interrupt a method of the session, so it only queues an action.
    actions: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
    interrupts = 0

    def resize(number: int, frame: FrameType | None) -> None:
        actions.put(lambda: session.resize(terminal_size()))

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


def check_terminal(wants_input: bool) -> None:
    """Raise an error unless standard output is a terminal.

    Args:
        wants_input: Whether standard input must be a terminal, too.

    Raises:
        RequestError: A stream is not a terminal.
    """
    for name, fd in (("input", STDIN), ("output", STDOUT)):
        if not os.isatty(fd) and (wants_input or fd == STDOUT):
            raise RequestError(f"-t needs a terminal, and standard {name} is none; leave out -t")


def terminal_size() -> TerminalSize:
    """Return the size of the user's terminal, or a default size if it is unknown."""
    for fd in (STDOUT, STDIN, STDERR):
        try:
            size = os.get_terminal_size(fd)
        except OSError:
            continue
        if size.columns and size.lines:
            return TerminalSize(size.columns, size.lines)
    return TerminalSize()


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Put the terminal into raw mode, in which each key reaches the program; restore it at the end.

    If standard input is not a terminal, nothing changes.
    """
    if not os.isatty(STDIN):
        yield
        return
    before = termios.tcgetattr(STDIN)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
