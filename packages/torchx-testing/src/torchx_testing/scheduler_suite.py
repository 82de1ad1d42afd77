"""The conformance suite of schedulers.

::

    class TestAcme(SchedulerConformance):
        scheduler_name = "acme"
        unsupported = {"since_until": "Acme's log service keeps no times"}

        @pytest.fixture
        def scheduler(self):
            return create_scheduler("conformance")

        @pytest.fixture
        def cfg(self):
            return {"queue": "test"}

Each test submits real jobs through a :class:`~torchx_runner.Runner`. The jobs need ``sh``, ``date``
and ``base64`` in their image. ``unsupported`` names the features that the back end lacks, with the
reasons. The tests of these features are skipped, and listed at the end of the run. On slow
machines, ``pytest --torchx-timeout=600`` raises the time limit.
"""

from __future__ import annotations

import base64
import copy
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar

import pytest

from torchx_kit.home import home_path
from torchx_runner import Runner
from torchx_specs import (
    AppDef,
    AppState,
    AppStatus,
    Resource,
    RetryPolicy,
    Role,
    TorchXError,
    UnknownAppException,
    is_started,
    is_terminal,
    macros,
    parse_app_handle,
    secret,
)
from torchx_specs.schedulers import Scheduler, Stream
from torchx_testing.declared import Suite
from torchx_testing.hostile import (
    HOSTILE_VALUES,
    NOT_UTF8,
    Dump,
    HostileValue,
    dump_args,
    parse_dump,
    python_dump_args,
)
from torchx_testing.offline import offline
from torchx_testing.signatures import signature_problems

#: The features that ``unsupported`` may name.
FEATURES = frozenset(
    {
        "exit_code",
        "retries",
        "restart_count",
        "list",
        "delete",
        "cancel_state",
        "cancel_pending",
        "streams",
        "regex",
        "since_until",
        "tail",
        "blank_lines",
        "unterminated_line",
        "undecodable_output",
        "several_roles",
        "rank0",
        "hostile_arguments",
        "hostile_environment",
        "not_utf8",
        "odd_names",
        "describe_roles",
        "secrets",
    }
)


#: Ids of apps that do not exist; some would be dangerous as paths, patterns or options.
UNKNOWN_IDS = [
    "no-such-app-4711",
    "4711",
    "no/such",
    "a b",
    "../../../etc",
    "..",
    "*",
    "-rf",
    "$(exit 7)",
    "a:b:c",
    "\u00fc",
    "a\nb",
    "x" * 300,
]

#: Names of apps and roles. A back end must either accept or refuse each name.
ODD_NAMES = [
    "a b",
    "UPPER.lower_1-2",
    "\u00fcml\u00e4ut",
    "1",
    "-dash",
    "dash-",
    "a/b",
    "../up",
    "a'b\"c",
    "$(exit 7)",
    "a:b",
    "x" * 200,
]


