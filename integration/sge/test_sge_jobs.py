"""Apps on a real Grid Engine: hosts, resources, failures, limits, refusals, interruptions."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import killed_client
import pytest
import sge as service
from setup_option import check_effect, check_failure
from sge_jobs import app, role
from waiting import wait_for

from patience import wait_for as wait_until
from torchx_kit.batch.entries import Index
from torchx_kit.batch.errors import RefusedError, UnreachableError
from torchx_sched_sge.scheduler import SgeScheduler, create_scheduler
from torchx_sched_sge.system import Sge
from torchx_specs import AppState
from torchx_specs.model.constants import NONE
from torchx_specs.schedulers import DescribeAppResponse

SLEEP = "sleep 86400"


def run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def queued() -> list[str]:
    """Return the names of the jobs in the queue."""
    return re.findall("<JB_name>(.*?)<", run("qstat", "-xml"))


def job_of(app_id: str, number: int = 0) -> str:
    entry = Index("sge").get(app_id)
    assert entry is not None
    return entry.roles[number].jobs[0]


def described(scheduler: SgeScheduler, app_id: str) -> DescribeAppResponse:
    """Return the description of an app that exists."""
    found = scheduler.describe(app_id)
    assert found is not None
    return found


def replicas(found: DescribeAppResponse) -> list[tuple[str, str]]:
    return [(r.state.name, r.reason) for s in found.roles_statuses for r in s.replicas]


def test_replicas_of_several_hosts_reach_each_other(scheduler: SgeScheduler) -> None:
    # a replica with 16 CPUs fills a host of the cluster
    line = 'hostname; getent hosts "$TORCHX_RANK0_HOST"'
    app_id = scheduler.submit(app(role(line, count=3, cpu=16)), {})
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.SUCCEEDED
    hosts, heads = set(), set()
    for k in range(3):
        host, head = scheduler.log_iter(app_id, "main", k)
        hosts.add(host.strip())
        heads.add(head.split()[1])
    assert hosts == {"n1", "n2", "n3"}
    [head] = heads
    assert head == found.roles_statuses[0].replicas[0].node
    scheduler.delete(app_id)
    assert list(Path().iterdir()) == []


def test_resources_reach_the_queue(scheduler: SgeScheduler) -> None:
    app_id = scheduler.submit(app(role(SLEEP, cpu=2, gpu=1)), {"time": "0:10:00"})
    detail = run("qstat", "-j", job_of(app_id))
    assert re.search(r"^parallel environment: +smp range: 2$", detail, re.M)
    [requested] = re.findall(r"^hard resource_list: +(.*)$", detail, re.M)
    assert set(requested.split(",")) == {"mem_free=50M", "gpu=1", "h_rt=600"}


def test_memory_for_each_slot_is_a_part_of_the_memory(scheduler: SgeScheduler) -> None:
    cfg = {"memory": "h_vmem", "memory_per_slot": True}
    request = scheduler.submit_dryrun(app(role(SLEEP, cpu=4)), cfg).request
    assert "h_vmem=13M" in request.jobs("/x")[0][0].options


def test_other_users_see_no_variables_and_no_arguments(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_VARIABLE", "of the submission\nin two lines")
    line = 'printf "%s|%s" "$MY_VARIABLE" "$ROLE_VARIABLE"'
    main = role(line)
    main.env["ROLE_VARIABLE"] = "of the role"
    app_id = scheduler.submit(app(main), {"extra": ["-a", "203501010000"]})
    detail = run("qstat", "-j", job_of(app_id))
    assert "of the submission" not in detail
    assert "of the role" not in detail
    assert "printf" not in detail
    run("qalter", "-a", "202001010000", job_of(app_id))
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert "".join(scheduler.log_iter(app_id, "main")) == (
        "of the submission\nin two lines|of the role"
    )


def test_submission_without_its_variables(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_VARIABLE", "1")
    app_id = scheduler.submit(app(role('echo "<$MY_VARIABLE>"')), {"inherit_env": False})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main")) == ["<>\n"]


def test_variables_of_a_surrounding_job_do_not_reach_the_job(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PE_HOSTFILE", "of another job")
    monkeypatch.setenv("JOB_ID", "0")
    monkeypatch.setenv("TORCHX_SECRET_HF", "hidden")
    line = 'echo "<$PE_HOSTFILE> $JOB_ID <$TORCHX_SECRET_HF>"'
    app_id = scheduler.submit(app(role(line)), {})
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED
    assert list(scheduler.log_iter(app_id, "main")) == [f"<> {job_of(app_id)} <>\n"]


def test_a_failed_replica_ends_the_others(scheduler: SgeScheduler) -> None:
    other = role(f"trap 'echo asked; exit 0' TERM; {SLEEP} & wait", name="other", count=2)
    main = role("until [ -e go ]; do sleep 0.1; done; exit 3")
    app_id = scheduler.submit(app(main, other), {})
    wait_until(
        lambda: all(state == "RUNNING" for state, _ in replicas(described(scheduler, app_id)))
    )
    wait_until(lambda: len(list(Path(".torchx-sge", app_id).glob("replica-*"))) == 3)
    Path("go").touch()
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert re.fullmatch(r"main/0 on n\d: exit code 3", found.msg)
    assert list(scheduler.log_iter(app_id, "other", 1)) == ["asked\n"]
    wait_until(lambda: not queued())


def test_a_replica_that_ignores_sigterm_is_killed_when_another_fails(
    scheduler: SgeScheduler,
) -> None:
    other = role("trap '' TERM; while :; do sleep 1; done", name="other")
    main = role("until [ -e go ]; do sleep 0.1; done; exit 3")
    app_id = scheduler.submit(app(main, other), {})
    wait_until(lambda: len(list(Path(".torchx-sge", app_id).glob("replica-*"))) == 2)
    Path("go").touch()
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert replicas(found)[1] == ("CANCELLED", "another replica failed")


def test_time_limit_is_the_reason_of_the_failure(scheduler: SgeScheduler) -> None:
    app_id = scheduler.submit(app(role(SLEEP)), {"time": "2"})
    wait_for(scheduler, app_id)
    wait_until(lambda: "limit" in described(scheduler, app_id).msg)
    found = described(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert found.msg.startswith("main/0: limit of the run time, CPU time or memory reached")


def test_task_that_its_host_cannot_start_fails_the_app(
    scheduler: SgeScheduler, tmp_path: Path
) -> None:
    cfg = {"extra": ["-wd", "/no/such/directory"]}
    app_id = scheduler.submit(app(role("true", count=2)), cfg)
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert "can't chdir to /no/such/directory" in found.msg
    scheduler.cancel(app_id)
    wait_until(lambda: not queued())


def test_cancel_deletes_the_tasks_that_a_failed_app_has_in_the_queue(
    scheduler: SgeScheduler,
) -> None:
    line = "until [ -e go ]; do sleep 0.1; done; exit 3"
    app_id = scheduler.submit(app(role(line, count=4, cpu=16)), {})  # the cluster runs only three
    wait_until(lambda: len(list(Path(".torchx-sge", app_id).glob("replica-*"))) == 3)
    run("qhold", f"{job_of(app_id)}.4")
    Path("go").touch()
    found = wait_for(scheduler, app_id)
    assert found.state == AppState.FAILED
    assert replicas(found)[3] == ("CANCELLED", "another replica failed before this one started")
    assert queued()
    scheduler.cancel(app_id)
    wait_until(lambda: not queued())
    assert described(scheduler, app_id).state == AppState.FAILED


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"queue": "none.q"}, 'qsub: Job was rejected because job requests unknown queue "none.q"'),
        ({"gpu": "tpu"}, 'qsub: unknown resource "tpu"'),
        ({"pe": "mpi"}, 'the requested parallel environment "mpi" does not exist'),
    ],
)
def test_refusal_is_one_line_and_leaves_nothing(
    scheduler: SgeScheduler, cfg: dict[str, Any], message: str
) -> None:
    with pytest.raises(RefusedError, match=re.escape(message)) as caught:
        scheduler.submit(app(role("true"), role("true", name="two", cpu=2, gpu=1)), cfg)
    assert "\n" not in str(caught.value)
    assert queued() == []
    assert scheduler.list() == []
    assert not Path(".torchx-sge").exists()


def test_interrupted_submission_leaves_no_job(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: Sge, output: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Sge, "parse_job_id", interrupt)
    with pytest.raises(KeyboardInterrupt):
        scheduler.submit(app(role(SLEEP)), {})
    wait_until(lambda: not queued())
    [found] = scheduler.list()
    assert found.state == AppState.CANCELLED


def test_held_jobs_of_a_killed_client_can_be_cancelled(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = scheduler.submit(app(role(SLEEP)), {"extra": ["-a", "203501010000"]})
    entry = Index("sge").get(app_id)
    assert entry is not None
    entry.complete, entry.roles[0].jobs = False, [""]  # as if the client had died after qsub
    Index("sge").put(entry)
    found = described(scheduler, app_id)
    assert found.state == AppState.PENDING
    assert found.msg == "the submission has not ended"
    scheduler.cancel(app_id)
    wait_until(lambda: not queued())
    assert wait_for(scheduler, app_id).state == AppState.CANCELLED


def submit_until(monkeypatch: pytest.MonkeyPatch, command: str, count: int) -> str:
    """Submit an app of two roles whose client is killed; see :mod:`killed_client`."""
    two = app(role("true"), role("true", name="other"))
    return killed_client.submit_until(monkeypatch, create_scheduler, two, command, count)


def test_submission_of_a_killed_client_is_undone_if_a_job_is_missing(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_until(monkeypatch, "qsub", 2)
    [found] = scheduler.list()
    assert found.state == AppState.CANCELLED
    wait_until(lambda: not queued())


def test_app_of_a_client_that_was_killed_before_the_first_job_is_not_listed(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep then submits its element again."""
    app_id = submit_until(monkeypatch, "qsub", 1)
    assert scheduler.list() == []
    found = described(scheduler, app_id)
    assert found.state == AppState.CANCELLED
    assert found.msg.endswith(": the submission was interrupted")


