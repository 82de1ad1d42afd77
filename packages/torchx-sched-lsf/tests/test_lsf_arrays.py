"""Job arrays without LSF: which apps become one, ids of elements, calls of bkill."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence

import pytest

from torchx_sched_lsf import names
from torchx_sched_lsf.client import Lsf, LsfError
from torchx_sched_lsf.job_files.records import Entry, Index, RoleEntry
from torchx_sched_lsf.queue import queries
from torchx_sched_lsf.queue.arrays import can_be_array, elements, max_array_size
from torchx_sched_lsf.queue.kill import kill_jobs
from torchx_sched_lsf.queue.queries import Job
from torchx_sched_lsf.request import LsfArray, LsfBsub, LsfOpts
from torchx_specs import AppDef, Role


def request(role: Role | None = None, count: int = 1, **cfg: object) -> LsfBsub:
    role = role or Role("main", image="", entrypoint="true")
    role.num_replicas = count
    opts = LsfOpts.from_cfg(cfg)
    return LsfBsub(None, names.make_app_id("a"), AppDef("a", [role]), opts)


def test_apps_that_differ_in_arguments_and_variables_become_an_array() -> None:
    requests = [
        request(Role("main", image="", entrypoint="a", args=[i], env={"A": i})) for i in "ab"
    ]
    assert can_be_array(requests)
    assert not can_be_array(requests[:1])
    assert not can_be_array([*requests, request()])
    assert not can_be_array([request(), request(time="5")])
    assert not can_be_array([request(count=2), request(count=2)])


def test_the_script_of_an_array_is_valid_bash() -> None:
    one = request(Role("main", image="i", entrypoint="a", env={"odd-name": "x"}))
    array = LsfArray(None, "a-x1", one.app, one.cfg, elements=[one.app] * 3, limit=2, previous="7")
    text = array.materialize()
    done = subprocess.run(["/bin/bash", "-n"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert '-J "$tx_job[1-3]%2" ' in text
    assert "tx_after=(-w 'ended(7)')\n" in text
    array.cfg = LsfOpts(dependency="done(5)")
    assert "tx_after=(-w '(done(5)) && ended(7)')\n" in array.materialize()
    [(name, lines)] = array.files()
    assert (name, lines.count("\n")) == ("tasks-0", 3)
    assert "--name=a-x1.3-main-" in lines.split("\n")[2]
    done = subprocess.run(["/bin/bash", "-n"], input=lines, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("column", ["101", "101[7]"])
def test_rows_of_elements(column: str) -> None:
    [job] = queries.parse_columns(f"{column} RUN default a-x1-main-0[7] 2*node1:1*node2\n")
    assert (job.job_id, job.number, job.host) == ("101[7]", "101", "node1")
    [job] = queries.parse_wide(f"{column} me PEND normal login a-x1-main-0[7] Nov 21 03:00\n")
    assert (job.job_id, job.name) == ("101[7]", "a-x1-main-0[7]")


def test_ids_and_names_of_elements() -> None:
    app_id = names.element_id(names.make_app_id("train"), 7)
    job = names.job_name(app_id, "main", 0)
    assert job.endswith("-main-0[7]")
    assert names.app_of_job(job) == app_id
    assert names.split_job_name(app_id, job) == ("main", 0)
    assert names.split_job_name(app_id, job.replace("[7]", "[17]")) is None
    assert names.split_element("a-x1.07") == ("a-x1.07", 0)


class FakeLsf(Lsf):
    """Records the commands. Each command prints ``output``, or fails if ``error`` is set."""

    def __init__(self, output: str = "", error: str = "") -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.output, self.message = output, error

    def _run(
        self,
        argv: Sequence[str],
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
        allow_empty: bool = False,
    ) -> str:
        self.calls.append(list(argv))
        if self.message:
            raise LsfError(self.message)
        return self.output


def test_one_id_ends_an_array_of_which_no_element_is_spared() -> None:
    jobs = [Job(f"7[{i}]", "RUN") for i in (1, 2)] + [Job("7[3]", "DONE"), Job("8", "PEND")]
    cases: list[tuple[list[Job], list[Job] | None, list[list[str]]]] = [
        (jobs, jobs, [["bkill", "7", "8"]]),
        (jobs[:1], jobs, [["bkill", "7[1]"]]),
        (jobs[:2], None, [["bkill", "7[1]", "7[2]"]]),
        (jobs[2:3], jobs, []),
    ]
    for chosen, among, expected in cases:
        lsf = FakeLsf()
        kill_jobs(lsf, chosen, among)
        assert lsf.calls == expected


def test_a_job_that_ends_before_bkill_is_not_an_error() -> None:
    kill_jobs(FakeLsf(error="Job <7[1]>: Job has already finished"), [Job("7[1]", "RUN")])
    with pytest.raises(LsfError, match="User permission denied"):
        kill_jobs(FakeLsf(error="Job <7>: User permission denied"), [Job("7", "RUN")])


@pytest.mark.parametrize(
    ("lsf", "size"),
    [
        (FakeLsf("lsb.params:\n    MAX_JOB_ARRAY_SIZE = 500\n"), 500),
        (FakeLsf("    MAX_JOB_ARRAY_SIZE = 100000\n"), 2000),
        (FakeLsf("    MBD_SLEEP_TIME = 10\n"), 1000),
        (FakeLsf(error="no bparams"), 1000),
    ],
)
def test_largest_size_of_an_array(lsf: Lsf, size: int) -> None:
    assert max_array_size(lsf) == size


def test_entries_of_elements(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    index = Index()
    array = Entry("a-x1", "a", "/w", [RoleEntry("main", "main", ["7"])], names=["a-0", "a-1"])
    index.put(array)
    second = index.get("a-x1.2")
    assert second is not None
    assert (second.name, second.jobs, second.record) == ("a-1", ["7[2]"], "/w/.torchx-lsf/a-x1/2")
    assert index.get("a-x1.3") is None
    second.deleted = True
    index.put(second)
    assert [one.app_id for one in elements(array, {"a-x1.2": second})] == ["a-x1.1"]
    array.deleted = True
    index.put(array)
    first = index.get("a-x1.1")
    assert first is not None
    assert first.deleted
