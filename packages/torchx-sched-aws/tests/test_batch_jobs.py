"""Queries of Batch jobs and nodes."""

from __future__ import annotations

from typing import Any

from torchx_sched_aws.batch.scheduler import AWSBatchScheduler


def test_nodes_are_described_in_requests_of_a_hundred() -> None:
    requests: list[list[str]] = []

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            requests.append(jobs)
            return {"jobs": [{"jobId": job, "status": "RUNNING"} for job in jobs]}

    jobs = AWSBatchScheduler("test", BatchDouble())
    properties = {"numNodes": 250, "nodeRangeProperties": []}
    found = jobs.nodes({"jobId": "id", "status": "RUNNING", "nodeProperties": properties})
    assert [len(ids) for ids in requests] == [100, 100, 50]
    assert sorted(found) == list(range(250))
    assert jobs.nodes({"jobId": "id", "status": "RUNNABLE", "nodeProperties": properties}) == {}


def test_followers_of_a_job_share_requests() -> None:
    requests: list[list[str]] = []
    properties = {"numNodes": 3, "nodeRangeProperties": []}

    class BatchDouble:
        def describe_jobs(self, jobs: list[str]) -> dict[str, Any]:
            requests.append(jobs)
            return {"jobs": [{"jobId": job} for job in jobs if job != "id#2"]}

    jobs = AWSBatchScheduler("test", BatchDouble())
    job = {"jobId": "id", "status": "RUNNING", "nodeProperties": properties}
    for _ in range(3):
        assert jobs.nodes(job, max_age=60) == {0: {"jobId": "id#0"}, 1: {"jobId": "id#1"}}
    assert requests == [["id#0", "id#1", "id#2"]]
    jobs.nodes(job)
    assert len(requests) == 2
