"""The magics ``%torchx`` and ``%%torchx``: the command in a notebook, which returns jobs."""

from __future__ import annotations

import io
import shlex
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx_cli.completion.answer import find_completions
from torchx_cli.main import execute
from torchx_cli.main import torchx as command
from torchx_notebook.views import INTERVAL, look
from torchx_runner import get_runner
from torchx_specs.errors import TorchXError

if TYPE_CHECKING:
    from torchx_specs.model.status import AppStatus

#: The commands that print a handle, for which a magic returns a :class:`Job`.
_LAUNCHES = ("run", "rerun", "sweep")
# Options of `torchx run` with which it submits nothing, or waits.
_KEEPS = ("--dryrun", "--detach", "--help", "-h", "--log", "--wait", "--notify")
_SCRIPT = "cell.py"


class Job:
    """A job or a sweep that a cell has launched.

    As the result of a cell, its status is shown below the cell, and updated in the background until
    it has ended.

    Args:
        handle: The handle.
        sleep: Waits a number of seconds.
    """

    def __init__(self, handle: str, sleep: Callable[[float], object] = time.sleep) -> None:
        self.handle = handle
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"Job({self.handle!r})"

    def status(self) -> AppStatus | None:
        """Return the status of a job; None if the job does not exist."""
        with get_runner() as runner:
            return runner.status(self.handle)

    def wait(self) -> Job:
        """Wait until the job or sweep has ended, and return it."""
        execute(["wait", self.handle])
        return self

    def log(self) -> None:
        """Print the logs so far."""
        execute(["log", self.handle])

    def cancel(self) -> None:
        """Cancel the job or sweep."""
        execute(["cancel", self.handle])

    def _ipython_display_(self) -> None:
        import IPython.display

        display: Any = IPython.display.display
        with get_runner() as runner:
            shown, unfinished = look(runner, self.handle)
        output = display(shown, display_id=True)
        if unfinished and output is not None:
            thread = threading.Thread(target=self._update, args=(output,), daemon=True)
            thread.start()

    def _update(self, output: Any) -> None:
        unfinished = True
        with get_runner() as runner:
            while unfinished:
                self._sleep(INTERVAL)
                try:
                    shown, unfinished = look(runner, self.handle)
                except TorchXError:  # the next look may succeed
                    continue
                output.update(shown)


def torchx(line: str, cell: str | None = None) -> Job | None:
    """Run the command ``torchx``; ``run``, ``rerun`` and ``sweep`` return a :class:`Job`.

    ::

        %torchx run train.py --lr 0.3
        %torchx list

    ``%%torchx run --gpu 1 train.py --lr 0.3`` writes the text of the cell to ``train.py`` before;
    without a name of a script, to ``cell.py``. A job on this machine continues in the background.

    Args:
        line: The words after ``%torchx``.
        cell: The text of the cell.
    """
    words = shlex.split(line)
    if cell is not None:
        words = _with_script(words or ["run"], cell)
    if words[:1] == ["run"] and not any(word in _KEEPS for word in words):
        words.insert(1, "--detach")
    if not words or words[0] not in _LAUNCHES:
        execute(words)
        return None
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = execute(words)
    text = printed.getvalue()
    first = text.partition("\n")[0]
    if code == 0 and "://" in first and not first.startswith(("{", "[")):
        return Job(first)
    print(text, end="")
    return None


def completer(shell: Any, event: Any) -> list[str]:
    """Return the words that may come next in a magic, for IPython's hook ``complete_command``."""
    before, _, last = event.text_until_cursor.rpartition(" ")
    try:
        words = shlex.split(before)[1:]
    except ValueError:  # a quote is open
        return []
    return [str(item.value) for item in find_completions(command, words, last)]


def _with_script(words: list[str], cell: str) -> list[str]:
    """Write a cell to the script that a command runs, and return the words of the command."""
    script = next((word for word in words if word.endswith(".py")), None)
    if script is None:
        script = _SCRIPT
        words = [*words, script]
    Path(script).write_text(cell, encoding="utf-8")
    return words
