"""Jobs found and described together."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_sched_aws.batch.jobs import Jobs
from torchx_sched_aws.client import Clients


def test_a_hundred_nodes_in_one_request() -> None:
    asked: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            asked.append(jobs)
            return {"jobs": [{"jobId": job, "status": "RUNNING"} for job in jobs]}

    jobs = Jobs(Clients({"batch": BatchDouble()}))
    properties = {"numNodes": 250, "nodeRangeProperties": []}
    found = jobs.nodes({"jobId": "id", "status": "RUNNING", "nodeProperties": properties})
    assert [len(ids) for ids in asked] == [100, 100, 50]
    assert sorted(found) == list(range(250))
    assert jobs.nodes({"jobId": "id", "status": "RUNNABLE", "nodeProperties": properties}) == {}


def test_one_answer_tells_all_who_follow_nodes_of_a_job() -> None:
    asked: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            asked.append(jobs)
            return {"jobs": [{"jobId": job} for job in jobs if job != "id#2"]}

    jobs = Jobs(Clients({"batch": BatchDouble()}))
    one, other = {"jobId": "id#0"}, {"jobId": "id#1"}
    assert jobs.look("id", "id#0", old=60) == ({"jobId": "id"}, one)
    assert jobs.look("id", "id#1", old=60) == ({"jobId": "id"}, other)
    assert jobs.look("id", "id#2", old=60) == ({"jobId": "id"}, None)
    for node, said in (("id#0", one), ("id#1", other), ("id#2", None)):
        assert jobs.look("id", node, old=60) == ({"jobId": "id"}, said)
    assert asked == [["id", "id#0"], ["id", "id#0", "id#1"], ["id", "id#0", "id#1", "id#2"]]
    jobs.look("id", "id#1")
    jobs.look("single", "single")
    assert asked[3:] == [["id", "id#0", "id#1", "id#2"], ["single"]]


def test_a_node_that_nobody_follows_any_longer_is_not_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            asked.append(jobs)
            return {"jobs": [{"jobId": job} for job in jobs]}

    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    jobs = Jobs(Clients({"batch": BatchDouble()}))
    jobs.look("id", "id#0")
    now[0] += 14
    jobs.look("id", "id#1")
    now[0] += 2
    jobs.look("id", "id#1")
    assert asked == [["id", "id#0"], ["id", "id#0", "id#1"], ["id", "id#1"]]
