"""The guard of an app: a small process that ends the app if its supervisor dies, even by SIGKILL.

The guard reads from a pipe whose other end only the supervisor has open. A line on the pipe means
that the app has ended. The end of the pipe without a line means that the supervisor has died. The
guard is a shell, which starts within a millisecond and needs little memory. If the supervisor dies,
the shell replaces itself with Python (:mod:`~torchx_sched_local.supervise.start_supervisor`),
which ends the app's processes and completes the app's logs. The guard of a supervisor process is
its parent, so that exit codes are not lost.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable

from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.supervise.start_supervisor import python_command

# The guard ignores these signals: a terminal or a batch system may send them to all processes.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_SCRIPT = """trap '' HUP INT TERM QUIT; IFS= read -r word && exit 0; exec "$@" """


class Guard:
    """The guard of one app.

    Args:
        folder: The app's folder, whose journal is locked.
        app_id: The app's id; the guard can end the app even if the folder was deleted.
        began: A time, as :func:`process_table.now`, before which no process of the app started.

    Attributes:
        pid: The guard's process id.

    Raises:
        OSError: The guard cannot be started.
    """

    def __init__(self, folder: AppFolder, app_id: str, began: int) -> None:
        journal = folder.fileno()
        command = python_command("reap", folder.path, str(journal), app_id, str(began))
        reader, self._pipe = os.pipe()
        # Block the signals until the shell ignores them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "torchx-guard", *command],
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # The variables of this process may have the token of a local job that runs it.
                env={"PATH": os.environ.get("PATH", os.defpath)},
                pass_fds=(journal,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(reader)
        self.pid = self._process.pid

    def dismiss(self) -> None:
        """End the guard, because its app has ended; may be called more than once."""
        with contextlib.suppress(OSError):  # the pipe is closed, or the guard was killed
            os.write(self._pipe, b"bye\n")
        self.close_pipe()

    def wait(self) -> None:
        """Wait until the guard has ended."""
        self._process.wait()

    def end_app(self) -> None:
        """Make the guard end the app, as if this process had died, and wait for that."""
        self.close_pipe()
        self.wait()

    def close_pipe(self) -> None:
        """Close this process's end of the pipe; may be called more than once."""
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)


class ParentGuard(Guard):
    """A guard that is the parent of this process, so that it also reads exit codes.

    The process that creates this object becomes the guard, and its caller continues in a child. If
    the child dies, the guard inherits the replicas, because it adopts orphans, and records how they
    have ended.

    Args:
        end_app: Ends the app, as the program of a :class:`Guard`.
        files: Descriptors that only the child needs.

    Raises:
        OSError: This process cannot be forked.
    """

    def __init__(self, end_app: Callable[[], object], files: Iterable[int]) -> None:
        reader, self._pipe = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        if os.fork():
            for fd in (self._pipe, *files):
                os.close(fd)
            for number in _IGNORED:
                signal.signal(number, signal.SIG_IGN)
            os.chdir("/")
            if not os.read(reader, 1):
                end_app()
            os._exit(0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(reader)

    def wait(self) -> None:
        """Return at once: a process cannot wait for its parent."""