def test_submission_of_a_killed_client_is_completed_if_no_job_is_missing(
    scheduler: SgeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    app_id = submit_until(monkeypatch, "qrls", 1)
    assert wait_for(scheduler, app_id).state == AppState.SUCCEEDED


def test_deleted_task_does_not_end_the_others(scheduler: SgeScheduler) -> None:
    line = "until [ -e go ]; do sleep 0.1; done"
    app_id = scheduler.submit(app(role(line, count=2)), {})
    wait_until(lambda: len(list(Path(".torchx-sge", app_id).glob("replica-*"))) == 2)
    run("qdel", f"{job_of(app_id)}.2")
    wait_until(lambda: replicas(described(scheduler, app_id))[1][0] == "FAILED")
    Path("go").touch()
    found = wait_for(scheduler, app_id)
    assert [state for state, _ in replicas(found)] == ["SUCCEEDED", "FAILED"]


def test_apps_of_another_home_are_found_in_the_queue(
    scheduler: SgeScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_until(lambda: not queued())  # the app of an earlier test may still be ending
    app_id = scheduler.submit(app(role(SLEEP, count=2)), {})
    wait_for(scheduler, app_id, AppState.RUNNING)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "another"))
    other = create_scheduler("other")
    assert [(found.app_id, found.state) for found in other.list()] == [(app_id, AppState.RUNNING)]
    found = described(other, app_id)
    assert [replica.id for replica in found.roles_statuses[0].replicas] == [0, 1]
    assert found.msg == NONE
    other.cancel(app_id)
    wait_until(lambda: not queued())


