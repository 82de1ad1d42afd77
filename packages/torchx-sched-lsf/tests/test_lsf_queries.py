"""Tests of the parsers for bjobs, with outputs made from IBM's documentation."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from torchx_kit.batch.errors import BatchError
from torchx_kit.batch.states import JobInfo
from torchx_kit.hosts.api import CommandResult
from torchx_kit.hosts.testing import FakeHost
from torchx_kit.jobs.pending_reasons import explained
from torchx_sched_lsf.long_form import parse_long_form
from torchx_sched_lsf.scheduler import LsfScheduler
from torchx_sched_lsf.states import CAUSES
from torchx_sched_lsf.system import Lsf
from torchx_specs import AppState
from torchx_specs.schedulers import GpuCounts

COLUMNS = """\
JOBID STAT EXEC_HOST JOB_NAME
101 RUN 4*host1:4*host2 app-x1-main-0
102 PEND - my job
7 PEND - app-x1-main-0[3]
8[4] RUN host1 app-x1-main-0[4]
"""
WIDE = """\
JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME
101     me      PEND  normal     login                   app-x1-main-0 Nov 21 03:00
7       me      RUN   normal     login       2*node1     app-x1-main-0[3] Nov 21 03:00
"""


def lsf(tmp_path: Path, *results: CommandResult) -> tuple[Lsf, FakeHost]:
    """Return a client whose commands have the results, one after the other."""
    remaining = list(results)
    host = FakeHost(str(tmp_path), lambda argv: remaining.pop(0))
    return Lsf(host), host


def test_columns_of_bjobs() -> None:
    assert list(Lsf().parse_listing(COLUMNS)) == [
        JobInfo("101", "app-x1-main-0", "RUN", "host1"),
        JobInfo("102", "my job", "PEND"),
        JobInfo("7[3]", "app-x1-main-0", "PEND"),
        JobInfo("8[4]", "app-x1-main-0", "RUN", "host1"),
    ]


def test_an_old_bjobs_prints_other_columns(tmp_path: Path) -> None:
    refused = CommandResult(255, "", "-o: Illegal option\nUsage: bjobs ...")
    client, host = lsf(tmp_path, refused, CommandResult(0, WIDE, ""), CommandResult(0, WIDE, ""))
    expected = [
        JobInfo("101", "app-x1-main-0", "PEND"),
        JobInfo("7[3]", "app-x1-main-0", "RUN", "node1"),
    ]
    assert list(client.listing(["101", "7"])[0].values()) == expected
    assert list(client.listing(None)[0].values()) == expected
    forms: list[Sequence[str]] = [argv[2:] for argv in host.commands]
    assert forms[1:] == [["-w", "101", "7"], ["-w"]]


@pytest.mark.parametrize("output", ["", "JOBID STAT EXEC_HOST JOB_NAME\n", "No job found\n"])
def test_a_listing_without_jobs_is_empty(output: str) -> None:
    assert list(Lsf().parse_listing(output)) == []


def test_an_output_that_is_no_listing_is_an_error() -> None:
    with pytest.raises(BatchError, match="printed no list of jobs, but 'Welcome!'"):
        list(Lsf().parse_listing("Welcome!"))


@pytest.mark.parametrize(
    ("lines", "reason", "cause", "exit_code"),
    [
        (
            [
                "Exited with exit code 137. The CPU",
                "Completed <exit>; TERM_MEMLIMIT: job killed after reaching memory limit",
            ],
            "TERM_MEMLIMIT: out of memory",
            "TERM_MEMLIMIT",
            -9,
        ),
        (
            ["Exited by signal 2. Completed <exit>; TERM_RUNLIMIT: job killed"],
            "TERM_RUNLIMIT: run time limit",
            "TERM_RUNLIMIT",
            -2,
        ),
        (
            [
                "Exited with exit co",
                "                     de 130; TERM_OWN",
                "                     ER: job killed by owner",
            ],
            "TERM_OWNER: killed by its owner",
            "TERM_OWNER",
            -2,
        ),
        (["Exited with exit code 130."], "", "", -2),
        (["Exited with exit code 140."], "LSF sends this signal at the run time", "", -12),
        (["Exited with exit code 127."], "its host cannot see the directory", "", 127),
        (["Completed <exit>; TERM_NEW: x"], "TERM_NEW: see bjobs -l", "TERM_NEW", None),
    ],
)
def test_long_form_of_jobs_that_have_ended(
    lines: list[str], reason: str, cause: str, exit_code: int | None
) -> None:
    start = "Mon Oct 28 00:16:43: Started 1 Task(s) on Host(s) <hostA>;"
    text = "\n".join(
        ["Job <1>, Status <EXIT>", start, *lines, "", "-----", "Job <2>, Status <RUN>"]
    )
    found = parse_long_form(text)
    assert list(found) == ["1", "2"]
    assert found["1"].reason.startswith(reason)
    assert bool(found["1"].reason) == bool(reason)
    assert (found["1"].cause, found["1"].exit_code) == (cause, exit_code)
    assert found["2"] == JobInfo("2", state="RUN")


def test_long_form_of_jobs_that_wait_or_were_killed_before() -> None:
    text = """\
