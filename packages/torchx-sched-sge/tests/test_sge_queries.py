"""Tests of the parsers for qstat and qacct, with outputs of Son of Grid Engine 8.1.9."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from torchx_kit.batch.errors import BatchError
from torchx_kit.batch.states import JobInfo
from torchx_kit.jobs.pending_reasons import explained
from torchx_sched_sge.states import STATES, state_name
from torchx_sched_sge.system import Sge, parse_accounting, parse_details, parse_tasks
from torchx_specs import AppState

QSTAT = """\
<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <Queue-List>
      <name>all.q@n2.example.com</name>
      <slots_used>1</slots_used>
      <job_list state="running">
        <JB_job_number>7</JB_job_number>
        <JAT_prio>0.50000</JAT_prio>
        <JB_name>app-b4c5d6f7g9h0-main</JB_name>
        <JB_owner>root</JB_owner>
        <state>r</state>
        <JAT_start_time>2026-11-23T01:10:14</JAT_start_time>
        <slots>1</slots>
        <tasks>1</tasks>
      </job_list>
    </Queue-List>
    <Queue-List>
      <name>all.q@n3</name>
      <state>au</state>
      <job_list state="running">
        <JB_job_number>8</JB_job_number>
        <JB_name>lost</JB_name>
        <state>r</state>
        <tasks>1</tasks>
      </job_list>
    </Queue-List>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>7</JB_job_number>
      <JB_name>app-b4c5d6f7g9h0-main</JB_name>
      <state>qw</state>
      <tasks>2-4:2</tasks>
    </job_list>
    <job_list state="pending">
      <JB_job_number>9</JB_job_number>
      <JB_name>a &amp; b</JB_name>
      <state>Eqw</state>
    </job_list>
  </job_info>
</job_info>
"""

QACCT = """\
==============================================================
qname        all.q
hostname     n1
jobname      app-b4c5d6f7g9h0-main
jobnumber    4
taskid       2
start_time   Mon Nov 23 01:10:14 2026
end_time     Mon Nov 23 01:11:15 2026
failed       37  : qmaster enforced h_rt, h_cpu, or h_vmem limit
exit_status  137                  (Killed)
==============================================================
qname        all.q
jobnumber    4
taskid       1
start_time   -/-
end_time     -/-
failed       0
exit_status  3
==============================================================
jobnumber    4
taskid       undefined
failed       100 : assumedly after job
exit_status  143                  (Terminated)
"""


def at(minute: int, second: int) -> datetime:
    return datetime(2026, 11, 23, 1, minute, second, tzinfo=timezone.utc)


def test_tasks_of_array_jobs_are_listed_one_by_one() -> None:
    name = "app-b4c5d6f7g9h0-main"
    assert list(Sge().parse_listing(QSTAT)) == [
        JobInfo("7.1", name, "running", "n2.example.com", started=at(10, 14)),
        JobInfo("8.1", "lost", "lost", "n3"),
        JobInfo("7.2", name, "waiting"),
        JobInfo("7.4", name, "waiting"),
        JobInfo("9.1", "a & b", "error"),
    ]


def test_control_characters_in_names_are_no_error() -> None:
    assert [job.name for job in Sge().parse_listing(QSTAT.replace("&amp;", "\x01"))][-1] == "a  b"


@pytest.mark.parametrize("output", ["error: commlib", "\udcff\udcfe<job_info/>"])
def test_output_that_is_no_xml_is_one_line(output: str) -> None:
    with pytest.raises(BatchError, match=r"qstat printed no valid XML: .*; see qstat -xml"):
        list(Sge().parse_listing(output))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1", [1]), ("3-5:1", [3, 4, 5]), ("1,4-8:2", [1, 4, 6, 8]), ("2-3", [2, 3]), ("...", [])],
)
def test_lists_of_tasks(text: str, numbers: list[int]) -> None:
    assert list(parse_tasks(text)) == numbers


def test_ends_in_the_accounting() -> None:
    ended = parse_accounting(QACCT)
    limit = "limit of the run time, CPU time or memory reached (options time and memory)"
    assert ended["4.2"] == JobInfo(
        "4.2", reason=limit, cause="37", exit_code=-9, started=at(10, 14), ended=at(11, 15)
    )
    assert ended["4.1"].exit_code == -15
    assert ended["4.1"].reason.startswith("killed: by qdel")


def test_other_failures_have_the_description_of_grid_engine() -> None:
    output = (
        "jobnumber 4\ntaskid undefined\nfailed       26  : opening output file\nexit_status 0\n"
    )
    reason = "failure code 26 of Grid Engine: opening output file"
    assert parse_accounting(output) == {"4.1": JobInfo("4.1", reason=reason, cause="26")}


def test_last_run_of_a_task_counts() -> None:
    again = QACCT.replace("taskid       1", "taskid       2")
    assert parse_accounting(again)["4.2"] == JobInfo("4.2", exit_code=3)


def test_error_reason_has_no_date_and_no_process() -> None:
    line = (
        "job_number: 4\n"
        "error reason          1:      11/23/2026 00:59:07 [0:30378]: error: can't chdir to /no:"
        " No such file or directory\nscheduling info:            Job is in error state\n"
    )
    assert parse_details(line)[1] == {"4": "can't chdir to /no: No such file or directory"}
    assert parse_details("job_number: 4\njob_args: 60\n") == ({}, {})


def test_pending_reasons_of_several_jobs() -> None:
    """The output was recorded with ``qstat -j 67,70,73,74,75`` and then shortened."""
    offer = "(-l mem_free=9999G) cannot run at host"
    output = f"""\
