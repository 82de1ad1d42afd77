"""A scheduler of a plugin for TorchX 1.13, written from the template of ``torchx plugins new``.

It has the methods and attributes that schedulers had before their abilities became objects:
``lacks``, ``resolves_secrets``, ``log_iter``, ``log_blocks``, ``submit_many`` and
``open_session``. Its service is the fake scheduler.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from fake_scheduler import FakeApp, FakeScheduler, set_secrets

from torchx_kit.logs.lines import filter_regex
from torchx_kit.role_checks import app_problems, check_replica, replica_count_problems
from torchx_kit.sessions.process import ProcessSession
from torchx_specs import AppDef, AppDryRunInfo, CfgVal, RequestError, Role, StructuredOpts
from torchx_specs.errors import UnknownAppException
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx_specs.schedulers.logs import LogQuery
from torchx_specs.schedulers.sessions import ReplicaNotRunningError, Session, TerminalSize


@dataclass
class Options(StructuredOpts):
    """The options of ``torchx run -cfg``."""

    work_dir: str | None = None
    """Working directory of the processes (default: a new folder for each job)."""


class OlderScheduler(Scheduler[Options]):
    """Runs each replica of an app as a task of one job.

    Args:
        session_name: Name of the session; the second part of app handles.
        service: The service that runs the jobs.
    """

    resolves_secrets = True
    lacks: ClassVar[Mapping[str, str]] = {
        "cancel_pending": "jobs start at once",
        "since_until": "the logs have no times",
        "exotic": "an unknown name, which older releases reported",
    }

    def __init__(self, session_name: str, service: FakeScheduler) -> None:
        super().__init__("older", session_name)
        self.service = service

    def _submit_dryrun(self, app: AppDef, cfg: Options) -> AppDryRunInfo[Any]:
        problems = list(app_problems(app))
        for role in app.roles:
            problems += [f"role '{role.name}': {text}" for text in replica_count_problems(role)]
        if problems:
            raise RequestError(problems)
        return self.service._submit_dryrun(app, {})

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        """Submit the job of a dry run and return its id."""
        app_id, app = copy.deepcopy(dryrun_info.request)
        set_secrets(app)
        return self.service.schedule(AppDryRunInfo((app_id, app), repr))

    def submit_many(
        self, dryrun_infos: Iterable[AppDryRunInfo[Any]], max_parallel: int | None = None
    ) -> Iterator[str]:
        """Submit jobs, of which at most ``max_parallel`` run at the same time."""
        free = threading.Semaphore(max_parallel or 1000)
        for info in dryrun_infos:
            with free:
                app_id = self.schedule(info)
                yield app_id
                for thread in self.service.apps[app_id].threads if max_parallel else ():
                    thread.join()

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """Return the state of an app and of its replicas, or None if the app does not exist."""
        described = self.service.describe(app_id)
        if described is not None:
            roles = self.service.apps[app_id].roles
            described.roles = [Role(r, "", num_replicas=len(k)) for r, k in roles.items()]
        return described

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        """Return the apps of all sessions."""
        return self.service.list()

    def _cancel_existing(self, app_id: str) -> None:
        self.service.cancel(app_id)

    def _delete_existing(self, app_id: str) -> None:
        self.service.delete(app_id)

    def close(self) -> None:
        """End followed logs."""
        super().close()
        self.service.close()

    def open_session(
        self,
        app_id: str,
        role_name: str,
        k: int,
        command: Sequence[str],
        *,
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Start a command with the environment of a replica."""
        replica = self._app(app_id, role_name, k).roles[role_name][k]
        if replica.code is not None or replica.process is None:
            raise ReplicaNotRunningError(f"{role_name}/{k} does not run")
        env = {"PATH": "/usr/bin:/bin", **replica.env}
        return ProcessSession(command, tty=tty, stdin=stdin, env=env)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        *,
        last: int | None = None,
    ) -> Iterable[str]:
        """Return the log lines of one replica; see ``Scheduler.log_iter``."""
        if since is not None or until is not None:
            raise RequestError("since, until: the logs have no times; leave these options out")
        self._app(app_id, role_name, k)
        query = LogQuery(None, None, None, should_tail, streams)
        lines = self.service.app_logs.read(app_id, role_name, k, query)
        if last is not None:
            lines = list(lines)
            lines = lines[max(0, len(lines) - last) :]
        return filter_regex(regex, lines) if regex else lines

    def log_blocks(
        self,
        app_id: str,
        replicas: Iterable[tuple[str, int]],
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
        *,
        last: int | None = None,
    ) -> Iterator[tuple[tuple[str, int], Iterable[str] | Exception]] | None:
        """Return blocks of log lines of several replicas, or None for the runner's threads."""
        if should_tail:
            return None
        limits = (regex, since, until, should_tail, streams)
        return self._blocks(replicas, lambda r, k: self.log_iter(app_id, r, k, *limits, last=last))

    def _blocks(
        self,
        replicas: Iterable[tuple[str, int]],
        read: Callable[[str, int], Iterable[str]],
    ) -> Iterator[tuple[tuple[str, int], Iterable[str] | Exception]]:
        for role, k in replicas:
            try:
                yield (role, k), list(read(role, k))
            except Exception as e:  # the consumer decides how to handle the error
                yield (role, k), e

    def _app(self, app_id: str, role: str, k: int) -> FakeApp:
        app = self.service.apps.get(app_id)
        if app is None:
            raise UnknownAppException(app_id)
        check_replica(app_id, {name: len(found) for name, found in app.roles.items()}, role, k)
        return app


def create_scheduler(session_name: str = "conformance", **params: object) -> OlderScheduler:
    """Return a scheduler."""
    return OlderScheduler(session_name, FakeScheduler())
