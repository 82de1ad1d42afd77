"""A fake scheduler that runs jobs as child processes, and subclasses with one defect each."""

from __future__ import annotations

import copy
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from torchx_kit.jobs.descriptions import listed, set_times
from torchx_kit.logs.lines import filter_regex, split_lines
from torchx_kit.role_templates import RoleTemplate
from torchx_kit.secrets import resolve_secrets, with_values
from torchx_specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    RequestError,
    RoleStatus,
    macros,
)
from torchx_specs.model.status import ReplicaStatus
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.closing import Closing, closing_of
from torchx_specs.schedulers.features import No, SchedulerFeatures
from torchx_specs.schedulers.logs import LogQuery, Logs


@dataclass
class FakeReplica:
    argv: list[str]
    env: dict[str, str]
    retries: int
    out: bytes = b""
    err: bytes = b""
    collected: bytes = b""  # standard error, until standard output has ended
    code: int | None = None
    restarts: int = 0
    process: Any = None
    started: datetime | None = None
    ended: datetime | None = None

    def read_errors(self) -> None:
        self.collected += self.process.stderr.read()

    def lines(self, stream: Stream | None) -> list[str]:
        data = {Stream.STDOUT: self.out, Stream.STDERR: self.err}
        text = data.get(stream or Stream.COMBINED, self.out + self.err)
        return split_lines(text.decode("utf-8", "replace"))


@dataclass
class FakeApp:
    name: str
    roles: dict[str, list[FakeReplica]]
    cancelled: bool = False
    submitted: datetime | None = None
    threads: list[threading.Thread] = field(default_factory=list)


