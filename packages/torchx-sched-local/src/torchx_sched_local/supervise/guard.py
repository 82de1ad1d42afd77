"""The guard of an app: a small process that ends the app if its supervisor dies, even by SIGKILL.

The guard reads from a pipe whose other end only the supervisor has open. A line on the pipe means
that the app has ended. The end of the pipe without a line means that the supervisor has died. The
guard is a shell, which starts within a millisecond and needs little memory. If the supervisor dies,
the shell replaces itself with Python (:mod:`~torchx_sched_local.supervise.supervisor_process`),
which ends the app's processes and completes the app's logs.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref

import torchx_kit
import torchx_sched_local
import torchx_specs
from torchx_sched_local.supervise.processes import ProcessId, identify

# Signals that a terminal or a job sends to all of its processes.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_SCRIPT = """trap '' HUP INT TERM QUIT; IFS= read -r word && exit 0; exec "$@" """

# This program runs isolated from the caller's directory, variables and site packages. The first two
# arguments are for main(), the others are the folders of the modules.
_PYTHON = """import sys
sys.path[:0] = sys.argv[3:]
from torchx_sched_local.supervise.supervisor_process import main
sys.exit(main(sys.argv[1:3]))
"""

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


class Guard:
    """A running guard.

    Args:
        folder: The app's folder.

    Attributes:
        process: The guard's process.

    Raises:
        OSError: The guard cannot be started.
    """

    def __init__(self, folder: str) -> None:
        reader, self._pipe = os.pipe()
        # Block the signals until the shell ignores them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "torchx-guard", *python_command("reap", folder)],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # No other variables: the mark of a local job would make the guard part of that job.
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(reader)
        self.process: ProcessId = identify(self._process.pid)
        _guards.add(self)

    def dismiss(self) -> None:
        """End the guard, because the app has ended; may be called more than once."""
        pipe, self._pipe = self._pipe, -1
        if pipe < 0:
            return
        try:
            if self._process.poll() is None:
                os.write(pipe, b"bye\n")
        except OSError:
            pass  # the guard was killed
        os.close(pipe)

    def wait(self) -> None:
        """Wait until the guard has ended."""
        self._process.wait()

    def _close_pipe(self) -> None:
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


def python_command(*args: str) -> list[str]:
    """Return the command that calls ``supervisor_process.main`` in a new Python process.

    Args:
        args: The two arguments of ``main``.
    """
    files = (torchx_sched_local.__file__, torchx_kit.__file__, torchx_specs.__file__)
    folders = dict.fromkeys(
        os.path.dirname(os.path.dirname(os.path.abspath(f))) for f in files if f
    )
    return [sys.executable or "python3", "-I", "-S", "-c", _PYTHON, *args, *folders]


def _close_inherited_pipes() -> None:
    # A forked process inherits the pipes. While it has them open, the guards do not notice that the
    # supervisor has died.
    for guard in list(_guards):
        guard._close_pipe()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_pipes)
