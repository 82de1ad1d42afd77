"""Array jobs without AWS: which apps become children, their scripts and their descriptions."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from torchx_sched_aws.batch import arrays
from torchx_sched_aws.batch.options import AWSBatchOpts
from torchx_sched_aws.batch.request import MAX_DEFINITION_BYTES, BatchJob, make_request
from torchx_sched_aws.batch.states import job_state
from torchx_specs import AppDef, AppState, Resource, Role, macros


def request(
    args: list[str] | None = None, env: dict[str, str] | None = None, name: str = "a", **fields: Any
) -> BatchJob:
    cfg = {key: fields.pop(key) for key in ("timeout", "execution_role_arn") if key in fields}
    fields = {"image": "i", "entrypoint": "prog", **fields}
    resource = Resource(cpu=1, gpu=0, memMB=64)
    role = Role("main", args=args or [], env=env or {}, resource=resource, **fields)
    return make_request(AppDef(name, [role]), AWSBatchOpts(queue="q", **cfg))


def elements(*jobs: BatchJob) -> list[arrays.Element]:
    return arrays.elements_of((f"sweep-{i}", job) for i, job in enumerate(jobs))


def described(job: BatchJob, **fields: Any) -> dict[str, Any]:
    size = job.submission["arrayProperties"]["size"]
    return {
        "jobId": "id",
        "jobName": job.name,
        "arrayProperties": {"size": size},
        "container": job.job_def["containerProperties"],
        "tags": job.submission["tags"],
        "status": "PENDING",
        **fields,
    }


def test_apps_that_differ_in_arguments_and_variables_become_children() -> None:
    jobs = [request([i], {"A": i}, f"app-{i}") for i in "ab"]
    assert elements(*jobs)
    assert not elements(*jobs[:1])


@pytest.mark.parametrize(
    "other",
    [
        {"image": "other"},
        {"timeout": 60},
        {"num_replicas": 2},
        {"max_retries": 3},
        {"env": {"odd-name": "1"}},
        {"env": {"T": "${secret:hf}"}, "execution_role_arn": "arn:aws:iam::123456789012:role/r"},
    ],
)
def test_apps_that_differ_otherwise_do_not(other: dict[str, Any]) -> None:
    assert not elements(request(), request(**other))


def test_the_command_of_a_child_arrives_unchanged() -> None:
    """The test runs the command of the array like Batch, with an index for each child."""
    values = ["", " ", "it's", '"', "$(exit 7)", "`x`", "a\nb", "\\n", "é", "#", "export A=b"]
    program = ["-c", "import sys, os, json; print(json.dumps([sys.argv[1:], os.environ['V']]))"]
    jobs = [
        request(
            [*program, *values, macros.app_id], {"V": f"x\n'{i}", "E": ""}, entrypoint="python3"
        )
        for i in range(3)
    ]
    [(job, count)] = arrays.make_arrays(elements(*jobs))
    assert job is not None
    assert count == 3
    command = job.job_def["containerProperties"]["command"]
    for index in range(3):
        env = {"AWS_BATCH_JOB_ARRAY_INDEX": str(index), "PATH": "/usr/bin:/bin:/usr/local/bin"}
        done = subprocess.run(command, env=env, capture_output=True, check=True)
        expected = [[*values, f"{job.name}.{index}"], f"x\n'{index}"]
        assert json.loads(done.stdout) == expected
        child = arrays.child_job(described(job), None, index)
        assert child is not None
        assert child["container"]["command"][-1] == f"{job.name}.{index}"
        assert {"name": "V", "value": f"x\n'{index}"} in child["container"]["environment"]
        assert child["tags"]["torchx.pytorch.org/app-name"] == f"sweep-{index}"


def test_an_array_fits_into_a_job_definition() -> None:
    jobs = [request(["--lr", f"1e-{i}"], {"SAME": "x" * 5000}, f"app-{i}") for i in range(500)]
    made = list(arrays.make_arrays(elements(*jobs)))
    assert sum(count for _, count in made) == 500
    assert len(made) < 6
    for job, _ in made:
        assert job is not None
        assert len(json.dumps(job.job_def)) <= MAX_DEFINITION_BYTES
        assert len(json.dumps(job.submit_parameters("d"))) < 4096


def test_an_app_that_fits_alone_only_has_no_array() -> None:
    jobs = [request(["x" * 15_000, str(i)]) for i in range(2)]
    assert [(job, count) for job, count in arrays.make_arrays(elements(*jobs))] == [
        (None, 1),
        (None, 1),
    ]


def test_deleted_children_are_bits_of_a_tag() -> None:
    [(job, _)] = arrays.make_arrays(elements(*(request([str(i)]) for i in range(9))))
    assert job is not None
    tags = {arrays.TAG_DELETED_CHILDREN: arrays.deleted_tag({0, 8})}
    array = described(job, tags=tags)
    assert arrays.deleted_children(array) == {0, 8}
    assert arrays.child_job(array, None, 8) is None
    assert arrays.child_job(array, None, 9) is None
    assert arrays.child_job(array, None, 1) is not None
    assert len(arrays.deleted_tag(set(range(arrays.MOST_CHILDREN)))) <= 256
    assert arrays.deleted_children({**array, "tags": {arrays.TAG_DELETED_CHILDREN: "x"}}) == set()


def test_an_array_of_another_program_has_children_without_names() -> None:
    array = {
        "jobId": "id",
        "jobName": "n",
        "arrayProperties": {"size": 2},
    }
    found = {"jobId": "id:1", "status": "RUNNING", "container": {"command": ["run"]}}
    child = arrays.child_job(array, found, 1)
    assert child is not None
    assert (child["jobName"], child["container"]["command"]) == ("n.1", ["run"])


@pytest.mark.parametrize(
    ("summary", "state"),
    [
        ({}, AppState.PENDING),
        ({"RUNNABLE": 2}, AppState.PENDING),
        ({"RUNNABLE": 1, "RUNNING": 1}, AppState.RUNNING),
        ({"RUNNABLE": 1, "FAILED": 1}, AppState.RUNNING),
    ],
)
def test_an_array_runs_once_a_child_has_started(summary: dict[str, int], state: AppState) -> None:
    job = {"status": "PENDING", "arrayProperties": {"size": 2, "statusSummary": summary}}
    assert job_state(job) == state