class FakeScheduler(Scheduler[Mapping[str, Any]]):
    """Runs each replica as a child process, and keeps all apps in memory."""

    features = SchedulerFeatures(
        cancel_pending=No("its jobs start at once"),
        describe_roles=No("the fake keeps none"),
        logs=True,
        since_until=No("the fake keeps no times"),
    )

    def __init__(self) -> None:
        super().__init__("fake", "conformance")
        self.apps: dict[str, FakeApp] = {}

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        if "/" in app.name:
            raise RequestError(f"an app of the fake cannot be named {app.name!r}")
        app_id = f"{app.name}-{uuid.uuid4().hex[:12]}"
        roles = {}
        for role in app.roles:
            template = RoleTemplate(role)
            replicas = []
            for k in range(role.num_replicas):
                values = macros.Values("", app_id, str(k), "TORCHX_RANK0_HOST")
                env = {**template.env(values), "TORCHX_RANK0_HOST": "localhost"}
                argv = [role.entrypoint, *template.args(values)]
                replicas.append(FakeReplica(argv, env, role.max_retries))
            roles[role.name] = replicas
        return AppDryRunInfo((app_id, FakeApp(app.name, roles)), repr)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        app_id, app = dryrun_info.request
        self.apps[app_id] = app
        app.submitted = datetime.now(timezone.utc)
        for replicas in app.roles.values():
            for replica in replicas:
                thread = threading.Thread(target=self.run, args=(app, replica), daemon=True)
                app.threads.append(thread)
                thread.start()
        return str(app_id)

    def run(self, app: FakeApp, replica: FakeReplica) -> None:
        for attempt in range(replica.retries + 1):
            replica.restarts = attempt
            replica.started = datetime.now(timezone.utc)
            try:
                replica.process = subprocess.Popen(
                    replica.argv,
                    env={"PATH": "/usr/bin:/bin", **replica.env},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
                if app.cancelled:  # cancel() saw no process to kill, because Popen ran meanwhile
                    os.killpg(replica.process.pid, signal.SIGKILL)
                err = threading.Thread(target=replica.read_errors)
                err.start()
                for line in replica.process.stdout:
                    replica.out += line
                err.join()
                # Not before: a follower has seen all lines of standard output that precede these.
                replica.err = replica.collected
                code = replica.process.wait()
            except OSError:
                code = 127
            if code == 0 or app.cancelled:
                break
        replica.ended = datetime.now(timezone.utc)
        replica.code = code

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        app = self.apps.get(app_id)
        if app is None:
            return None
        statuses = [
            RoleStatus(name, [self.status(name, k, r) for k, r in enumerate(replicas)])
            for name, replicas in app.roles.items()
        ]
        described = DescribeAppResponse(app_id, self.state(app), roles_statuses=statuses)
        set_times(described, app.submitted, [r for s in statuses for r in s.replicas])
        return described

    def status(self, role: str, k: int, replica: FakeReplica) -> ReplicaStatus:
        code = replica.code
        state = AppState.RUNNING if code is None else _ended(code)
        return ReplicaStatus(
            k,
            state,
            role,
            "here",
            exit_code=code,
            restarts=replica.restarts,
            started=replica.started,
            ended=replica.ended,
        )

    def state(self, app: FakeApp) -> AppState:
        codes = [r.code for replicas in app.roles.values() for r in replicas]
        if None in codes:
            return AppState.RUNNING
        if app.cancelled:
            return AppState.CANCELLED
        return AppState.FAILED if any(codes) else AppState.SUCCEEDED

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        described = [(self.describe(app_id), app.name) for app_id, app in self.apps.items()]
        return [listed(app, name=name) for app, name in described if app is not None]

    def _cancel_existing(self, app_id: str) -> None:
        app = self.apps[app_id]
        if self.state(app) != AppState.RUNNING:
            return
        app.cancelled = True
        for replicas in app.roles.values():
            for replica in replicas:
                if replica.process is not None:
                    os.killpg(replica.process.pid, signal.SIGKILL)
        for thread in app.threads:
            thread.join()

    def _delete_existing(self, app_id: str) -> None:
        self._cancel_existing(app_id)
        del self.apps[app_id]

    @property
    def app_logs(self) -> FakeLogs:
        return FakeLogs(self)

    def follow(
        self, app: FakeApp, replica: FakeReplica, stream: Stream | None, closing: Closing
    ) -> Iterable[str]:
        told = 0
        ended = False
        while not ended and not closing.is_set():
            ended = not any(thread.is_alive() for thread in app.threads)
            lines = replica.lines(stream)
            new = lines[told:] if ended else [x for x in lines[told:] if x.endswith("\n")]
            told += len(new)
            yield from new
            time.sleep(0.02)


class FakeLogs(Logs[FakeScheduler]):
    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        app = self.scheduler.apps[app_id]
        replica = app.roles[role][k]
        if query.should_tail:
            closing = closing_of(self.scheduler)
            lines = self.scheduler.follow(app, replica, query.streams, closing)
        else:
            lines = replica.lines(query.streams)
        return filter_regex(query.regex, lines) if query.regex else lines


def _ended(code: int) -> AppState:
    return AppState.FAILED if code else AppState.SUCCEEDED


class CutsLines(FakeScheduler):
    def log_iter(self, *args: Any, **kwargs: Any) -> Iterable[str]:
        text = "".join(super().log_iter(*args, **kwargs))
        return [text[i : i + 4096] for i in range(0, len(text), 4096)]


class LosesExitCode(FakeScheduler):
    def status(self, role: str, k: int, replica: FakeReplica) -> ReplicaStatus:
        status = super().status(role, k, replica)
        status.exit_code = None
        return status


class UsesAShell(FakeScheduler):
    def run(self, app: FakeApp, replica: FakeReplica) -> None:
        replica.argv = ["sh", "-c", " ".join(f'"{word}"' for word in replica.argv)]
        super().run(app, replica)


class StripsVariables(FakeScheduler):
    def run(self, app: FakeApp, replica: FakeReplica) -> None:
        replica.env = {key: value.strip() for key, value in replica.env.items()}
        super().run(app, replica)


WITH_SECRETS = replace(FakeScheduler.features, secrets=True)


class PassesReferences(FakeScheduler):
    """Claims to resolve secrets, but passes the references to the job."""

    features = WITH_SECRETS


def set_secrets(app: FakeApp) -> None:
    for replicas in app.roles.values():
        for replica in replicas:
            replica.env = with_values(replica.env, resolve_secrets([replica.env]))


class ShowsSecrets(FakeScheduler):
    """Resolves secrets in the dry run, whose result then shows them."""

    features = WITH_SECRETS

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        info = super()._submit_dryrun(app, cfg)
        set_secrets(info.request[1])
        return info


class ResolvesSecrets(FakeScheduler):
    """Resolves secrets correctly, in a copy of the request."""

    features = WITH_SECRETS

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        app_id, app = copy.deepcopy(dryrun_info.request)
        set_secrets(app)
        return super().schedule(AppDryRunInfo((app_id, app), repr))


class ChangesTheApp(FakeScheduler):
    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        info = super()._submit_dryrun(app, cfg)
        app.roles[0].env["ADDED"] = "1"
        return info


class KeepsRank0(FakeScheduler):
    """Passes the host of replica 0 to replica 0 only."""

    def run(self, app: FakeApp, replica: FakeReplica) -> None:
        others = [other for replicas in app.roles.values() for other in replicas[1:]]
        if any(replica is other for other in others):
            del replica.env["TORCHX_RANK0_HOST"]
        super().run(app, replica)


class NeverStarts(FakeScheduler):
    def state(self, app: FakeApp) -> AppState:
        return AppState.PENDING


class CancelFails(FakeScheduler):
    def state(self, app: FakeApp) -> AppState:
        state = super().state(app)
        return AppState.FAILED if state == AppState.CANCELLED else state


class NeverRetries(FakeScheduler):
    def run(self, app: FakeApp, replica: FakeReplica) -> None:
        replica.retries = 0
        super().run(app, replica)


class KnowsEverything(FakeScheduler):
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return super().describe(app_id) or DescribeAppResponse(app_id, AppState.SUCCEEDED)


class LeavesAFile(FakeScheduler):
    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        tempfile.mkstemp()
        return super()._submit_dryrun(app, cfg)


class AsksOnDryRun(FakeScheduler):
    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        try:
            socket.create_connection(("127.0.0.1", 9), timeout=1).close()
        except OSError:
            pass  # hides the failure, so that only the watch of the suite detects the connection
        return super()._submit_dryrun(app, cfg)


class FollowsLate(FakeScheduler):
    def follow(self, *args: Any) -> Iterable[str]:
        return list(super().follow(*args))


class ForgetsToDelete(FakeScheduler):
    def _delete_existing(self, app_id: str) -> None:
        self._cancel_existing(app_id)


class SplitsAtEverySeparator(FakeScheduler):
    def log_iter(self, *args: Any, **kwargs: Any) -> Iterable[str]:
        return "".join(super().log_iter(*args, **kwargs)).splitlines(keepends=True)


class ReplacesBytes(FakeScheduler):
    def run(self, app: FakeApp, replica: FakeReplica) -> None:
        replica.argv = [word.encode("utf-8", "replace").decode() for word in replica.argv]
        super().run(app, replica)


class RefusesBytes(FakeScheduler):
    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        for role in app.roles:
            for text in (*role.args, *role.env.values()):
                if not text.isascii():
                    raise RequestError(f"role {role.name}: {text!r:.50} is not ASCII")
        return super()._submit_dryrun(app, cfg)


class OneIdForAll(FakeScheduler):
    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        _, app = dryrun_info.request
        dryrun_info.request = ("the-app", app)
        return super().schedule(dryrun_info)


class RunsAnything(FakeScheduler):
    """Accepts every name, also names that cannot be part of a handle."""

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        name, app.name = app.name, "x"
        _, fake = super()._submit_dryrun(app, cfg).request
        app.name = name
        return AppDryRunInfo((f"{name}-1", fake), repr)


class RunsOneRetryTooMany(FakeScheduler):
    def run(self, app: FakeApp, replica: FakeReplica) -> None:
        replica.retries += 1
        super().run(app, replica)


class KillsNothing(FakeScheduler):
    def kill(self, app_id: str) -> None:
        pass


class OneOfMany(Arrays[FakeScheduler]):
    def submit(
        self, dryrun_infos: Iterable[AppDryRunInfo[Any]], max_parallel: int | None = None
    ) -> Iterator[str]:
        for info in dryrun_infos:
            yield self.scheduler.schedule(info)
            return

    def cancel(self, app_ids: Iterable[str]) -> None:
        for app_id in app_ids:
            self.scheduler.cancel(app_id)
            return


class TreatsOneOfMany(FakeScheduler):
    @property
    def app_arrays(self) -> OneOfMany:
        return OneOfMany(self)


class TurnsLogs(FakeScheduler):
    """Returns every second log from its end."""

    reads = 0

    def log_iter(self, *args: Any, **kwargs: Any) -> Iterable[str]:
        self.reads += 1
        return list(super().log_iter(*args, **kwargs))[:: -1 if self.reads % 2 else 1]


class HasNoSetup(FakeScheduler):
    features = replace(FakeScheduler.features, setup=True)


class NeverEndsAJob(FakeScheduler):
    features = replace(FakeScheduler.features, time_limit=True)


class WaitsForServers(FakeScheduler):
    features = replace(FakeScheduler.features, ends_app=True)


class IgnoresTheLimit(FakeScheduler):
    """Submits the apps of an array without a limit, although it claims to have one."""

    features = replace(FakeScheduler.features, array_limit=True)


class CountsNoGpus(FakeScheduler):
    features = replace(FakeScheduler.features, gpus=True)


class DeniesWhatItDoes(FakeScheduler):
    def gpus(self, cfg: Any = None) -> Any:
        return None

    features = FakeScheduler.features


class WaitsForNobody(FakeScheduler):
    features = replace(FakeScheduler.features, dependencies=True)

    def with_dependency(self, cfg: Any, app_id: str, outcome: str) -> Any:
        return cfg


class ShowsNoRequest(FakeScheduler):
    features = replace(FakeScheduler.features, native=True)


class WaitsForTheNewline(FakeScheduler):
    features = replace(FakeScheduler.features, partial=True)


class WaitsWithoutATimeout(FakeScheduler):
    def wait(self, app_id: str) -> bool:  # type: ignore[override]
        return False


class MixedUpLogs(FakeLogs):
    def read_many(self, app_id: str, replicas: Any, query: LogQuery) -> Iterator[Any]:
        for role, k in replicas:
            yield (role, 0), self.read(app_id, role, k, query)


class MixesUpLogs(FakeScheduler):
    @property
    def app_logs(self) -> FakeLogs:
        return MixedUpLogs(self)


class FollowsForEver(FakeScheduler):
    """Follows a log to its end although the scheduler was closed."""

    def follow(self, *args: Any) -> Iterable[str]:
        return super().follow(*args[:3], Closing())


class OneErrorForAllLogs(FakeLogs):
    def read_many(self, app_id: str, replicas: Any, query: LogQuery) -> Iterator[Any]:
        for role, k in replicas:
            yield (role, k), self.read(app_id, role, k, query)


class EndsAllLogs(FakeScheduler):
    @property
    def app_logs(self) -> FakeLogs:
        return OneErrorForAllLogs(self)


class SwapsTimes(FakeScheduler):
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        app = super().describe(app_id)
        if app is not None:
            app.started, app.ended = app.ended, app.started
        return app


class ForgetsTheZone(FakeScheduler):
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        app = super().describe(app_id)
        if app is not None and app.submitted is not None:
            app.submitted = app.submitted.replace(tzinfo=None)
        return app


class TakesLocalTimeForUtc(FakeScheduler):
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        app = super().describe(app_id)
        for name in ("submitted", "started", "ended"):
            if app is not None and getattr(app, name) is not None:
                setattr(app, name, getattr(app, name) + timedelta(hours=2))
        return app


class ListsNoNames(FakeScheduler):
    """Lists apps without names, and with ids that do not contain the names."""

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        info = super()._submit_dryrun(app, cfg)
        return AppDryRunInfo((uuid.uuid4().hex, info.request[1]), repr)

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        return [ListAppResponse(app.app_id, app.state) for app in super().list(cfg)]


class ListsNoTimes(FakeScheduler):
    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        return [ListAppResponse(app.app_id, app.state) for app in super().list(cfg)]


class EndsWhatRuns(FakeScheduler):
    def describe(self, app_id: str) -> DescribeAppResponse | None:
        app = super().describe(app_id)
        if app is not None:
            app.ended = datetime.now(timezone.utc)
        return app


class CutsNames(FakeScheduler):
    """Lists apps with names cut to 32 characters, and with ids that do not contain the names."""

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Any]:
        _, fake = super()._submit_dryrun(app, cfg).request
        fake.name = app.name[:32]
        return AppDryRunInfo((uuid.uuid4().hex, fake), repr)


class SubmitsTwice(FakeScheduler):
    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        app_id, app = dryrun_info.request
        super().schedule(AppDryRunInfo((f"{app_id}-again", copy.deepcopy(app)), repr))
        return super().schedule(dryrun_info)


class IgnoresCancel(FakeScheduler):
    def _cancel_existing(self, app_id: str) -> None:
        pass


class LacksValues(UsesAShell):
    """Denies features that it does not have."""

    features = replace(
        FakeScheduler.features,
        hostile_arguments=No("the fake quotes badly"),
        hostile_environment=No("the fake quotes badly"),
    )
