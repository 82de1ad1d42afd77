"""What is known of jobs: from what Slurm prints, and from what jobs say themselves.

``recorded/`` is what Slurm 22.05.8 has printed, ``written/`` what other versions print by their
documentation.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_sched_slurm import describe as describing
from torchx_sched_slurm import queries, records, states
from torchx_sched_slurm.scheduler import (
    SLURM_JOB_DIRS,
    SLURM_STATES,
    SlurmError,
    _get_job_dirs,
    _save_job_dir,
    appstate_from_slurm_state,
    create_scheduler,
    get_appstate_from_job,
)
from torchx_specs import AppState

HERE = Path(__file__).parent
HOST = LocalHost()
SQUEUE = (HERE / "recorded" / "squeue-22.05.8.txt").read_text()
SACCT = (HERE / "recorded" / "sacct-22.05.8.txt").read_text()
WRITTEN = (HERE / "written" / "sacct-25.05.txt").read_text()


class TestRecorded:
    def test_squeue(self) -> None:
        jobs = queries.parse_squeue(SQUEUE)
        assert list(jobs) == ["9", "1", "2", "3", "6", "8", "10", "7", "4"]
        assert jobs["1"][0].comment == "mine | x torchx:bcdfghjklmnp"
        assert jobs["1"][0].mark == "bcdfghjklmnp"
        assert [part.name for part in jobs["4"]] == ["trainer-0", "reader-0"]

    @pytest.mark.parametrize(
        ("number", "state", "words"),
        [
            ("9", AppState.CANCELLED, "CANCELLED"),
            ("1", AppState.SUCCEEDED, ""),
            ("2", AppState.FAILED, ""),
            ("6", AppState.PENDING, "PartitionConfig: the partition can't run it"),
            ("8", AppState.PENDING, "DependencyNeverSatisfied: a job it waits for"),
            (
                "10",
                AppState.PENDING,
                "Resources: it waits for resources; expected to start at 2027",
            ),
            ("7", AppState.PENDING, "JobHeldUser: held"),
            ("4", AppState.RUNNING, ""),
        ],
    )
    def test_states_and_reasons(self, number: str, state: AppState, words: str) -> None:
        found, reason = describing.app_state(HOST, None, queries.parse_squeue(SQUEUE)[number])
        assert found == state
        assert words in reason

    def test_upstreams_heterogeneous_jobs(self) -> None:
        job = queries.parse_squeue(SQUEUE)["4"]
        found = describing.describe(HOST, "4", None, job)
        replicas = {
            s.role: [(r.id, r.state, r.node) for r in s.replicas] for s in found.roles_statuses
        }
        assert replicas == {
            "trainer": [(0, AppState.RUNNING, "n1")],
            "reader": [(0, AppState.RUNNING, "n3")],
        }
        assert [role.name for role in found.roles] == ["trainer", "reader"]

    def test_sacct(self) -> None:
        jobs = queries.parse_sacct(SACCT)
        assert jobs["3"][0].exit_code == "0:9"
        assert len(jobs["4"]) == 2
        assert describing.app_state(HOST, None, jobs["2"])[0] == AppState.FAILED


class TestWritten:
    @pytest.mark.parametrize(
        ("number", "state", "words"),
        [
            ("77", AppState.FAILED, "OUT_OF_MEMORY: out of memory"),
            ("78", AppState.FAILED, "NODE_FAIL: a node failed"),
            ("79", AppState.FAILED, "PREEMPTED: preempted"),
            ("80", AppState.FAILED, "TIMEOUT: time limit"),
            ("81", AppState.CANCELLED, "CANCELLED"),
            ("82", AppState.FAILED, "DEADLINE"),
        ],
    )
    def test_ends(self, number: str, state: AppState, words: str) -> None:
        found, reason = describing.app_state(HOST, None, queries.parse_sacct(WRITTEN)[number])
        assert (found, words in reason) == (state, True)

    def test_few_columns(self) -> None:
        text = (HERE / "written" / "sacct-21.08-brief.txt").read_text()
        [(number, job)] = queries.parse_sacct(text, queries._SACCT_OLD).items()
        assert (number, job[0].state, len(job)) == ("77", "OUT_OF_MEMORY", 1)

    @pytest.mark.parametrize(
        ("name", "cause"),
        [
            ("srun-oom-21.08.txt", "OUT_OF_MEMORY"),
            ("srun-oom-24.05.txt", "OUT_OF_MEMORY"),
            ("srun-time-24.05.txt", "TIMEOUT"),
            ("srun-preempted-24.05.txt", "PREEMPTED"),
            ("srun-node-24.05.txt", "NODE_FAIL"),
        ],
    )
    def test_what_srun_says(self, tmp_path: Path, name: str, cause: str) -> None:
        (tmp_path / "srun").write_text((HERE / "written" / name).read_text())
        (tmp_path / "outcome").write_text("FAILED 137 0 1\n")
        entry = records.Entry("77", "m", "app", "/w", str(tmp_path))
        state, reason = describing.app_state(HOST, entry, None)
        assert (state, reason.partition(":")[0]) == (AppState.FAILED, cause)


class TestOwnWord:
    """Without squeue and sacct."""

    @pytest.fixture
    def entry(self, tmp_path: Path) -> records.Entry:
        roles = [records.RoleEntry("main", "main", 2)]
        return records.Entry("5", "mark", "app", str(tmp_path), str(tmp_path), 1.0, roles)

    def test_never_started(self, entry: records.Entry) -> None:
        state, reason = describing.app_state(HOST, entry, None)
        assert (state, reason) == (
            AppState.CANCELLED,
            "it left the queue before it started",
        )

    def test_no_word_of_the_end(self, entry: records.Entry, tmp_path: Path) -> None:
        (tmp_path / "started").write_text("0 5 1\n")
        (tmp_path / "replica-0-0").write_text("0 n1 1\n")
        found = describing.describe(HOST, "5", entry, None)
        assert found.state == AppState.FAILED
        assert "without reporting its end" in found.msg
        assert found.roles_statuses[0].replicas[0].node == "n1"

    def test_failure(self, entry: records.Entry, tmp_path: Path) -> None:
        (tmp_path / "started").write_text("2 5 1\n")
        (tmp_path / "outcome").write_text("FAILED 9 2 5\n")
        (tmp_path / "failed").write_text("0 1 n2 9\n")
        (tmp_path / "replica-0-0").write_text("0 n1 1 5 143\n")
        (tmp_path / "replica-0-1").write_text("0 n2 1 4 9\n")
        (tmp_path / "error-0-1.json").write_text('{"message": "boom"}')
        found = describing.describe(HOST, "5", entry, None)
        assert (found.state, found.num_restarts) == (AppState.FAILED, 2)
        assert found.msg == "main/1 on n2: exit code 9"
        assert [r.exit_code for r in found.roles_statuses[0].replicas] == [-15, 9]
        assert found.structured_error_msg == '{"message": "boom"}'

    def test_success_is_final(self, entry: records.Entry, tmp_path: Path) -> None:
        (tmp_path / "outcome").write_text("SUCCEEDED 0 0 5\n")
        assert describing.app_state(HOST, entry, None)[0] == AppState.SUCCEEDED

    def test_a_requeued_job_waits(self, entry: records.Entry, tmp_path: Path) -> None:
        (tmp_path / "outcome").write_text("REQUEUED 1 0 5\n")
        job = (queries.Component("5", 0, "PENDING", "BeginTime"),)
        assert describing.app_state(HOST, entry, job)[0] == AppState.PENDING
        assert describing.app_state(HOST, entry, None) == (
            AppState.PENDING,
            "requeued: attempt 1 has failed",
        )

    @pytest.mark.parametrize("state", ["COMPLETING"])
    def test_while_it_is_ending(self, entry: records.Entry, tmp_path: Path, state: str) -> None:
        job = (queries.Component("5", 0, state),)
        assert describing.app_state(HOST, entry, job)[0] == AppState.RUNNING
        (tmp_path / "outcome").write_text("FAILED 1 0 5\n")
        assert describing.app_state(HOST, entry, job)[0] == AppState.FAILED

    @pytest.mark.parametrize("text", ["", "FAI", "FAILED 1 0", "FAILED 1 0 5"])
    def test_a_torn_file_says_nothing(
        self, entry: records.Entry, tmp_path: Path, text: str
    ) -> None:
        (tmp_path / "outcome").write_text(text)
        assert records.SlurmRecord(HOST, str(tmp_path)).outcome() is None


class TestScheduler:
    """With doubles of Slurm's commands."""

    def test_no_slurm(self, command_double: object) -> None:
        scheduler = create_scheduler("x")
        with pytest.raises(
            SlurmError, match="Slurm is not installed: there is no command squeue"
        ) as caught:
            scheduler.list()
        assert caught.value.exit_code == 3
        with pytest.raises(SlurmError, match="squeue"):
            scheduler.describe("5")

    def test_asks_for_one_job_only(self, command_double) -> None:  # type: ignore[no-untyped-def]
        calls = command_double("squeue", f"cat '{HERE}/recorded/squeue-22.05.8.txt'")
        found = create_scheduler("x").describe("1")
        assert found is not None
        assert found.state == AppState.SUCCEEDED
        [call] = calls.read_text("utf-8").splitlines()
        assert call.startswith("-h -t all -o ")
        assert call.endswith("-j 1")

    def test_accounting_is_asked_once_if_there_is_none(self, command_double) -> None:  # type: ignore[no-untyped-def]
        unknown = HERE / "recorded" / "squeue-unknown-22.05.8.err"
        command_double("squeue", f"cat '{unknown}' >&2; exit 1")
        calls = command_double("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
        scheduler = create_scheduler("x")
        assert scheduler.describe("1") is None
        assert scheduler.describe("2") is None
        assert len(calls.read_text("utf-8").splitlines()) == 1

    def test_a_command_that_hangs(self, command_double) -> None:  # type: ignore[no-untyped-def]
        command_double("squeue", "exec sleep 60")
        scheduler = create_scheduler("x", timeout=0.3, patience=0.0)
        with pytest.raises(SlurmError, match=r"squeue did not end within 0\.3 s"):
            scheduler.describe("1")

    def test_own_words_once(self, command_double) -> None:  # type: ignore[no-untyped-def]
        said = HERE / "recorded" / "sbatch-partition-22.05.8.err"
        command_double("sbatch", f"cat '{said}' '{said}' >&2; exit 1")
        from torchx_specs import AppDef, Role

        app = AppDef("x", [Role("r", image="", entrypoint="true")])
        with pytest.raises(SlurmError) as caught:
            create_scheduler("x").submit(app, {"partition": "nope"})
        assert str(caught.value) == (
            "sbatch: invalid partition specified: nope;"
            " Batch job submission failed: Invalid partition name specified"
        )

    def test_a_job_taken_although_sbatch_got_no_answer(
        self, command_double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # type: ignore[no-untyped-def]
        """The mark in its comment shows it; nothing is submitted again."""
        monkeypatch.chdir(tmp_path)
        words = "sbatch: error: Socket timed out on send/recv operation"
        calls = command_double(
            "sbatch",
            'for w in "$@"; do case $w in --comment=*) echo "42+0 ${w#*=}" > comment;; esac; done\n'
            f"echo '{words}' >&2; exit 1",
        )
        command_double("squeue", "cat comment")
        from torchx_specs import AppDef, Role

        app = AppDef("x", [Role("r", image="", entrypoint="true")])
        scheduler = create_scheduler("x")
        monkeypatch.setattr(scheduler._slurm, "sleep", lambda seconds: None)
        assert scheduler.submit(app, {"comment": "mine"}) == "42"
        assert len(calls.read_text().splitlines()) == 1

    def test_a_cluster_that_does_not_manage_memory(
        self, command_double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # type: ignore[no-untyped-def]
        monkeypatch.chdir(tmp_path)
        said = HERE / "recorded" / "sbatch-memory-22.05.8.err"
        command_double(
            "sbatch",
            'for w in "$@"; do f=$w; done\n'
            f"""if grep -q -- --mem= "$f"; then cat '{said}' >&2; exit 1; fi; echo 43""",
        )
        command_double("sinfo", "printf 'main*,1\\nbig,64000\\n'")
        from torchx_specs import AppDef, Resource, Role

        app = AppDef("x", [Role("r", image="", entrypoint="true", resource=Resource(1, 0, 100))])
        scheduler = create_scheduler("x")
        assert scheduler.submit(app, {}) == "43"
        with pytest.raises(SlurmError, match="Memory specification"):
            scheduler.submit(app, {"partition": "big"})


class TestOlderNames:
    def test_states(self) -> None:
        assert appstate_from_slurm_state("COMPLETED") == AppState.SUCCEEDED
        assert appstate_from_slurm_state("NO_SUCH") == AppState.UNKNOWN
        assert get_appstate_from_job({"job_state": "RUNNING"}) == AppState.RUNNING
        assert get_appstate_from_job({"job_state": ["PENDING", "x"]}) == AppState.PENDING
        assert SLURM_STATES["PREEMPTED"] == AppState.FAILED

    def test_tracking_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert _get_job_dirs() == {}
        _save_job_dir("1", "/a b = c")
        _save_job_dir("2;cluster", "/d")
        assert (tmp_path / SLURM_JOB_DIRS).read_text() == "1 = /a b = c\n2;cluster = /d\n"
        assert _get_job_dirs() == {"1": "/a b = c", "2;cluster": "/d"}
        (tmp_path / SLURM_JOB_DIRS).write_text("rubbish\n3 = /x\n")
        assert _get_job_dirs() == {"3": "/x"}

    def test_logs_of_a_job_submitted_by_upstream(
        self, command_double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:  # type: ignore[no-untyped-def]
        monkeypatch.chdir(tmp_path)
        (tmp_path / "job").mkdir()
        (tmp_path / "job" / "slurm-7-trainer-1.err").write_text("from before\n")
        _save_job_dir("7", str(tmp_path / "job"))
        unknown = HERE / "recorded" / "squeue-unknown-22.05.8.err"
        command_double("squeue", f"cat '{unknown}' >&2; exit 1")
        assert list(create_scheduler("x").log_iter("7", "trainer", 1)) == ["from before\n"]


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-2],m", ["n1", "n2", "m"]),
        ("r[1-2]n[08-09]", ["r1n08", "r1n09", "r2n08", "r2n09"]),
    ],
)
def test_lists_of_nodes(text: str, nodes: list[str]) -> None:
    assert queries.expand_nodes(text) == nodes


@pytest.mark.parametrize("app_id", ["", "x", "1;", "1;a b", "../1", "1\n", "-1", "1_2", "1+0"])
def test_what_is_no_job_id(app_id: str) -> None:
    assert queries.JobId.parse(app_id) is None


def test_pending_without_a_reason() -> None:
    assert states.explain_pending("None", "N/A") == "waiting"


def test_threads_write_an_entry_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    index = records.Index()
    entry = records.Entry("5", "mark", "app", "/w", "/w/r")
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda _: index.put(entry), range(400)))
    assert index.get("5") == entry
    assert [path.name for path in (tmp_path / "slurm" / "jobs").iterdir()] == ["5.json"]
