"""The conformance suite of schedulers.

::

    class TestAcme(SchedulerConformance):
        scheduler_name = "acme"
        unsupported = {"secrets": "the test queue has no secrets"}

        @pytest.fixture
        def scheduler(self):
            return create_scheduler("conformance")

        @pytest.fixture
        def cfg(self):
            return {"queue": "test"}

Each test submits real jobs through a :class:`~torchx_runner.Runner`. The jobs need ``sh``, ``date``
and ``base64`` in their image. The scheduler's record ``features`` denies the features that it lacks
on every site, and ``unsupported`` names those that the site of the tests lacks, with the reasons.
The tests of these features are skipped, and listed at the end of the run. One test checks that
calls for which the record denies the feature raise an error. On slow machines,
``pytest --torchx-timeout=600`` raises the time limit.
"""

from __future__ import annotations

import base64
import copy
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from torchx_runner import Runner
from torchx_specs import (
    AppDef,
    AppState,
    AppStatus,
    RetryPolicy,
    TorchXError,
    UnknownAppException,
    macros,
    parse_app_handle,
)
from torchx_specs.errors import NotSupportedError, RequestError
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.schedulers import ListAppResponse, Scheduler
from torchx_specs.schedulers.log_items import PartialLine
from torchx_specs.schedulers.logs import LogQuery
from torchx_specs.schedulers.older import features_of
from torchx_testing.offline import offline
from torchx_testing.scheduler_cases.fixtures import has_name
from torchx_testing.scheduler_cases.logs import LogCases
from torchx_testing.scheduler_cases.secrets import SecretCases
from torchx_testing.scheduler_cases.sessions import SessionCases
from torchx_testing.scheduler_cases.signatures import signature_problems
from torchx_testing.scheduler_cases.values import ValueCases

#: For each feature whose use is an error if the record denies the feature: a use.
_CALLS: Mapping[str, Callable[[Scheduler[Any]], object]] = {
    "logs": lambda s: list(s.app_logs.read("app", "main", 0, LogQuery())),
    "exec": lambda s: s.app_sessions.open("app", "main", 0, ["true"]),
    "ports": lambda s: s.app_sessions.connect("app", "main", 0, 80),
    "archives": lambda s: list(s.app_sessions.read_archive("app", "main", 0, "file")),
    "array_limit": lambda s: list(s.app_arrays.submit([], 1)),
    "dependencies": lambda s: s.with_dependency({}, "app", "any"),
    "gpus": lambda s: s.gpus({}),
}

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

# How much the clock of a service may differ from the clock of this machine.
_CLOCKS = timedelta(minutes=5)