==============================================================
job_number:                 67
job_name:                   nomem
scheduling info:            {offer} "n3" because it offers only hl:mem_free=19.375G
                            {offer} "n1" because it offers only hl:mem_free=19.384G
==============================================================
job_number:                 70
scheduling info:            Job is in hold state
==============================================================
job_number:                 73
scheduling info:            not all array tasks may be started due to 'max_aj_instances'
==============================================================
job_number:                 74
scheduling info:            queue instance "all.q@n2" dropped because it is full
                            queue instance "all.q@n1" dropped because it is full
                            All queues dropped because of overload or full
                            execution time not reached
==============================================================
job_number:                 75
scheduling info:            (Collecting of scheduler job information is turned off)
"""
    assert parse_details(output)[0] == {
        "67": '(-l mem_free=9999G) cannot run at host "n3" because it offers only'
        " hl:mem_free=19.375G (2 times)",
        "70": "Job is in hold state",
        "73": "not all array tasks may be started due to 'max_aj_instances'",
        "74": "All queues dropped because of overload or full; execution time not reached",
    }


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("qw", AppState.PENDING),
        ("hqw", AppState.PENDING),
        ("Rq", AppState.PENDING),
        ("t", AppState.RUNNING),
        ("r", AppState.RUNNING),
        ("hr", AppState.RUNNING),
        ("Rr", AppState.RUNNING),
        ("dr", AppState.RUNNING),
        ("s", AppState.PENDING),
        ("T", AppState.PENDING),
        ("Eqw", AppState.FAILED),
        ("?", AppState.UNKNOWN),
    ],
)
def test_states(letters: str, state: AppState) -> None:
    found = STATES.get(state_name(letters))
    assert (found.phase.app_state if found else AppState.UNKNOWN) is state


def test_refusal_of_qsub_is_one_line_without_its_frame() -> None:
    output = 'Unable to run job: unknown resource "nope".\nExiting.\n'
    assert Sge().error_summary(output) == 'unknown resource "nope"'


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        (
            '(-l h_vmem=9G) cannot run at host "n1" because it offers only hc:h_vmem=1.0G',
            "no host offers what the job requests",
        ),
        ("All queues dropped because of overload or full", "all slots are in use"),
    ],
)
def test_a_pending_reason_is_explained(reason: str, meaning: str) -> None:
    assert explained(reason, Sge.reasons).startswith(f"{reason}: {meaning}")
