"""Tests of the parsers for bjobs and bhosts, with outputs made from IBM's documentation."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from torchx_sched_lsf import states
from torchx_sched_lsf.queue import queries
from torchx_sched_lsf.scheduler import (
    JOB_STATE,
    bjobs_msg_to_describe,
    bjobs_msg_to_list,
    bjobs_msg_to_log_file,
    find_rank0_host_from_bhosts_stdout,
    get_job_state,
)
from torchx_specs import AppState, Resource, Role
from torchx_specs.schedulers import Stream


class TestParsers:
    def test_columns_of_bjobs(self) -> None:
        out = (
            "JOBID STAT PROJ_NAME JOB_NAME EXEC_HOST\n"
            "101 RUN app app-main-0 4*host1:4*host2\n102 PEND app app-main-1 -\n"
        )
        first, second = queries.parse_columns(out)
        assert (first.job_id, first.stat, first.host) == ("101", "RUN", "host1")
        assert (second.name, second.host) == ("app-main-1", "")

    def test_default_columns_of_an_old_lsf(self) -> None:
        out = (
            "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n"
            "101     me      PEND  normal     login                   app-main-0 Nov 21 03:00\n"
        )
        [job] = queries.parse_wide(out)
        assert (job.job_id, job.stat, job.name, job.host) == ("101", "PEND", "app-main-0", "")
        [job] = queries.parse_wide(out.replace("login                   app", "login 2*node1 app"))
        assert (job.name, job.host) == ("app-main-0", "node1")

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            (
                [
                    "Mon: Exited with exit code 137. The CPU",
                    "Mon: Completed <exit>; TERM_MEMLIMIT: job killed after reaching memory limit",
                ],
                ("TERM_MEMLIMIT: out of memory", 137, False),
            ),
            (
                ["Mon: Exited by signal 9. Completed <exit>; TERM_RUNLIMIT: job killed"],
                ("TERM_RUNLIMIT: run time limit", None, False),
            ),
            (
                [
                    "Mon: Exited with exit co",
                    "                     de 130; TERM_OWN",
                    "                     ER: job killed by owner",
                ],
                ("TERM_OWNER: killed by its owner", 130, True),
            ),
            (
                [" PENDING REASONS:", " Not enough slots: 3 hosts;", " Load: 1 host;", "", " X"],
                ("Not enough slots: 3 hosts; Load: 1 host", None, False),
            ),
            (["Mon: Started"], ("", None, False)),
        ],
    )
    def test_long_form_of_bjobs(
        self, lines: list[str], expected: tuple[str, int | None, bool]
    ) -> None:
        text = "\n".join(["Job <1>, User <me>", *lines, "", "-----", "Job <2>, Status <RUN>"])
        found = states.parse_long_form(text)
        assert list(found) == ["1", "2"]
        assert found["1"].reason.startswith(expected[0])
        assert (found["1"].exit_code, found["1"].cancelled) == expected[1:]
        assert found["2"] == states.Explanation()

    def test_times_of_a_requeued_job(self) -> None:
        """The output is made from IBM's page on bjobs -l, with LSB_DISPLAY_YEAR set."""
        text = """Job <1>, User <me>, Status <EXIT>
Mon Oct 28 00:16:40 2013: Submitted from host <hostA>, CWD <$HOME>;
Mon Oct 28 00:16:43 2013: Started 1 Task(s) on Host(s) <hostA>;
Mon Oct 28 00:17:00 2013: Exited with exit code 1. The CPU time used is 0.1 seconds.
Mon Oct 28 00:17:01 2013: Started 1 Task(s) on Host(s) <hostB>;
Mon Oct 28 00:18:02 2013: Completed <exit>; TERM_OWNER: job killed by owner.
"""
        found = states.parse_long_form(text)["1"]
        times = [
            when and when.strftime("%H:%M:%S")
            for when in (found.submitted, found.started, found.ended)
        ]
        assert times == ["00:16:40", "00:17:01", "00:18:02"]

    @pytest.mark.parametrize("days", [0, 200, 360])
    def test_times_without_a_year_are_of_the_last_twelve_months(self, days: int) -> None:
        when = datetime.now(timezone.utc).replace(microsecond=0) - timedelta(days=days)
        text = f"Job <1>, User <me>\n{when:%a %b %e %H:%M:%S}: Submitted from host <hostA>;\n"
        assert states.parse_long_form(text)["1"].submitted == when

    @pytest.mark.parametrize("stamp", ["Mon Xyz 28 00:16:40", "Mon Feb 30 00:16:40"])
    def test_a_time_that_does_not_exist_is_unknown(self, stamp: str) -> None:
        text = f"Job <1>, User <me>\n{stamp}: Submitted from host <hostA>;\n"
        assert states.parse_long_form(text)["1"].submitted is None


class TestUpstreamFunctions:
    def test_get_job_state(self) -> None:
        assert get_job_state("EXIT", "1") == AppState.FAILED
        assert get_job_state("EXIT", "130") == AppState.CANCELLED
        assert get_job_state("ZOMBI", "-") == AppState.UNKNOWN
        assert {JOB_STATE[s] for s in ("PEND", "PSUSP", "USUSP", "SSUSP")} == {AppState.PENDING}

    def test_bjobs_parsers(self) -> None:
        msg = "app app-a-b-0 DONE -\napp app-a-b-1 EXIT 3\nother other-x-0 RUN -\n"
        found = bjobs_msg_to_describe("app", msg)
        assert found is not None
        assert found.state == AppState.FAILED
        assert [(r.role, len(r.replicas)) for r in found.roles_statuses] == [("a-b", 2)]
        assert bjobs_msg_to_describe("app", "") is None
        listed = bjobs_msg_to_list("app DONE -\nb RUN -\napp DONE -\n")
        assert [(a.app_id, a.state) for a in listed] == [
            ("app", AppState.SUCCEEDED),
            ("b", AppState.RUNNING),
        ]

    def test_bjobs_msg_to_log_file(self) -> None:
        msg = "app app-main-0 /jobs/x y\napp app-main-1 -\n"
        assert bjobs_msg_to_log_file("app", "main", 0, None, msg) == "/jobs/x y/app-main-0.out"
        path = bjobs_msg_to_log_file("app", "main", 0, Stream.STDERR, msg)
        assert path == "/jobs/x y/app-main-0.err"
        for k, stream in ((0, Stream.COMBINED), (1, None), (2, None)):
            with pytest.raises(ValueError, match=r"lsf writes|no output directory|does not exist"):
                bjobs_msg_to_log_file("app", "main", k, stream, msg)

    def test_find_rank0_host(self) -> None:
        out = "a 2 0\nb 8 0\nc 8 4\n"
        role = Role("main", image="", resource=Resource(cpu=4, gpu=1, memMB=1))
        assert find_rank0_host_from_bhosts_stdout(out, role) == "c"
        with pytest.raises(ValueError, match="no host"):
            find_rank0_host_from_bhosts_stdout("a 2 0\n", role)
