"""The process that supervises a detached app, and what a guard becomes when it is needed.

``python -m torchx_sched_local.supervise.supervisor_process run FOLDER`` starts the processes that
the folder's request asks for and supervises them. Its first line of output is a JSON object,
``{}`` or with the ``error`` that kept it from starting them.
``reap FOLDER`` ends an app whose supervisor has died.
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
_AGAIN_SECONDS = 0.1


def main(argv: list[str]) -> int:
    """Runs the process; returns its exit code."""
    what, path = argv
    folder = AppFolder(path)
    if what == "reap":
        reap(folder)
        return 0
    if what == "run":
        return _run(folder)
    print(f"unknown: {what}", file=sys.stderr)
    return 2


def _run(folder: AppFolder) -> int:
    answer_to = _take_stdout()
    _adopt_orphans()
    try:
        supervision, reactor = _start(folder)
    except TorchXError as e:
        _report(answer_to, {"error": type(e).__name__, "message": str(e)})
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: supervision.cancel_soon())
    reap_orphans = _OrphanReaper(supervision, reactor)
    signal.signal(signal.SIGCHLD, lambda *_: reactor.call_soon(reap_orphans))
    _report(answer_to, {})
    reactor.run()
    return 0


def _start(folder: AppFolder) -> tuple[Supervision, Reactor]:
    data, request = folder.read_app(), folder.read_request()
    if data is None or request is None:
        raise RequestError(f"{folder.path} holds no app")
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
    """Returns a descriptor of standard output, and leaves the jobs none to write to."""
    fd = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.close(null)
    return fd


def _report(fd: int, answer: dict[str, str]) -> None:
    try:
        os.write(fd, json.dumps(answer).encode() + b"\n")
    except OSError:
        pass  # whoever wanted to know is gone
    os.close(fd)


def _adopt_orphans() -> None:
    """Makes this process the parent of what its children leave behind (on Linux).

    So even a daemon with a cleared environment is found, among the descendants of this process.
    """
    if sys.platform.startswith("linux"):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class _OrphanReaper:
    """Waits for adopted children that have ended; the replicas' first processes have their turn."""

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
                # it is the first in the row for as long as nobody waits for it
                self._reactor.call_later(_AGAIN_SECONDS, self)
                return
            os.waitpid(ended.si_pid, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
