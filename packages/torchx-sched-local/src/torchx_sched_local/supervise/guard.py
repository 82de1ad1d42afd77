"""The guard of an app: a small process that ends it when its supervisor dies, however it dies.

It reads from a pipe whose other end the supervisor alone holds. A line means that the app has ended
and all is well; the end of the pipe without one, that the supervisor is gone. Until then it is a
shell that takes a millisecond to start and next to no memory; only when it is needed it becomes
Python (:mod:`~torchx_sched_local.supervise.supervisor_process`), which ends what is left and
finishes the logs.
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

# Signals that end a terminal's or a job's processes must not end their guard.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_SCRIPT = """trap '' HUP INT TERM QUIT; IFS= read -r word && exit 0; exec "$@" """

# Isolated from the caller's directory, variables and site; told where the modules are.
_PYTHON = """import sys
sys.path[:0] = sys.argv[3:]
from torchx_sched_local.supervise.supervisor_process import main
sys.exit(main(sys.argv[1:3]))
"""

_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


class Guard:
    """A running guard.

    Args:
        folder: the app's folder

    Raises:
        OSError: it cannot be started
    """

    def __init__(self, folder: str) -> None:
        reader, self._pipe = os.pipe()
        # blocked from its very beginning, as its shell needs a moment until it ignores them
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "torchx-guard", *python_command("reap", folder)],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # nothing of the launcher's: a job's own variables would make it part of that job
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
        """Tells it that all is well, and so ends it; may be called more than once."""
        pipe, self._pipe = self._pipe, -1
        if pipe < 0:
            return
        try:
            if self._process.poll() is None:
                os.write(pipe, b"bye\n")
        except OSError:
            pass  # somebody has killed it
        os.close(pipe)

    def wait(self) -> None:
        """Waits for its end."""
        self._process.wait()

    def _forget(self) -> None:
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


def python_command(*args: str) -> list[str]:
    """Returns the command that calls the main function of the supervisor module in a new process.

    Args:
        args: the two arguments for it
    """
    files = (torchx_sched_local.__file__, torchx_kit.__file__, torchx_specs.__file__)
    homes = dict.fromkeys(os.path.dirname(os.path.dirname(os.path.abspath(f))) for f in files if f)
    return [sys.executable or "python3", "-I", "-S", "-c", _PYTHON, *args, *homes]


def _forget_all() -> None:
    # A forked process must not hold the pipes: while it lives, they would not end.
    for guard in list(_guards):
        guard._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
