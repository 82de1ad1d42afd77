"""A terminal for tests: a process in a pty, and what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence

import pyte

from patience import PATIENCE

_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_COLUMNS, _ROWS = 120, 40


def _take_terminal() -> None:
    """Make standard input the controlling terminal, so that Ctrl-C sends a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A process whose standard streams are a terminal of 120 columns and 40 rows.

    Args:
        words: The command line.
        environment: The variables of the process.
        folder: The working directory of the process.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
        self._main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            words,
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(other)
        self.raw = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._main)

    @property
    def shown(self) -> str:
        """Everything that the process has written so far, without colours."""
        return _COLORS.sub("", self.raw).replace("\r\n", "\n")

    @property
    def screen(self) -> pyte.Screen:
        """What the terminal shows now."""
        screen = pyte.Screen(_COLUMNS, _ROWS)
        pyte.Stream(screen).feed(self.raw)
        return screen

    @property
    def lines(self) -> list[str]:
        """The lines that the terminal shows now, above the row of the cursor."""
        screen = self.screen
        return [line.rstrip() for line in screen.display[: screen.cursor.y]]

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._main, b"\x03")

    def expect_lines(self, condition: Callable[[list[str]], bool]) -> None:
        """Wait until a condition on the lines of the screen is true.

        Args:
            condition: The condition.

        Raises:
            AssertionError: The process has ended, or writes nothing more.
        """
        while not condition(self.lines):
            assert self._read(), self.lines

    def type(self, line: str) -> None:
        """Type a line, as a user does."""
        os.write(self._main, f"{line}\n".encode())

    def expect(self, text: str, start: int = 0) -> None:
        """Wait until the process has written a text.

        Args:
            text: The text.
            start: The place in :attr:`shown` where the search begins.

        Raises:
            AssertionError: The process has ended without the text, or writes nothing more.
        """
        while text not in self.shown[start:]:
            if not self._read():
                raise AssertionError(f"{text!r} is not in {self.shown[start:]!r}")

    def finish(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        while self._read():
            pass
        return self.process.wait(timeout=PATIENCE)

    def _read(self, timeout: float = PATIENCE) -> bool:
        """Read the next output; return False at its end, or after ``timeout`` seconds."""
        if not select.select([self._main], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:  # the process has closed the terminal
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)