class SchedulerConformance(Suite):
    """The conformance tests of a scheduler. A subclass defines fixtures, names and limits.

    Attributes:
        scheduler_name: The scheduler's name in the runner and in app handles.
        unsupported: The :data:`FEATURES` that the back end lacks, with the reasons.
        cannot_carry: Names, or prefixes of names, of the hostile values that the back end cannot
            pass to a job unchanged, with the reasons. It must refuse these values in a dry run.
        pending_cfg: Options with which a job stays pending, for the test that cancels such a job.
        timeout: Time limit for each job, in seconds.
        poll_interval: Pause between two polls of a job, in seconds.
        long_job: Duration of a job whose log is followed while it runs, in seconds.
        image: The image of the roles.
        python: Path of a Python in the image. If set, the tests of hostile values run a second
            time, with a Python program instead of a shell script.
        hostile_chunk: The largest number of hostile values for one job.
    """

    features: ClassVar[frozenset[str]] = FEATURES
    scheduler_name: ClassVar[str] = "conformance"
    cannot_carry: ClassVar[Mapping[str, str]] = {}
    pending_cfg: ClassVar[Mapping[str, Any] | None] = None
    timeout: ClassVar[float] = 60.0
    poll_interval: ClassVar[float] = 0.5
    long_job: ClassVar[int] = 20
    python: ClassVar[str] = ""
    image: ClassVar[str] = ""
    hostile_chunk: ClassVar[int] = len(HOSTILE_VALUES)

    # -- what a subclass defines

    @pytest.fixture
    def scheduler(self) -> Scheduler[Any]:
        """Return the scheduler under test."""
        raise NotImplementedError("a conformance class has to define the fixture `scheduler`")

    @pytest.fixture
    def cfg(self) -> dict[str, Any]:
        """Return the options of each submission."""
        return {}

    def resource(self) -> Resource:
        """Return the resource of each role."""
        return Resource(cpu=1, gpu=0, memMB=64)

    @pytest.fixture
    def store_secret(self) -> Iterator[Callable[[str, str, str], object]]:
        """Yield a function that stores a secret where the scheduler under test finds it.

        The arguments of the function are the secret's name, a key and the value. The default writes
        the value to the file ``$TORCHX_HOME/secrets/NAME/KEY``, and deletes it after the test.
        """
        folders = []

        def store(name: str, key: str, value: str) -> None:
            folders.append(Path(home_path("secrets", name)))
            folders[-1].parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folders[-1].mkdir(mode=0o700)
            (folders[-1] / key).touch(mode=0o600)
            (folders[-1] / key).write_text(value)

        yield store
        for folder in folders:
            shutil.rmtree(folder)

    # -- helpers of the tests

    @pytest.fixture
    def runner(self, scheduler: Scheduler[Any]) -> Iterator[Runner]:
        """Yield a runner with the scheduler, and delete the runner's apps after the test."""
        with Runner("conformance", {self.scheduler_name: lambda name, **_: scheduler}) as runner:
            yield runner
            for handle in list(runner._apps):
                runner.delete(handle)

    @pytest.fixture(autouse=True)
    def _patience(self, request: pytest.FixtureRequest) -> None:
        self.patience: float = request.config.getoption("--torchx-timeout") or self.timeout

    def sh(self, script: str, name: str = "main", **fields: Any) -> Role:
        """Return a role that runs a shell script."""
        fields.setdefault("args", ["-c", script])
        fields.setdefault("image", self.image)
        fields.setdefault("resource", self.resource())
        return Role(name=name, entrypoint="sh", **fields)

    def submit(self, runner: Runner, cfg: dict[str, Any], *roles: Role, name: str = "conf") -> str:
        """Submit an app with these roles and return its handle."""
        app = AppDef(name, roles=list(roles))
        return str(runner.run(app, self.scheduler_name, cfg))

    def finish(self, runner: Runner, handle: str) -> AppStatus:
        """Wait for the end of an app and return its last status."""
        status = runner.wait(handle, wait_interval=self.poll_interval, timeout=self.patience)
        assert status is not None, f"{handle} is unknown after it was submitted"
        return status

    def until_started(self, runner: Runner, handle: str) -> None:
        """Wait until an app has started."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            status = runner.status(handle)
            assert status is not None
            if is_started(status.state):
                return
            time.sleep(0.1)
        pytest.fail(f"{handle} has not started after {self.patience} seconds")

    def lines(self, runner: Runner, handle: str, role: str = "main", **kw: Any) -> list[str]:
        """Return the log lines of a replica."""
        return list(runner.log_lines(handle, role, **kw))

    def complete_lines(
        self, runner: Runner, handle: str, last: str, role: str = "main", **kw: Any
    ) -> list[str]:
        """Return the log lines of an ended app once ``last`` is among them.

        A separate log service may receive the last lines later than the scheduler reports the end.
        """
        deadline = time.monotonic() + self.patience
        while True:
            lines = self.lines(runner, handle, role, **kw)
            if last in (line.rstrip("\n") for line in lines) or time.monotonic() > deadline:
                return lines
            time.sleep(0.2)

    # -- dry run

    def test_dry_run_changes_nothing(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        app = AppDef("conf", [self.sh("exit 0", env={"A": macros.app_id})], {"k": "v"})
        before = copy.deepcopy(app)
        given = copy.deepcopy(cfg)
        assert str(runner.dryrun(app, self.scheduler_name, cfg))
        # The runner passes a copy of the app to the scheduler; other callers may pass the original.
        assert str(scheduler.submit_dryrun(app, cfg))
        assert app == before
        assert cfg == given

    def test_dry_run_contacts_nobody_and_leaves_nothing(
        self, runner: Runner, cfg: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = tmp_path / "working directory"
        here.mkdir()
        monkeypatch.chdir(here)
        roles = [self.sh("exit 0", "one", num_replicas=2, max_retries=1)]
        if "several_roles" not in self.unsupported:
            roles.append(self.sh("exit 0", "two", env={"A": macros.app_id}))
        with offline(here) as watch:
            info = runner.dryrun(AppDef("conf", roles), self.scheduler_name, cfg)
            assert str(info)
        watch.check()

    def test_dry_run_submits_nothing(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("list")
        before = {item.app_id for item in runner.list(self.scheduler_name, cfg)}
        runner.dryrun(AppDef("conf", [self.sh("exit 0")]), self.scheduler_name, cfg)
        assert {item.app_id for item in runner.list(self.scheduler_name, cfg)} <= before

    def test_an_unknown_option_is_refused(self, runner: Runner, cfg: dict[str, Any]) -> None:
        app = AppDef("conf", [self.sh("exit 0")])
        with pytest.raises(TorchXError, match="no_such_option"):
            runner.dryrun(app, self.scheduler_name, {**cfg, "no_such_option": "1"})

    # -- running a job

    def test_success(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("exit 0"))
        assert parse_app_handle(handle).scheduler_backend == self.scheduler_name
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        # a terminal state does not change
        status = runner.status(handle)
        assert status is not None
        assert status.state == AppState.SUCCEEDED

    def test_failure_and_its_code(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("exit 3"))
        status = self.finish(runner, handle)
        assert status.state == AppState.FAILED
        self.needs("exit_code")
        replicas = [r for role in status.roles for r in role.replicas]
        assert [r.exit_code for r in replicas] == [3]

    def test_program_that_does_not_exist(self, runner: Runner, cfg: dict[str, Any]) -> None:
        role = self.sh("", args=[])
        role.entrypoint = "/no/such/program"
        app = AppDef("conf", [role])
        refusal = ""
        handle = ""
        try:
            handle = str(runner.run(app, self.scheduler_name, cfg))
        except Exception as e:  # any exception that names the program is fine
            refusal = str(e)
        if handle:
            assert self.finish(runner, handle).state == AppState.FAILED
        else:
            assert "/no/such/program" in refusal

    def test_running_is_reported(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("sleep 300"))
        self.until_started(runner, handle)
        status = runner.status(handle)
        assert status is not None
        assert status.state == AppState.RUNNING

    def test_replicas(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = f"echo replica {macros.replica_id}"
        handle = self.submit(runner, cfg, self.sh(script, num_replicas=3))
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        for k in range(3):
            last = f"replica {k}"
            assert self.complete_lines(runner, handle, last, k=k)[-1].rstrip("\n") == last

    def test_one_failed_replica_fails_the_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = f"exit {macros.replica_id}"
        handle = self.submit(runner, cfg, self.sh(script, num_replicas=2))
        assert self.finish(runner, handle).state == AppState.FAILED

    def test_several_roles(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("several_roles")
        handle = self.submit(
            runner,
            cfg,
            self.sh("echo of first", "first"),
            self.sh("echo of second", "second", num_replicas=2),
        )
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        assert "of first\n" in self.complete_lines(runner, handle, "of first", "first")
        assert "of second\n" in self.complete_lines(runner, handle, "of second", "second", k=1)

    def test_several_apps_at_once(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handles = [self.submit(runner, cfg, self.sh(f"exit {i % 2}")) for i in range(4)]
        assert len(set(handles)) == 4
        states = [self.finish(runner, handle).state for handle in handles]
        assert states == [AppState.SUCCEEDED, AppState.FAILED] * 2

    def test_apps_from_several_threads(self, runner: Runner, cfg: dict[str, Any]) -> None:
        def run(i: int) -> tuple[str, list[str]]:
            handle = self.submit(runner, cfg, self.sh(f"echo job {i}"))
            self.finish(runner, handle)
            return handle, self.complete_lines(runner, handle, f"job {i}")

        with ThreadPoolExecutor(4) as pool:
            ended = list(pool.map(run, range(4)))
        assert len({handle for handle, _ in ended}) == 4
        assert [lines for _, lines in ended] == [[f"job {i}\n"] for i in range(4)]

    @pytest.mark.parametrize("policy", [RetryPolicy.APPLICATION])
    def test_retries(self, runner: Runner, cfg: dict[str, Any], policy: RetryPolicy) -> None:
        self.needs("retries")
        role = self.sh("echo attempt; sleep 1; exit 3", max_retries=2, retry_policy=policy)
        handle = self.submit(runner, cfg, role)
        self.until_started(runner, handle)
        # A back end may delete the log of an earlier attempt; a follower has read it by then.
        lines = [] if self.lacks("tail") else self.lines(runner, handle, should_tail=True)
        status = self.finish(runner, handle)
        assert status.state == AppState.FAILED
        if not self.lacks("tail"):
            assert lines == ["attempt\n"] * 3
        self.needs("restart_count")
        restarts = [r.restarts for s in status.roles for r in s.replicas]
        assert max([status.num_restarts, *restarts]) == 2

    def test_no_retry_of_what_succeeds(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("retries")
        handle = self.submit(runner, cfg, self.sh("echo attempt", max_retries=2))
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        lines = self.complete_lines(runner, handle, "attempt")
        assert [line.rstrip("\n") for line in lines].count("attempt") == 1

    # -- ending a job

    def test_cancel_a_running_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("sleep 300"))
        self.until_started(runner, handle)
        runner.cancel(handle)
        status = self.finish(runner, handle)
        assert status.state in (AppState.CANCELLED, AppState.FAILED)
        self.needs("cancel_state")
        assert status.state == AppState.CANCELLED

    def test_cancel_a_pending_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("cancel_pending")
        assert self.pending_cfg is not None, "give `pending_cfg`, or declare `cancel_pending`"
        handle = self.submit(runner, {**cfg, **self.pending_cfg}, self.sh("sleep 300"))
        status = runner.status(handle)
        assert status is not None
        assert status.state in (AppState.SUBMITTED, AppState.PENDING)
        runner.cancel(handle)
        status = self.finish(runner, handle)
        assert status.state in (AppState.CANCELLED, AppState.FAILED)
        self.needs("cancel_state")
        assert status.state == AppState.CANCELLED

    def test_cancel_an_ended_app_changes_nothing(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("exit 0"))
        self.finish(runner, handle)
        runner.cancel(handle)
        status = runner.status(handle)
        assert status is not None
        assert status.state == AppState.SUCCEEDED

    def test_delete(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("delete")
        handle = self.submit(runner, cfg, self.sh("sleep 300"))
        self.until_started(runner, handle)
        runner.delete(handle)
        deadline = time.monotonic() + self.patience
        while runner.status(handle) is not None:
            assert time.monotonic() < deadline, "a deleted app is still there"
            time.sleep(0.2)
        self.needs("list")
        assert handle not in [a.app_handle for a in runner.list(self.scheduler_name, cfg)]

    def test_closing_twice(self, scheduler: Scheduler[Any]) -> None:
        scheduler.close()
        scheduler.close()

    # -- optional methods of the contract

    def test_optional_methods_have_the_signature_of_the_contract(
        self, scheduler: Scheduler[Any]
    ) -> None:
        assert list(signature_problems(type(scheduler))) == []

    def test_kill_ends_a_running_app(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        handle = self.submit(runner, cfg, self.sh("trap '' TERM; echo ready; sleep 300"))
        self.until_started(runner, handle)
        scheduler.kill(parse_app_handle(handle).app_id)
        status = self.finish(runner, handle)
        assert status.state in (AppState.CANCELLED, AppState.FAILED)

    @pytest.mark.parametrize("app_id", UNKNOWN_IDS)
    def test_kill_of_a_missing_app_is_not_an_error(
        self, scheduler: Scheduler[Any], app_id: str
    ) -> None:
        scheduler.kill(app_id)

    def test_submit_many_yields_an_id_for_each_request(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        infos = []
        for index in range(3):
            app = AppDef("conf", [self.sh(f"echo job {index}; exit {index % 2}")])
            infos.append(runner.dryrun(app, self.scheduler_name, cfg))
        app_ids = list(scheduler.submit_many(infos))
        handles = [f"{self.scheduler_name}://conformance/{app_id}" for app_id in app_ids]
        try:
            assert len(set(app_ids)) == 3
            states = [self.finish(runner, handle).state for handle in handles]
            assert states == [AppState.SUCCEEDED, AppState.FAILED, AppState.SUCCEEDED]
            for index, handle in enumerate(handles):
                assert f"job {index}\n" in self.complete_lines(runner, handle, f"job {index}")
        finally:
            for handle in handles:
                runner.delete(handle)

    def test_wait_returns_within_its_timeout(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        handle = self.submit(runner, cfg, self.sh("sleep 300"))
        self.until_started(runner, handle)
        begin = time.monotonic()
        is_watched = scheduler.wait(parse_app_handle(handle).app_id, 1.0)
        assert isinstance(is_watched, bool)
        assert time.monotonic() - begin < self.patience

    def test_lives_in_client_is_a_plain_answer(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        info = runner.dryrun(AppDef("conf", [self.sh("exit 0")]), self.scheduler_name, cfg)
        assert isinstance(scheduler.lives_in_client(info.cfg), bool)

    def test_logs_of_several_replicas_arrive_whole_and_in_order(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        script = f"for i in 1 2 3; do echo {macros.replica_id} line $i; done"
        handle = self.submit(runner, cfg, self.sh(script, num_replicas=3))
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        replicas = [("main", k) for k in range(3)]
        for k in range(3):
            self.complete_lines(runner, handle, f"{k} line 3", k=k)
        app_id = parse_app_handle(handle).app_id
        for should_tail in (False, *([] if self.lacks("tail") else [True])):
            lines: dict[tuple[str, int], list[str]] = {replica: [] for replica in replicas}
            for replica, block in scheduler.log_blocks(app_id, replicas, should_tail=should_tail):
                assert not isinstance(block, Exception), block
                lines[replica] += block
            assert lines == {("main", k): [f"{k} line {i}\n" for i in (1, 2, 3)] for k in range(3)}

    def test_last_lines_are_the_end_of_the_log(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = "i=0; while [ $i -lt 40 ]; do i=$((i + 1)); echo line $i; done"
        handle = self.submit(runner, cfg, self.sh(script))
        self.finish(runner, handle)
        self.complete_lines(runner, handle, "line 40")
        lines = [f"line {i}\n" for i in range(1, 41)]
        for should_tail in (False, *([] if self.lacks("tail") else [True])):
            for last, regex in ((0, None), (1, None), (3, None), (100, None), (2, "5")):
                found: list[str] = []
                for _, block in runner.log_blocks(
                    handle, [("main", 0)], regex, should_tail=should_tail, last=last
                ):
                    assert not isinstance(block, Exception), block
                    found += block
                matching = [line for line in lines if regex is None or regex in line]
                assert found == matching[max(0, len(matching) - last) :], (last, regex)

    def test_the_log_of_a_missing_replica_does_not_end_the_others(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        handle = self.submit(runner, cfg, self.sh("echo line"))
        self.finish(runner, handle)
        self.complete_lines(runner, handle, "line")
        replicas = [("main", 7), ("main", 0)]
        lines: list[str] = []
        for replica, block in scheduler.log_blocks(parse_app_handle(handle).app_id, replicas):
            if not isinstance(block, Exception):
                assert replica == ("main", 0)
                lines += block
        assert lines == ["line\n"]

    # -- listing and describing jobs

    def test_list(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("list")
        handle = self.submit(runner, cfg, self.sh("exit 0"))
        self.finish(runner, handle)
        found = [a for a in runner.list(self.scheduler_name, cfg) if a.app_handle == handle]
        assert [a.state for a in found] == [AppState.SUCCEEDED]

    def test_describe(self, runner: Runner, cfg: dict[str, Any], scheduler: Scheduler[Any]) -> None:
        self.needs("describe_roles")
        role = self.sh("exit 0", "worker", num_replicas=2)
        handle = self.submit(runner, cfg, role)
        self.finish(runner, handle)
        found = scheduler.describe(parse_app_handle(handle).app_id)
        assert found is not None
        assert [(r.name, r.num_replicas) for r in found.roles] == [("worker", 2)]
        statuses = [(s.role, sorted(r.id for r in s.replicas)) for s in found.roles_statuses]
        assert statuses == [("worker", [0, 1])]

    @pytest.mark.parametrize("app_id", [*UNKNOWN_IDS, ""])
    def test_an_unknown_app(self, runner: Runner, scheduler: Scheduler[Any], app_id: str) -> None:
        assert scheduler.describe(app_id) is None
        assert not scheduler.exists(app_id)
        scheduler.cancel(app_id)
        scheduler.delete(app_id)
        if app_id and "\n" not in app_id:  # a handle cannot contain a newline
            handle = f"{self.scheduler_name}://conformance/{app_id}"
            assert runner.status(handle) is None
            assert runner.wait(handle) is None
            with pytest.raises(UnknownAppException):
                list(runner.log_lines(handle, "main"))

    # -- logs

    def test_log_of_both_streams(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("echo out; echo err >&2; echo end"))
        self.finish(runner, handle)
        lines = self.complete_lines(runner, handle, "end", streams=Stream.COMBINED)
        assert sorted(lines) == ["end\n", "err\n", "out\n"]
        assert lines.index("out\n") < lines.index("end\n")

    def test_log_of_one_stream(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("streams")
        handle = self.submit(runner, cfg, self.sh("echo out; echo err >&2"))
        self.finish(runner, handle)
        out = self.complete_lines(runner, handle, "out", streams=Stream.STDOUT)
        err = self.complete_lines(runner, handle, "err", streams=Stream.STDERR)
        assert (out, err) == (["out\n"], ["err\n"])

    def test_log_by_regular_expression(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("regex")
        handle = self.submit(runner, cfg, self.sh("for i in 1 2 3 12; do echo line $i; done"))
        self.finish(runner, handle)
        self.complete_lines(runner, handle, "line 12")
        assert self.lines(runner, handle, regex=r"1\d?$") == ["line 1\n", "line 12\n"]

    def test_log_of_a_time(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("since_until")
        script = "date +%s; echo early; sleep 4; date +%s; echo late"
        handle = self.submit(runner, cfg, self.sh(script))
        self.finish(runner, handle)
        everything = self.complete_lines(runner, handle, "late")
        stamps = [int(line) for line in everything if line.strip().isdigit()]
        assert len(stamps) == 2, everything

        def words(zone: timezone | None, **limits: float) -> list[str]:
            times: Any = {k: datetime.fromtimestamp(t, zone) for k, t in limits.items()}
            lines = self.lines(runner, handle, **times)
            return [line.strip() for line in lines if not line.strip().isdigit()]

        between = sum(stamps) / 2
        for zone in (None, timezone.utc):  # a time without a zone is local time
            assert words(zone, since=between) == ["late"]
            assert words(zone, until=between) == ["early"]
            assert words(zone, since=stamps[0] - 60, until=stamps[1] + 60) == ["early", "late"]
            assert words(zone, since=stamps[0] - 60, until=between) == ["early"]
            assert words(zone, since=stamps[1] + 60) == []
            assert words(zone, until=stamps[0] - 60) == []

    def test_log_is_followed_to_the_end(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("tail")
        script = "for i in 1 2 3 4 5; do echo line $i; sleep 0.3; done"
        handle = self.submit(runner, cfg, self.sh(script))
        self.until_started(runner, handle)
        lines = self.lines(runner, handle, should_tail=True)
        assert lines == [f"line {i}\n" for i in range(1, 6)]
        # A call that follows the log of an ended replica returns at once.
        assert self.lines(runner, handle, should_tail=True) == lines

    def test_lines_come_while_the_job_runs(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("tail")
        # Without exec, the shell writes to stderr that its child was killed.
        handle = self.submit(runner, cfg, self.sh(f"echo first; exec sleep {self.long_job}"))
        self.until_started(runner, handle)
        lines = iter(runner.log_lines(handle, "main", should_tail=True))
        assert next(lines) == "first\n"
        status = runner.status(handle)
        assert status is not None
        assert status.state == AppState.RUNNING
        runner.cancel(handle)
        assert list(lines) == []

    def test_log_followed_by_regular_expression(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("tail")
        self.needs("regex")
        handle = self.submit(runner, cfg, self.sh("for i in 1 2 3; do echo line $i; done"))
        self.until_started(runner, handle)
        assert self.lines(runner, handle, should_tail=True, regex="[13]$") == [
            "line 1\n",
            "line 3\n",
        ]

    def test_log_of_a_job_that_says_nothing(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("exit 0"))
        self.finish(runner, handle)
        assert self.lines(runner, handle) == []

    @pytest.mark.parametrize(("role", "k"), [("no-such-role", 0), ("main", 7)])
    def test_log_of_no_such_replica(
        self, runner: Runner, cfg: dict[str, Any], role: str, k: int
    ) -> None:
        handle = self.submit(runner, cfg, self.sh("echo end"))
        self.finish(runner, handle)
        try:
            lines = self.lines(runner, handle, role, k=k)
        except (TorchXError, ValueError, LookupError):
            return  # an error is correct, as is an empty log
        assert lines == []

    def test_odd_lines_stay_whole(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = (
            "echo; printf 'a\\tb\\n'; printf 'x\\342\\200\\250y\\n'; printf ' indented \\n';"
            " head -c 60000 /dev/zero | tr '\\0' z; echo; echo end"
        )
        handle = self.submit(runner, cfg, self.sh(script))
        self.finish(runner, handle)
        lines = self.complete_lines(runner, handle, "end")
        blank = [] if self.lacks("blank_lines") else ["\n"]
        assert [line for line in lines if line[0] != "z"] == [
            *blank,
            "a\tb\n",
            "x\u2028y\n",
            " indented \n",
            "end\n",
        ]
        assert [len(line) for line in lines if line[0] == "z"] == [60001]

    def test_no_log_line_is_cut_or_lost(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = "i=0; while [ $i -lt 3000 ]; do echo line $i of many; i=$((i+1)); done"
        handle = self.submit(runner, cfg, self.sh(script))
        self.finish(runner, handle)
        lines = self.complete_lines(runner, handle, "line 2999 of many")
        # Compare only the first wrong lines: pytest takes minutes to compare two long lists.
        expected = (f"line {i} of many\n" for i in range(3000))
        wrong = [pair for pair in zip_longest(lines, expected) if pair[0] != pair[1]]
        assert wrong[:3] == [], f"of 3000 lines {len(wrong)} are cut, lost or out of order"

    def test_last_line_without_newline(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("unterminated_line")
        handle = self.submit(runner, cfg, self.sh("echo first; printf last"))
        self.finish(runner, handle)
        lines = self.complete_lines(runner, handle, "last")
        assert [line.rstrip("\n") for line in lines] == ["first", "last"]

    def test_output_that_is_not_utf8(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("undecodable_output")
        handle = self.submit(runner, cfg, self.sh(r"printf 'a\377b\n'; echo end"))
        self.finish(runner, handle)
        lines = self.complete_lines(runner, handle, "end")
        assert len(lines) == 2
        assert lines[0].startswith("a")
        assert lines[0].endswith("b\n")

    # -- arguments and environment of the process

    def test_macros(self, runner: Runner, cfg: dict[str, Any]) -> None:
        role = self.sh(
            'echo "$1 $2 $APP"; echo end',
            args=[
                "-c",
                'echo "$1 $2 $APP"; echo end',
                "sh",
                macros.app_id,
                macros.replica_id,
            ],
            env={"APP": f"<{macros.app_id}>"},
        )
        handle = self.submit(runner, cfg, role)
        self.finish(runner, handle)
        app_id, replica, again = self.complete_lines(runner, handle, "end")[0].split()
        assert replica == "0"
        assert again == f"<{app_id}>"
        # The id in the handle may have a prefix, such as a namespace or a queue, that the macro's
        # value lacks.
        assert parse_app_handle(handle).app_id.endswith(app_id)

    def test_job_knows_its_handle(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh('echo "$TORCHX_JOB_ID"; echo end'))
        self.finish(runner, handle)
        known = self.complete_lines(runner, handle, "end")[0].strip()
        assert known.startswith(f"{self.scheduler_name}://conformance/")
        assert handle.endswith(known.rpartition("/")[2])

    def test_rank0_host(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("rank0")
        # The argument is a template, so dollar signs are doubled: the shell reads `$$name`.
        script = f'name={macros.rank0_env}; eval "echo host \\"\\$$$$name\\"."; echo end'
        handle = self.submit(runner, cfg, self.sh(script, num_replicas=2))
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        first, second = (
            next(
                line
                for line in self.complete_lines(runner, handle, "end", k=k)
                if line.startswith("host ")
            )
            for k in range(2)
        )
        # Replica 0 may leave the variable empty; the program then uses localhost.
        assert second != "host .\n"
        assert first in (second, "host localhost.\n", "host .\n")

    def test_hostile_arguments(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("hostile_arguments")
        values = self._carried()
        for printed_by in self._dumpers():
            arrived: list[str] = []
            for chunk in self._chunks(values):
                texts = [value.text for value in chunk]
                arrived += self._dump(runner, cfg, self._dumper(printed_by, texts)).args
            assert len(arrived) == len(values)
            wrong = [v.name for v, got in zip(values, arrived, strict=True) if v.text != got]
            assert not wrong, f"{len(wrong)} of {len(values)} arguments arrived changed: {wrong}"

    def test_hostile_environment(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("hostile_environment")
        values = {f"HOSTILE_{i:03}": value for i, value in enumerate(self._carried())}
        for printed_by in self._dumpers():
            arrived: dict[str, str] = {}
            for chunk in self._chunks(list(values)):
                env = {name: values[name].text for name in chunk}
                arrived.update(self._dump(runner, cfg, self._dumper(printed_by, [], env)).env)
            wrong = [v.name for name, v in values.items() if arrived.get(name) != v.text]
            assert not wrong, f"{len(wrong)} of {len(values)} variables arrived changed: {wrong}"

    def test_what_cannot_be_carried_is_refused(self, runner: Runner, cfg: dict[str, Any]) -> None:
        for value in HOSTILE_VALUES:
            reason = self._why_not(value)
            if reason is None:
                continue
            self.declare(f"value '{value.name:.40}'", reason)
            for role in (self.sh("", args=["x", value.text]), self.sh("", env={"A": value.text})):
                with pytest.raises(TorchXError):
                    runner.dryrun(AppDef("conf", [role]), self.scheduler_name, cfg)

    def test_bytes_that_are_not_utf8(self, runner: Runner, cfg: dict[str, Any]) -> None:
        texts = [value.text for value in NOT_UTF8]
        env = {f"HOSTILE_{i:03}": text for i, text in enumerate(texts)}
        role = self._dumper("sh", texts, env)
        if self.lacks("not_utf8"):
            # The scheduler must refuse a value that cannot reach the job unchanged.
            for part in (self._dumper("sh", texts), self._dumper("sh", [], env)):
                with pytest.raises(TorchXError):
                    runner.dryrun(AppDef("conf", [part]), self.scheduler_name, cfg)
            return
        dump = self._dump(runner, cfg, role)
        assert dump.args == texts
        assert {name: dump.env.get(name) for name in env} == env

    # -- secrets

    def test_a_secret_reaches_the_program_and_nothing_shows_it(
        self,
        runner: Runner,
        scheduler: Scheduler[Any],
        cfg: dict[str, Any],
        store_secret: Callable[[str, str, str], object],
    ) -> None:
        name = f"torchx-conformance-{os.urandom(4).hex()}"
        env = {"CONF_PASSWORD": secret(name, "key")}
        role = self.sh('printf %s "$CONF_PASSWORD" | base64', env=env)
        if not scheduler.resolves_secrets:
            # The program must not receive the reference in place of the secret.
            with pytest.raises(TorchXError, match=r"env\['CONF_PASSWORD'\]"):
                runner.dryrun(AppDef("conf", [role]), self.scheduler_name, cfg)
            return
        self.needs("secrets")
        value = "it's $5 and s3cr3t"
        store_secret(name, "key", value)
        info = runner.dryrun(AppDef("conf", [role]), self.scheduler_name, cfg)
        handle = str(runner.schedule(info))
        status = self.finish(runner, handle)
        assert status.state == AppState.SUCCEEDED
        arrived = base64.b64encode(value.encode()).decode()
        assert arrived + "\n" in self.complete_lines(runner, handle, arrived)
        description = scheduler.describe(parse_app_handle(handle).app_id)
        assert description is not None
        known = [role.env[key] for role in description.roles for key in env if key in role.env]
        assert set(known) <= set(env.values())
        shown = (info, info.request, status, description, runner.list(self.scheduler_name, cfg))
        assert "s3cr3t" not in "".join(f"{item}{item!r}" for item in shown)

    def test_an_app_without_its_secret_does_not_run(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        if scheduler.resolves_secrets:
            self.needs("secrets")
        name = f"torchx-conformance-{os.urandom(4).hex()}"
        role = self.sh("echo ran", env={"CONF_PASSWORD": secret(name, "key")})
        handle = refusal = ""
        try:
            handle = self.submit(runner, cfg, role)
        except TorchXError as e:
            refusal = str(e)
        if not handle:
            assert name in refusal
            return
        deadline = time.monotonic() + self.patience
        while True:
            status = runner.status(handle)
            assert status is not None
            reasons = [r.reason for one in status.roles for r in one.replicas]
            if status.state == AppState.FAILED or any(name in reason for reason in reasons):
                break
            assert not is_terminal(status.state)
            assert time.monotonic() < deadline, status
            time.sleep(self.poll_interval)
        if status.state == AppState.FAILED:
            assert "ran\n" not in self.lines(runner, handle)

    def _why_not(self, value: HostileValue) -> str | None:
        reasons = (why for name, why in self.cannot_carry.items() if value.name.startswith(name))
        return next(reasons, None)

    def _carried(self) -> list[HostileValue]:
        return [value for value in HOSTILE_VALUES if self._why_not(value) is None]

    def _chunks(self, values: list[Any]) -> Iterator[list[Any]]:
        for start in range(0, len(values), self.hostile_chunk):
            yield values[start : start + self.hostile_chunk]

    def _dumpers(self) -> list[str]:
        return ["sh", self.python] if self.python else ["sh"]

    def _dumper(self, program: str, values: list[str], env: dict[str, str] | None = None) -> Role:
        args = dump_args(values) if program == "sh" else python_dump_args(values)
        role = self.sh("", args=args, env=env or {})
        role.entrypoint = program
        return role

    def _dump(self, runner: Runner, cfg: dict[str, Any], role: Role) -> Dump:
        handle = self.submit(runner, cfg, role)
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        return parse_dump(self.complete_lines(runner, handle, "ENV-END"))

    @pytest.mark.parametrize("name", ["with-dash", "with_underscore", "Upper", "x" * 60])
    def test_odd_names(self, runner: Runner, cfg: dict[str, Any], name: str) -> None:
        self.needs("odd_names")
        handle = self.submit(runner, cfg, self.sh("echo end", name), name=name)
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        assert "end\n" in self.complete_lines(runner, handle, "end", name)

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_any_name_is_taken_or_refused(
        self, runner: Runner, cfg: dict[str, Any], name: str
    ) -> None:
        """Check that a name is either used, or refused before anything is submitted."""
        taken = []
        for app in (
            AppDef(name, [self.sh("echo end")]),
            AppDef("conf", [self.sh("echo end", name)]),
        ):
            try:
                runner.dryrun(app, self.scheduler_name, cfg)
            except TorchXError:
                continue
            taken.append((app, str(runner.run(app, self.scheduler_name, cfg))))
        for app, handle in taken:
            assert self.finish(runner, handle).state == AppState.SUCCEEDED
            lines = self.complete_lines(runner, handle, "end", app.roles[0].name)
            assert "end\n" in lines
