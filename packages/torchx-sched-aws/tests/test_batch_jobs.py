"""Queries of Batch jobs and nodes."""

from __future__ import annotations

from typing import Any

from torchx_sched_aws.batch.jobs import Jobs
from torchx_sched_aws.client import Clients


def test_nodes_are_described_in_requests_of_a_hundred() -> None:
    requests: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            requests.append(jobs)
            return {"jobs": [{"jobId": job, "status": "RUNNING"} for job in jobs]}

    jobs = Jobs(Clients({"batch": BatchDouble()}))
    properties = {"numNodes": 250, "nodeRangeProperties": []}
    found = jobs.nodes({"jobId": "id", "status": "RUNNING", "nodeProperties": properties})
    assert [len(ids) for ids in requests] == [100, 100, 50]
    assert sorted(found) == list(range(250))
    assert jobs.nodes({"jobId": "id", "status": "RUNNABLE", "nodeProperties": properties}) == {}


def test_followers_of_a_job_share_requests() -> None:
    requests: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            requests.append(jobs)
            return {"jobs": [{"jobId": job} for job in jobs if job != "id#2"]}

    jobs = Jobs(Clients({"batch": BatchDouble()}))
    first, second = {"jobId": "id#0"}, {"jobId": "id#1"}
    assert jobs.poll("id", "id#0", max_age=60) == ({"jobId": "id"}, first)
    assert jobs.poll("id", "id#1", max_age=60) == ({"jobId": "id"}, second)
    assert jobs.poll("id", "id#2", max_age=60) == ({"jobId": "id"}, None)
    for node, expected in (("id#0", first), ("id#1", second), ("id#2", None)):
        assert jobs.poll("id", node, max_age=60) == ({"jobId": "id"}, expected)
    assert requests == [["id", "id#0"], ["id", "id#0", "id#1"], ["id", "id#0", "id#1", "id#2"]]
    jobs.poll("id", "id#1")
    jobs.poll("single", "single")
    assert requests[3:] == [["id", "id#0", "id#1", "id#2"], ["single"]]


def test_nodes_that_are_no_longer_polled_are_left_out() -> None:
    requests: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            requests.append(jobs)
            return {"jobs": [{"jobId": job} for job in jobs]}

    now = 1000.0
    jobs = Jobs(Clients({"batch": BatchDouble()}), lambda: now)
    jobs.poll("id", "id#0")
    now += 14
    jobs.poll("id", "id#1")
    now += 2
    jobs.poll("id", "id#1")
    assert requests == [["id", "id#0"], ["id", "id#0", "id#1"], ["id", "id#1"]]
