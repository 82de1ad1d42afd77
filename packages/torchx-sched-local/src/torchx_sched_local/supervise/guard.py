"""The guard of an app: a small process that ends the app if its supervisor dies, even by SIGKILL.

The guard reads from a pipe whose other end only the supervisor has open. A line on the pipe means
that the app has ended. The end of the pipe without a line means that the supervisor has died. The
guard is a shell, which starts within a millisecond and needs little memory. If the supervisor dies,
the shell replaces itself with Python (:mod:`~torchx_sched_local.supervise.start_supervisor`),
which ends the app's processes and completes the app's logs. The guard of a sweep's driver is the
driver's parent instead, so that it can also read the exit codes of programs that have ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import weakref
from typing import NoReturn

from torchx_sched_local.supervise.processes.replica_processes import ProcessId, identify
from torchx_sched_local.supervise.start_supervisor import python_command

# The guard ignores these signals: a terminal or a batch system may send them to all processes.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
_SCRIPT = """trap '' HUP INT TERM QUIT; IFS= read -r word && exit 0; exec "$@" """

_guards: weakref.WeakSet[GuardProcess] = weakref.WeakSet()


class GuardProcess:
    """A running guard.

    Args:
        command: The program that ends the guarded apps.
        file: A descriptor that the program inherits; None means no descriptor.

    Attributes:
        process: The guard's process.

    Raises:
        OSError: The guard cannot be started.
    """

    def __init__(self, command: list[str], file: int | None = None) -> None:
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
                env=_environ(),
                start_new_session=True,
                pass_fds=() if file is None else (file,),
            )
        except BaseException:
            os.close(self._pipe)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(reader)
        self.process: ProcessId = identify(self._process.pid)
        _guards.add(self)

    def is_alive(self) -> bool:
        """Return True if the guard has not ended."""
        return self._process.poll() is None

    def dismiss(self) -> None:
        """End the guard, because its apps have ended; may be called more than once."""
        pipe, self._pipe = self._pipe, -1
        if pipe < 0:
            return
        try:
            if self.is_alive():
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


class ParentGuard(GuardProcess):
    """A guard that is the parent of this process, and adopts orphans.

    If this process dies, the guard inherits its children, and with them their exit codes. The
    process that creates this object becomes the guard, and its caller continues in a child. Call
    :func:`~torchx_sched_local.supervise.processes.adoption.adopt_orphans` before.

    This guard is no shell, because some shells reap the children that they inherit.

    Args:
        command: The program of the guard, which reads from the pipe, and then ends the apps.
        file: A descriptor that the program inherits.

    Raises:
        OSError: This process cannot be forked.
    """

    def __init__(self, command: list[str], file: int) -> None:
        reader, self._pipe = os.pipe()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        self._parent = os.getpid()
        try:
            if os.fork():
                _become_guard(command, file, reader)
            os.setsid()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(reader)
        self.process = identify(self._parent)
        _guards.add(self)

    def is_alive(self) -> bool:
        """Return True if the guard has not ended."""
        return os.getppid() == self._parent

    def wait(self) -> None:
        """Return at once: a process cannot wait for its parent."""


class Guard(GuardProcess):
    """The guard of one app.

    Args:
        folder: The app's folder.
        app_id: The app's id; the guard can end the app even if the folder was deleted.
        began: A time, as :func:`process_table.now`, before which no process of the app started.

    Raises:
        OSError: The guard cannot be started.
    """

    def __init__(self, folder: str, app_id: str, began: int) -> None:
        super().__init__(python_command("reap", folder, app_id, str(began)))

    def end_app(self) -> None:
        """Make the guard end the app, as if this process had died, and wait for that."""
        self._close_pipe()
        self._process.wait()


def _environ() -> dict[str, str]:
    # Do not pass os.environ: if this process runs in a local job, that job's token would mark the
    # guard as one of the job's processes.
    return {"PATH": os.environ.get("PATH", os.defpath)}


def _become_guard(command: list[str], file: int, reader: int) -> NoReturn:
    """Replace this process by a guard; if that fails, end this process."""
    try:
        os.dup2(reader, 0)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os.set_inheritable(file, True)
        os.chdir("/")
        os.execvpe(command[0], command, _environ())  # noqa: S606
    finally:
        os._exit(1)  # the child sees this, and starts another guard


def _close_inherited_pipes() -> None:
    # A forked process inherits the pipes. While it has them open, the guards do not notice that the
    # supervisor has died.
    for guard in list(_guards):
        guard._close_pipe()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_pipes)
