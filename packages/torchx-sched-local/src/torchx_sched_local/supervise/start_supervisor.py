"""Starts the supervisor process of a detached app, and contains the program of that process.

The submitting process and the supervisor have two pipes between them. The supervisor starts the
app's processes, reports over the first pipe, and waits until the submitting process has confirmed
the start over the second pipe. If the submitting process is interrupted or killed before that, the
supervisor kills the processes that it has started. Before the confirmation, the end of the first
pipe means that the supervisor has ended.

``python -m torchx_sched_local.supervise.start_supervisor run FOLDER JOURNAL APP_ID`` is the guard
of the app, and forks the supervisor. JOURNAL is the descriptor of the locked journal.
Its report is one line, a JSON object: ``{}``, or an object with the keys ``error`` and ``message``
if the app could not be started. ``reap FOLDER JOURNAL APP_ID BEGAN`` ends an app whose supervisor
has died.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from io import FileIO
from typing import TYPE_CHECKING

import torchx_kit
import torchx_sched_local
import torchx_specs
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.store.layout import SUPERVISOR_LOG
from torchx_sched_local.store.safe_folders import closing_fd
from torchx_sched_local.supervise.processes import process_table
from torchx_sched_local.supervise.processes.replica_processes import ProcessId, identify, is_alive
from torchx_specs.errors import BackendError, RequestError, TorchXError

if TYPE_CHECKING:
    from torchx_sched_local.supervise.guard import Guard
    from torchx_sched_local.supervise.supervision import Supervision

_RETRY_SECONDS = 0.1
# How often to reap adopted children that have ended.
_REAP_SECONDS = 1.0
#: The confirmation of the start.
CONFIRMATION = b"go\n"
_PR_SET_CHILD_SUBREAPER = 36
# How long an interrupted supervisor may take to kill the processes that it has started.
_ABORT_SECONDS = 30.0

# This program runs isolated from the caller's directory, variables and site packages. Its arguments
# are: the number of arguments of main(), these arguments, and the folders for sys.path.
_PYTHON = """import sys
n = int(sys.argv[1])
sys.path[:0] = sys.argv[2 + n:]
from torchx_sched_local.supervise.start_supervisor import main
sys.exit(main(sys.argv[2:2 + n]))
"""


def python_command(*args: str) -> list[str]:
    """Return the command that calls :func:`main` in a new Python process.

    Args:
        args: The arguments of :func:`main`.
    """
    files = (torchx_sched_local.__file__, torchx_kit.__file__, torchx_specs.__file__)
    folders = dict.fromkeys(
        os.path.dirname(os.path.dirname(os.path.abspath(f))) for f in files if f
    )
    python = sys.executable or "python3"
    return [python, "-I", "-S", "-c", _PYTHON, str(len(args)), *args, *folders]


# The functions from here to `main` run in the submitting process.


class _SupervisorDiedError(BackendError):
    """The supervisor has died without a report."""


def start_supervisor(folder: AppFolder, confirmation: FileIO, confirm: FileIO) -> None:
    """Start the supervisor process of an app, and wait until it has started the app's processes.

    The supervisor then waits until the caller has written :data:`CONFIRMATION`. If this function is
    interrupted, for example by Ctrl-C, it waits for at most 30 seconds until the supervisor has
    killed the processes that the supervisor had started.

    If the supervisor is killed after it has written to the journal, the app counts as started,
    since its processes may have run: it has ended, as its guard has recorded.

    Args:
        folder: The app's folder, whose journal is locked.
        confirmation: The pipe from which the supervisor reads the confirmation.
        confirm: The other end of this pipe. It is closed after an error, so that the supervisor
            kills the processes.

    Raises:
        RequestError: None of the programs can be run, a secret cannot be read, or the app's folder
            cannot be written.
        BackendError: The machine cannot run the app, or the supervisor has died before it began.
        OSError: The supervisor cannot be started.
    """
    process: subprocess.Popen[bytes] | None = None
    position = folder.journal_size()
    # The pipe is made here, not by Popen: if Popen is interrupted after it has started the
    # process, only the end of the pipes makes the process end.
    read_end, write_end = os.pipe()
    with open(read_end, "rb", 0) as report:
        try:
            with open(write_end, "wb", 0) as reported:
                process = _popen(folder, confirmation.fileno(), reported.fileno())
            _read_report(report.fileno())
        except BaseException as e:
            if not isinstance(e, _SupervisorDiedError):
                confirm.close()
            if _wait_for_end_of_pipe(report.fileno()) and process is not None:
                process.wait()
            if isinstance(e, _SupervisorDiedError) and folder.journal_size() > position:
                return
            raise
    # If the supervisor ends before this process, this process must reap it.
    threading.Thread(target=process.wait, name="torchx-detached", daemon=True).start()


def _popen(folder: AppFolder, confirmation: int, reported: int) -> subprocess.Popen[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    # If this process runs in a local job, the new app must not end with that job.
    environ = {k: v for k, v in os.environ.items() if k != process_table.ENV_REPLICA}
    with closing_fd(folder.open(SUPERVISOR_LOG, flags)) as log:
        return subprocess.Popen(
            python_command("run", folder.path, str(folder.fileno()), folder.run.app_id),
            stdin=confirmation,
            stdout=reported,
            stderr=log,
            env=environ,
            pass_fds=(folder.fileno(),),
            start_new_session=True,
        )


def _read_report(fd: int) -> None:
    data = b""
    while not data.endswith(b"\n") and (block := os.read(fd, 1 << 16)):
        data += block
    try:
        report = json.loads(data)
    except ValueError:
        raise _SupervisorDiedError(
            "the supervisor process of the app has died before it started the app"
        ) from None
    if report:
        kind = RequestError if report["error"] == "RequestError" else BackendError
        raise kind(report["message"])


def _wait_for_end_of_pipe(fd: int) -> bool:
    """Wait until nobody can write to the pipe; return False if that takes too long."""
    deadline = time.monotonic() + _ABORT_SECONDS
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while (seconds := deadline - time.monotonic()) > 0:
        if poll.poll(seconds * 1000) and not os.read(fd, 1 << 16):
            return True
    return False


# The functions from here on run in the new process. They import the modules that import this one.


def main(argv: list[str]) -> int:
    """Run the command in ``argv``, and return the exit code of this process.

    Args:
        argv: ``run FOLDER JOURNAL APP_ID`` or ``reap FOLDER JOURNAL APP_ID BEGAN``. BEGAN is a
            time, as :func:`process_table.now`, before which no process of the app started.
    """
    command, path, journal, app_id, *began = argv
    folder = AppFolder(path, int(journal))
    if command == "reap":
        from torchx_sched_local.supervise.guard import reap

        reap(folder, app_id, int(began[0]))
        return 0
    os.set_inheritable(int(journal), False)  # the replicas must not share the lock
    return _run(folder, app_id)


def _run(folder: AppFolder, app_id: str) -> int:
    from torchx_sched_local.supervise.guard import ParentGuard, reap

    report_fd, confirmation_fd = _take_standard_streams()
    launcher = identify(os.getppid())
    began = process_table.now()
    _adopt_orphans()
    guard = ParentGuard(lambda: reap(folder, app_id, began), (report_fd, confirmation_fd))
    _adopt_orphans()  # a child does not inherit this
    try:
        supervision = _start(folder, app_id, guard)
    except TorchXError as e:
        guard.dismiss()
        _report(report_fd, {"error": type(e).__name__, "message": str(e)})
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: supervision.cancel_soon())
    _report(report_fd, {})
    if _is_confirmed(confirmation_fd, launcher):
        os.close(report_fd)
    else:
        supervision.abort()
    supervision.reactor.call_soon(supervision.begin)
    # The request of an array may have thousands of objects, which stay until the end.
    gc.freeze()
    supervision.reactor.call_soon(lambda: _reap_orphans(supervision))
    supervision.reactor.run()
    return 0


def _start(folder: AppFolder, app_id: str, guard: Guard) -> Supervision:
    from torchx_sched_local.errors import folder_error
    from torchx_sched_local.image_providers import CWDImageProvider
    from torchx_sched_local.scheduler import LocalScheduler
    from torchx_sched_local.supervise.replicas import _LocalAppDef
    from torchx_sched_local.supervise.supervision import Supervision

    try:
        folder.open_journal()
        run = folder.read()
        if run.request is None or run.is_damaged or run.app_id != app_id:
            raise RequestError(
                f"the folder {folder.path} has no app and request, or they are damaged"
            )
        popen = LocalScheduler(run.data["session"], CWDImageProvider)._popen
        local_app = _LocalAppDef(app_id, folder.path)
        supervision = Supervision(folder, run.request, popen, local_app, guard)
        supervision.start()
    except OSError as e:
        raise folder_error(folder.path, e) from e
    return supervision


def _adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants, on Linux.

    A daemon that has cleared its environment can then still be found among the descendants.
    """
    if process_table.IS_LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _take_standard_streams() -> tuple[int, int]:
    """Return descriptors of standard output and input, and replace both by the null device."""
    report_fd, confirmation_fd = os.dup(1), os.dup(0)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    return report_fd, confirmation_fd


def _report(fd: int, report: dict[str, str]) -> None:
    # If the submitting process has died, it will not confirm the start.
    with contextlib.suppress(OSError):
        os.write(fd, json.dumps(report).encode() + b"\n")


def _is_confirmed(fd: int, launcher: ProcessId) -> bool:
    """Wait for the confirmation; return False if the submitting process was interrupted or died."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    while not poll.poll(_RETRY_SECONDS * 1000):
        # If the submitting process has died, a process that it forked may have the pipe open.
        if not is_alive(launcher):
            return False
    return os.read(fd, 64) == CONFIRMATION


def _reap_orphans(supervision: Supervision) -> None:
    """Reap the adopted children that have ended, now and from time to time.

    The supervision reaps the first processes of the replicas.
    """
    for pid in process_table.children() - supervision.own_pids():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    supervision.reactor.call_later(_REAP_SECONDS, lambda: _reap_orphans(supervision))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