class SchedulerConformance(LogCases, ValueCases, SecretCases, SessionCases):
    """The conformance tests of a scheduler.

    A subclass overrides the fixtures and class variables of
    :class:`.scheduler_cases.fixtures.SchedulerFixtures`.
    """

    # The following tests make dry runs.

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

    @pytest.mark.gate
    def test_dry_run_contacts_nobody_and_leaves_nothing(
        self, runner: Runner, cfg: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here = tmp_path / "working directory"
        here.mkdir()
        monkeypatch.chdir(here)
        roles = [self.sh("exit 0", "one", num_replicas=2, max_retries=1)]
        if "several_roles" not in self.declared():
            roles.append(self.sh("exit 0", "two", env={"A": macros.app_id}))
        with offline(here) as watch:
            info = runner.dryrun(AppDef("conf", roles), self.scheduler_name, cfg)
            assert str(info)
        watch.check()

    @pytest.mark.gate
    def test_an_unknown_option_is_refused(self, runner: Runner, cfg: dict[str, Any]) -> None:
        app = AppDef("conf", [self.sh("exit 0")])
        with pytest.raises(TorchXError, match="no_such_option"):
            runner.dryrun(app, self.scheduler_name, {**cfg, "no_such_option": "1"})

    # The following tests run jobs.

    @pytest.mark.gate
    def test_success(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.submit(runner, cfg, self.sh("exit 0"))
        assert parse_app_handle(handle).scheduler_backend == self.scheduler_name
        assert self.finish(runner, handle).state == AppState.SUCCEEDED
        # a terminal state does not change
        assert self.state(runner, handle) == AppState.SUCCEEDED

    @pytest.mark.gate
    def test_failure_and_its_code(self, runner: Runner, cfg: dict[str, Any]) -> None:
        _, status = self.ended(runner, cfg, self.sh("exit 3"))
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

    def test_one_failed_replica_fails_the_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = f"exit {macros.replica_id}"
        handle = self.submit(runner, cfg, self.sh(script, num_replicas=2))
        assert self.finish(runner, handle).state == AppState.FAILED

    @pytest.mark.gate
    def test_several_roles(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("several_roles")
        handle = self.succeeded(
            runner,
            cfg,
            self.sh("echo of first", "first"),
            self.sh("echo of second", "second", num_replicas=2),
        )
        assert "of first\n" in self.complete_lines(runner, handle, "of first", "first")
        assert "of second\n" in self.complete_lines(runner, handle, "of second", "second", k=1)

    def test_apps_from_several_threads(self, runner: Runner, cfg: dict[str, Any]) -> None:
        def run(i: int) -> tuple[str, list[str]]:
            handle, _ = self.ended(runner, cfg, self.sh(f"echo job {i}"))
            return handle, self.complete_lines(runner, handle, f"job {i}")

        with ThreadPoolExecutor(4) as pool:
            ended = list(pool.map(run, range(4)))
        assert len({handle for handle, _ in ended}) == 4
        assert [lines for _, lines in ended] == [[f"job {i}\n"] for i in range(4)]

    @pytest.mark.gate
    @pytest.mark.parametrize("policy", [RetryPolicy.APPLICATION])
    def test_retries(self, runner: Runner, cfg: dict[str, Any], policy: RetryPolicy) -> None:
        self.needs("retries")
        role = self.sh("echo attempt; sleep 1; exit 3", max_retries=2, retry_policy=policy)
        handle = self.started(runner, cfg, role)
        lines: list[str] = []
        if not self.lacks("tail"):
            # A backend may delete the log of an earlier attempt; a follower has read it by then.
            query = LogQuery(should_tail=True, attempts=True)
            lines = self.logs(runner, handle, [("main", 0)], query)["main", 0]
        status = self.finish(runner, handle)
        assert status.state == AppState.FAILED
        if not self.lacks("tail"):
            marks = [] if self.lacks("attempt_marks") else [2, 3]
            assert [line for line in lines if line.startswith("---")] == [
                f"--- attempt {number} ---\n" for number in marks
            ]
            assert lines[:: 2 if marks else 1] == ["attempt\n"] * 3
        self.needs("restart_count")
        restarts = [r.restarts for s in status.roles for r in s.replicas]
        assert max([status.num_restarts, *restarts]) == 2

    def test_no_retry_of_what_succeeds(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("retries")
        handle = self.succeeded(runner, cfg, self.sh("echo attempt", max_retries=2))
        lines = self.complete_lines(runner, handle, "attempt")
        assert [line.rstrip("\n") for line in lines].count("attempt") == 1

    def test_setup_lines_run_before_the_program(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("setup")
        setup = ['CONF="it\'s $((40 + 2))"', "export CONF"]
        handle = self.succeeded(runner, {**cfg, "setup": setup}, self.sh('echo "$CONF"'))
        assert self.complete_lines(runner, handle, "it's 42") == ["it's 42\n"]

    # The following tests end jobs.

    def test_a_job_ends_at_its_time_limit(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("time_limit")
        if self.time_limit_cfg is None:
            pytest.skip("give `time_limit_cfg`")
        handle = self.submit(runner, {**cfg, **self.time_limit_cfg}, self.sh("exec sleep 300"))
        assert self.finish(runner, handle).state in (AppState.CANCELLED, AppState.FAILED)

    def test_a_role_that_ends_the_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("ends_app")
        server = self.sh("exec sleep 86400", "server")
        client = self.sh("exit 0", "client", metadata={ENDS_APP_KEY: True})
        try:
            handle = self.submit(runner, cfg, server, client)
        except RequestError as e:  # it may depend on an option, such as the API of Kubernetes
            pytest.skip(str(e))
        status = self.finish(runner, handle)
        assert status.state == AppState.SUCCEEDED
        states = {role.role: {r.state for r in role.replicas} for role in status.roles}
        assert states.get("server", set()) <= {AppState.SUCCEEDED}

    def test_exit_code_75_starts_another_attempt(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("requeue")
        script = (
            'echo "attempt $TORCHX_ATTEMPT ${TORCHX_RESTART_REASON-none}";'
            ' [ "$TORCHX_ATTEMPT" = 1 ] || exit 75'
        )
        handle, status = self.ended(runner, {**cfg, "requeue": True}, self.sh(script))
        assert status.state == AppState.SUCCEEDED
        assert [attempt.reason for attempt in status.attempts] == ["requested", "succeeded"]
        lines = self.complete_lines(runner, handle, "attempt 1 requested")
        assert [line for line in lines if line.startswith("attempt")] == [
            "attempt 0 none\n",
            "attempt 1 requested\n",
        ]

    @pytest.mark.gate
    def test_cancel_a_running_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle = self.started(runner, cfg, self.sh("sleep 300"))
        assert self.state(runner, handle) == AppState.RUNNING
        self.cancelled(runner, handle)

    def test_cancel_a_pending_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("cancel_pending")
        assert self.pending_cfg is not None, "give `pending_cfg`, or declare `cancel_pending`"
        handle = self.submit(runner, {**cfg, **self.pending_cfg}, self.sh("sleep 300"))
        assert self.state(runner, handle) in (AppState.SUBMITTED, AppState.PENDING)
        self.cancelled(runner, handle)

    def test_cancel_an_ended_app_changes_nothing(self, runner: Runner, cfg: dict[str, Any]) -> None:
        handle, _ = self.ended(runner, cfg, self.sh("exit 0"))
        runner.cancel(handle)
        assert self.state(runner, handle) == AppState.SUCCEEDED

    @pytest.mark.gate
    def test_delete(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("delete")
        handle = self.started(runner, cfg, self.sh("sleep 300"))
        runner.delete(handle)
        self.until(lambda: runner.status(handle) is None, "a deleted app is still there")
        self.needs("list")
        assert handle not in [a.app_handle for a in runner.list(self.scheduler_name, cfg)]

    def test_closing_twice(self, scheduler: Scheduler[Any]) -> None:
        scheduler.close()
        scheduler.close()

    # The following tests call optional methods of the contract.

    def test_optional_methods_have_the_signature_of_the_contract(
        self, scheduler: Scheduler[Any]
    ) -> None:
        tested = (scheduler, scheduler.app_logs, scheduler.app_sessions, scheduler.app_arrays)
        assert [p for one in tested for p in signature_problems(type(one))] == []

    def test_a_call_for_which_the_record_denies_the_feature_is_an_error(
        self, scheduler: Scheduler[Any]
    ) -> None:
        features = features_of(scheduler)
        for feature, call in _CALLS.items():
            if not getattr(features, feature):
                with pytest.raises(NotSupportedError):
                    call(scheduler)

    def test_the_native_request_of_an_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("native")
        handle, _ = self.ended(runner, cfg, self.sh("exit 0"))
        assert runner.describe_native(handle) is not None

    def test_gpus_of_the_cluster_are_counted(
        self, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        self.needs("gpus")
        found = scheduler.gpus(cfg)
        assert min(found.free, found.used, found.unavailable) >= 0

    def test_an_app_waits_for_another(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        self.needs("dependencies")
        first = self.started(runner, cfg, self.sh("sleep 300"))
        options = scheduler.with_dependency(cfg, parse_app_handle(first).app_id, "any")
        if options is None:
            pytest.skip("the backend cannot wait for this app")
        second = self.submit(runner, dict(options), self.sh("exit 0"))
        assert self.state(runner, second) in (AppState.SUBMITTED, AppState.PENDING)
        runner.cancel(first)
        assert self.finish(runner, second).state == AppState.SUCCEEDED

    def test_kill_ends_a_running_app(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        handle = self.started(runner, cfg, self.sh("trap '' TERM; echo ready; sleep 300"))
        scheduler.kill(parse_app_handle(handle).app_id)
        status = self.finish(runner, handle)
        assert status.state in (AppState.CANCELLED, AppState.FAILED)

    def test_submit_many_yields_an_id_for_each_request(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        infos = []
        for index in range(3):
            app = AppDef("conf", [self.sh(f"echo job {index}; exit {index % 2}")])
            infos.append(runner.dryrun(app, self.scheduler_name, cfg))
        app_ids = list(scheduler.app_arrays.submit(infos))
        handles = [f"{self.scheduler_name}://conformance/{app_id}" for app_id in app_ids]
        try:
            assert len(set(app_ids)) == 3
            states = [self.finish(runner, handle).state for handle in handles]
            assert states == [AppState.SUCCEEDED, AppState.FAILED, AppState.SUCCEEDED]
            for index, handle in enumerate(handles):
                assert f"job {index}\n" in self.complete_lines(runner, handle, f"job {index}")
        finally:
            scheduler.app_arrays.delete(app_ids)

    def test_no_more_apps_than_allowed_run_at_the_same_time(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        self.needs("array_limit")
        app = AppDef("conf", [self.sh("date +%s; sleep 2; date +%s; echo end")])
        infos = [runner.dryrun(app, self.scheduler_name, cfg) for _ in range(2)]
        spans = []
        for handle in list(runner.schedule_many(infos, max_parallel=1)):
            assert self.finish(runner, handle).state == AppState.SUCCEEDED
            spans.append([int(x) for x in self.complete_lines(runner, handle, "end")[:2]])
        (_, end), (begin, _) = sorted(spans)
        assert end <= begin

    def test_many_apps_are_cancelled_and_deleted(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        handles = [self.submit(runner, cfg, self.sh("sleep 300")) for _ in range(2)]
        app_ids = [*(parse_app_handle(handle).app_id for handle in handles), UNKNOWN_IDS[0]]
        scheduler.app_arrays.cancel(app_ids)
        for handle in handles:
            assert self.finish(runner, handle).state in (AppState.CANCELLED, AppState.FAILED)
        self.needs("delete")
        scheduler.app_arrays.delete(app_ids)
        self.until(lambda: not any(map(runner.status, handles)), "a deleted app is still there")

    def test_wait_returns_within_its_timeout(
        self, runner: Runner, scheduler: Scheduler[Any], cfg: dict[str, Any]
    ) -> None:
        handle = self.started(runner, cfg, self.sh("sleep 300"))
        begin = time.monotonic()
        is_watched = scheduler.wait(parse_app_handle(handle).app_id, 1.0)
        assert isinstance(is_watched, bool)
        assert time.monotonic() - begin < self.patience

    def test_logs_of_several_replicas_arrive_whole_and_in_order(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        script = f"for i in 1 2 3; do echo {macros.replica_id} line $i; done"
        handle = self.succeeded(runner, cfg, self.sh(script, num_replicas=3))
        replicas = [("main", k) for k in range(3)]
        for k in range(3):
            self.complete_lines(runner, handle, f"{k} line 3", k=k)
        for should_tail in (False, *([] if self.lacks("tail") else [True])):
            lines = self.logs(runner, handle, replicas, LogQuery(should_tail=should_tail))
            assert lines == {("main", k): [f"{k} line {i}\n" for i in (1, 2, 3)] for k in range(3)}

    def test_last_lines_are_the_end_of_the_log(self, runner: Runner, cfg: dict[str, Any]) -> None:
        script = "i=0; while [ $i -lt 40 ]; do i=$((i + 1)); echo line $i; done"
        handle, _ = self.ended(runner, cfg, self.sh(script))
        self.complete_lines(runner, handle, "line 40")
        lines = [f"line {i}\n" for i in range(1, 41)]
        for should_tail in (False, *([] if self.lacks("tail") else [True])):
            for last, regex in ((0, None), (1, None), (3, None), (100, None), (2, "5")):
                query = LogQuery(regex, should_tail=should_tail, last=last)
                found = self.logs(runner, handle, [("main", 0)], query)["main", 0]
                matching = [line for line in lines if regex is None or regex in line]
                assert found == matching[max(0, len(matching) - last) :], (last, regex)

    def test_text_without_a_newline_is_followed(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("tail", "partial")
        # A follower may lack the text that was written before it began, but not the next line's.
        script = "i=0; while :; do echo; printf $((i += 1))0%%; sleep 3; done"
        handle = self.started(runner, cfg, self.sh(script))
        query = LogQuery(should_tail=True, partial=True)
        states: list[AppState] = []
        with self.cancels_in_time(runner, handle):
            for _, block in runner.log_blocks(handle, [("main", 0)], query):
                assert not isinstance(block, Exception), block
                for item in block:
                    if isinstance(item, PartialLine) and item.endswith("%") and not states:
                        states.append(self.state(runner, handle))
                        runner.cancel(handle)
        assert states == [AppState.RUNNING]

    def test_the_log_of_a_missing_replica_does_not_end_the_others(
        self, runner: Runner, cfg: dict[str, Any]
    ) -> None:
        handle, _ = self.ended(runner, cfg, self.sh("echo line"))
        self.complete_lines(runner, handle, "line")
        replicas = [("main", 7), ("main", 0)]
        lines: list[str] = []
        for replica, block in runner.log_blocks(handle, replicas):
            if not isinstance(block, Exception):
                assert replica == ("main", 0)
                lines += block
        assert lines == ["line\n"]

    # The following tests list and describe jobs.

    @pytest.mark.gate
    def test_list(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("list")
        handle, _ = self.ended(runner, cfg, self.sh("exit 0"))
        found = [a for a in runner.list(self.scheduler_name, cfg) if a.app_handle == handle]
        assert [a.state for a in found] == [AppState.SUCCEEDED]
        assert found[0].exit_code in (0, None)

    def test_times_of_an_app(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("times")
        before = datetime.now(timezone.utc)
        handle, status = self.ended(runner, cfg, self.sh("sleep 2"))
        after = datetime.now(timezone.utc)
        apps: list[AppStatus | ListAppResponse] = [status]
        if not self.lacks("list"):
            found = runner.list(self.scheduler_name, cfg)
            apps += [app for app in found if app.app_handle == handle]
            assert len(apps) == 2
        for app in apps:
            times = [app.submitted, app.started, app.ended]
            known = [t for t in times if t is not None]
            assert len(known) == 3, f"a time is unknown: {times}"
            assert all(t.tzinfo is not None for t in known), f"a time has no zone: {times}"
            assert known == sorted(known), f"submitted, started, ended are not in order: {times}"
            assert before - _CLOCKS <= known[0], f"submitted too early: {times}"
            assert known[2] <= after + _CLOCKS, f"ended too late: {times}"
            assert known[2] - known[1] >= timedelta(seconds=1), f"the job took 2 s: {times}"
        for replica in (replica for role in status.roles for replica in role.replicas):
            # The times of replicas are optional.
            own = [t for t in (replica.started, replica.ended) if t is not None]
            assert all(t.tzinfo is not None for t in own)
            assert own == sorted(own)

    def test_an_app_that_runs_has_no_end(self, runner: Runner, cfg: dict[str, Any]) -> None:
        self.needs("times")
        handle = self.started(runner, cfg, self.sh("sleep 300"))
        status = runner.status(handle)
        assert status is not None
        assert status.submitted is not None
        assert status.started is not None
        assert status.submitted <= status.started
        assert status.ended is None

    @pytest.mark.parametrize("name", ["conf-{}-0-0", "a-component-of-24-letters-{}-99999-10"])
    def test_list_shows_the_name_of_an_app_as_soon_as_it_is_submitted(
        self, runner: Runner, cfg: dict[str, Any], name: str
    ) -> None:
        """Check that an app can be found by its name after an interrupted submission.

        If the driver of a sweep is killed during a submission, the next driver searches the list of
        apps for the name of the element's app. If the list lacks the name, the next driver cannot
        find the app. The list must contain the name itself, or an id in which the part after the
        last colon begins with the name.
        """
        self.needs("list")
        names = [name.format(base64.b32encode(os.urandom(5)).decode().lower()) for _ in range(2)]
        handles = []
        for name in names:
            handles.append(self.submit(runner, cfg, self.sh("exit 0"), name=name))
            found = runner.list(self.scheduler_name, cfg)
            assert [a.app_handle for a in found if has_name(a, name)] == [handles[-1]]
        for handle in handles:
            self.finish(runner, handle)
        found = runner.list(self.scheduler_name, cfg)
        for name, handle in zip(names, handles, strict=True):
            assert [a.app_handle for a in found if has_name(a, name)] == [handle]

    @pytest.mark.gate
    def test_describe(self, runner: Runner, cfg: dict[str, Any], scheduler: Scheduler[Any]) -> None:
        self.needs("describe_roles")
        role = self.sh("exit 0", "worker", num_replicas=2)
        handle, _ = self.ended(runner, cfg, role)
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
        scheduler.kill(app_id)
        scheduler.delete(app_id)
        if app_id and "\n" not in app_id:  # a handle cannot contain a newline
            handle = f"{self.scheduler_name}://conformance/{app_id}"
            assert runner.status(handle) is None
            assert runner.wait(handle) is None
            with pytest.raises(UnknownAppException):
                list(runner.log_lines(handle, "main"))
