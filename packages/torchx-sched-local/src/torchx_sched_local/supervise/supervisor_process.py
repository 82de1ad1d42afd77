"""The process that supervises a detached app, or ends an app whose supervisor has died.

``python -m torchx_sched_local.supervise.supervisor_process run FOLDER`` starts the app in a folder
and supervises it. To standard output, it writes one line, a JSON object: ``{}``, or an object with
the keys ``error`` and ``message`` if the app could not be started. ``reap FOLDER`` ends an app
whose supervisor has died.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from torchx_sched_local.errors import folder_error
from torchx_sched_local.images import CWDImageProvider
from torchx_sched_local.scheduler import LocalScheduler
from torchx_sched_local.store.app_folder import AppFolder
from torchx_sched_local.submit import launch
from torchx_sched_local.supervise.reactor import Reactor
from torchx_sched_local.supervise.reap import reap
from torchx_sched_local.supervise.replicas import _LocalAppDef
from torchx_sched_local.supervise.supervision import Policy, Supervision
from torchx_specs.errors import RequestError, TorchXError
from torchx_specs.model.app import RetryPolicy

_PR_SET_CHILD_SUBREAPER = 36
_RETRY_SECONDS = 0.1


def main(argv: list[str]) -> int:
    """Run the process, and return its exit code.

    Args:
        argv: The command, ``run`` or ``reap``, and the app's folder.
    """
    command, path = argv
    folder = AppFolder(path)
    if command == "reap":
        reap(folder)
        return 0
    if command == "run":
        return _run(folder)
    print(f"unknown command '{command}'; valid commands: run, reap", file=sys.stderr)
    return 2


def _run(folder: AppFolder) -> int:
    report_fd = _take_stdout()
    _adopt_orphans()
    try:
        supervision, reactor = _start(folder)
    except TorchXError as e:
        _report(report_fd, {"error": type(e).__name__, "message": str(e)})
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: supervision.cancel_soon())
    reap_orphans = _OrphanReaper(supervision, reactor)
    signal.signal(signal.SIGCHLD, lambda *_: reactor.call_soon(reap_orphans))
    _report(report_fd, {})
    reactor.run()
    return 0


def _start(folder: AppFolder) -> tuple[Supervision, Reactor]:
    data, request = folder.read_app(), folder.read_request()
    if data is None or request is None:
        raise RequestError(f"the folder {folder.path} has no app and request, or they are damaged")
    reactor = Reactor()
    reactor.hold()
    try:
        folder.open_journal()
        supervision, running = launch(
            reactor,
            folder,
            request,
            [Policy(r["max_retries"], RetryPolicy(r["retry_policy"])) for r in data["roles"]],
            LocalScheduler(data["session"], CWDImageProvider)._popen,
            _LocalAppDef(request.app_id, request.log_dir),
            fail_together=bool(data.get("fail_together")),
            adopts=True,
        )
    except OSError as e:
        raise folder_error(folder.path, e) from e
    reactor.call_soon(lambda: supervision.begin(running))
    return supervision, reactor


def _take_stdout() -> int:
    """Return a descriptor of standard output, and redirect standard output to the null device."""
    fd = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)
    return fd


def _report(fd: int, report: dict[str, str]) -> None:
    try:
        os.write(fd, json.dumps(report).encode() + b"\n")
    except OSError:
        pass  # the launcher has died
    os.close(fd)


def _adopt_orphans() -> None:
    """Make this process the parent of its orphaned descendants, on Linux.

    A daemon that clears its environment can then still be found: it stays a descendant.
    """
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class _OrphanReaper:
    """Reaps adopted children; the supervision reaps the first processes of the replicas."""

    def __init__(self, supervision: Supervision, reactor: Reactor) -> None:
        self._supervision = supervision
        self._reactor = reactor

    def __call__(self) -> None:
        own = self._supervision.own_pids()
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            if ended.si_pid in own:
                # waitid returns this child until the supervision reaps it.
                self._reactor.call_later(_RETRY_SECONDS, self)
                return
            os.waitpid(ended.si_pid, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