Job <1>, Status <PEND>
 PENDING REASONS:
 Not enough slots: 3 hosts;
 Load: 1 host;

 X
Job <2[7]>, Status <EXIT>
Mon Oct 28 00:17:00: Exited; job has been forced to exit with signal <KILL>
"""
    found = parse_long_form(text)
    assert found["1"].reason == "Not enough slots: 3 hosts; Load: 1 host"
    killed = found["2[7]"]
    assert (killed.reason, killed.started) == ("killed before it started", None)
    assert CAUSES[killed.cause].app_state is AppState.CANCELLED


def test_times_of_a_requeued_job() -> None:
    """The output is made from IBM's page on bjobs -l, with LSB_DISPLAY_YEAR set."""
    text = """Job <1>, User <me>, Status <EXIT>
Mon Oct 28 00:16:40 2013: Submitted from host <hostA>, CWD <$HOME>;
Mon Oct 28 00:16:43 2013: Started 1 Task(s) on Host(s) <hostA>;
Mon Oct 28 00:17:00 2013: Exited with exit code 1. The CPU time used is 0.1 seconds.
Mon Oct 28 00:17:01 2013: [7] started on <hostB>;
Mon Oct 28 00:18:02 2013: Completed <exit>; TERM_OWNER: job killed by owner.
"""
    found = parse_long_form(text)["1"]
    times = [
        when and when.strftime("%H:%M:%S") for when in (found.submitted, found.started, found.ended)
    ]
    assert times == ["00:16:40", "00:17:01", "00:18:02"]


@pytest.mark.parametrize("days", [0, 200, 360])
def test_times_without_a_year_are_of_the_last_twelve_months(days: int) -> None:
    when = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=days)
    text = f"Job <1>, User <me>\n{when:%a %b %e %H:%M:%S}: Submitted from host <hostA>;\n"
    assert parse_long_form(text)["1"].submitted == when


@pytest.mark.parametrize("stamp", ["Mon Xyz 28 00:16:40", "Mon Feb 30 00:16:40"])
def test_a_time_that_does_not_exist_is_unknown(stamp: str) -> None:
    text = f"Job <1>, User <me>\n{stamp}: Submitted from host <hostA>;\n"
    assert parse_long_form(text)["1"].submitted is None


@pytest.mark.parametrize(
    ("result", "size"),
    [
        (CommandResult(0, "lsb.params:\n    MAX_JOB_ARRAY_SIZE = 500\n", ""), 500),
        (CommandResult(0, "    MBD_SLEEP_TIME = 10\n", ""), 1000),
        (CommandResult(1, "", "no bparams"), 1000),
    ],
)
def test_largest_size_of_an_array(tmp_path: Path, result: CommandResult, size: int) -> None:
    assert lsf(tmp_path, result)[0].max_array_size() == size


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("normal: No such queue. Job not submitted.", "RefusedError"),
        ("Request aborted by esub. Job not submitted.", "RefusedError"),
        ("Queue <normal>: Pending job threshold reached. Retrying in 60 seconds...", "LimitError"),
        ("Job array index too large. Job not submitted.", "LimitError"),
        ("LSF is down. Please wait ...", "UnreachableError"),
        ("Job <7[1]>: Job has already finished; Job <8>: No matching job found", "EndedError"),
        ("Job <7>: Job has already finished; Job <8>: User permission denied", "BatchError"),
    ],
)
def test_errors(message: str, name: str) -> None:
    assert Lsf().error_class(message).__name__ == name


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("Job dependency condition not satisfied", "the job waits for another job of the app"),
        ("New job is waiting for scheduling: 1 host", "LSF has not tried to start the job yet"),
        ("Job's resource requirements not satisfied: 4 hosts", "no host has the requested"),
        ("User has reached the per-user job slot limit of the queue", "a limit of your account"),
        ("Not enough job slot(s): 2 hosts", "the resources that the job needs are in use"),
        ("Job requirements for reserving resource (mem) not satisfied", "the resources that the"),
    ],
)
def test_a_pending_reason_is_explained(reason: str, meaning: str) -> None:
    assert explained(reason, Lsf.reasons).startswith(f"{reason}: {meaning}")


def test_gpus_of_hosts_that_accept_jobs_and_of_others(tmp_path: Path) -> None:
    hosts = "ok 8 3\nclosed_Full 4 4\nclosed_Adm 4 1\nunavail - -\nok - -\nclosed_Full 2 1\n"
    _, host = lsf(tmp_path, CommandResult(0, hosts, ""))
    assert LsfScheduler("test", host=host).gpus() == GpuCounts(free=6, used=9, unavailable=3)
    assert [*host.commands[0]] == ["bhosts", "-noheader", "-o", "status ngpus ngpus_alloc"]