def test_ended_app_is_described_while_the_qmaster_is_down(
    scheduler: SgeScheduler, cluster: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = scheduler.submit(app(role("exit 4")), {})
    running = scheduler.submit(app(role("until [ -e go ]; do sleep 0.1; done")), {})
    wait_for(scheduler, running, AppState.RUNNING)
    wait_until(lambda: Path(".torchx-sge", ended, "failed").exists())
    impatient = create_scheduler("impatient", patience=0.5)
    service.kill_qmaster(cluster)
    try:
        found = described(impatient, ended)
        assert found.state == AppState.FAILED
        with pytest.raises(UnreachableError):
            impatient.describe(running)
        Path("go").touch()
    finally:
        service.start_qmaster(cluster)
    assert wait_for(scheduler, running).state == AppState.SUCCEEDED


def test_setup_runs_before_the_program_of_each_replica(
    scheduler: SgeScheduler, tmp_path: Path
) -> None:
    check_effect(scheduler, lambda line, n, setup: submit_with(scheduler, line, n, setup), tmp_path)


@pytest.mark.parametrize(("line", "code"), [("ls /no/such/folder", 2), ("exit 7", 7)])
def test_line_of_setup_that_fails_ends_the_app(
    scheduler: SgeScheduler, line: str, code: int
) -> None:
    check_failure(scheduler, lambda *words: submit_with(scheduler, *words), line, code)


def submit_with(scheduler: SgeScheduler, line: str, count: int, setup: Sequence[str]) -> str:
    return scheduler.submit(app(role(line, count=count)), {"setup": list(setup)})


def test_a_job_whose_host_failed_is_running_until_grid_engine_knows_more(
    scheduler: SgeScheduler, cluster: Path
) -> None:
    app_id = scheduler.submit(app(role(f"touch up; {SLEEP}")), {})
    wait_until(Path("up").exists)
    [replica] = described(scheduler, app_id).roles_statuses[0].replicas
    service.kill_host(cluster, replica.node)
    try:
        lost = "its host does not answer; qdel -f ends it without the host"
        wait_until(lambda: replicas(described(scheduler, app_id)) == [("RUNNING", lost)])
    finally:
        service.start_hosts(cluster, [replica.node])
    found = wait_for(scheduler, app_id)
    assert replicas(found) == [("FAILED", "its host failed, or started again")]
    assert found.roles_statuses[0].replicas[0].exit_code is None
