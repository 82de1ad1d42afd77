"""Tests of the AWS double: it behaves as AWS's documentation says."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from aws_double import AwsDouble, Fault
from botocore.config import Config
from botocore.exceptions import ClientError

from patience import wait_for

Client = Callable[[str], Any]
# All tests use one session, because a session caches the service models.
SESSION = boto3.session.Session()


@pytest.fixture
def client(double: AwsDouble) -> Client:
    """Return a function that makes clients without retries."""
    return lambda service: SESSION.client(
        service,
        endpoint_url=double.url,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=Config(retries={"total_max_attempts": 1}),
    )


def container(script: str, **fields: Any) -> dict[str, Any]:
    wanted = [{"type": "VCPU", "value": "1"}, {"type": "MEMORY", "value": "64"}]
    command = ["sh", "-c", script]
    return {"image": "any", "command": command, "resourceRequirements": wanted, **fields}


def nodes(*scripts: str, main: int = 0) -> dict[str, Any]:
    ranges = [
        {"targetNodes": f"{i}:{i}", "container": container(script)}
        for i, script in enumerate(scripts)
    ]
    return {"numNodes": len(scripts), "mainNode": main, "nodeRangeProperties": ranges}


def submit(batch: Any, *scripts: str, main: int = 0, **fields: Any) -> str:
    """Submit a job and return its id; with several scripts, each script is a node of the job."""
    if len(scripts) == 1:
        kind = {"type": "container", "containerProperties": container(scripts[0])}
    else:
        kind = {"type": "multinode", "nodeProperties": nodes(*scripts, main=main)}
    batch.register_job_definition(jobDefinitionName="job", **kind)
    words = {"jobName": "job", "jobQueue": "queue", "jobDefinition": "job", **fields}
    return str(batch.submit_job(**words)["jobId"])


def described(batch: Any, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = batch.describe_jobs(jobs=[job_id])["jobs"][0]
    return found


def status(batch: Any, job_id: str) -> str:
    return str(described(batch, job_id)["status"])


def ended(batch: Any, job_id: str) -> dict[str, Any]:
    wait_for(lambda: status(batch, job_id) in ("SUCCEEDED", "FAILED"))
    return described(batch, job_id)


def log(logs: Any, stream: str) -> list[str]:
    words = {"logGroupName": "/aws/batch/job", "logStreamName": stream, "startFromHead": True}
    return [event["message"] for event in logs.get_log_events(**words)["events"]]


def refusal(call: Callable[..., Any], **params: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**params)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def post(double: AwsDouble, path: str, body: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", double.port)
    connection.request("POST", path, body, headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_request_that_does_not_fit_the_model_is_a_violation() -> None:
    double = AwsDouble()
    signed = "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/sagemaker/aws4_request, x=y"
    headers = {
        "X-Amz-Target": "SageMaker.DescribeTrainingJob",
        "Content-Type": "application/x-amz-json-1.1",
        "Authorization": signed,
    }
    body = json.dumps({"TrainingJobName": "a", "NoSuchMember": 1})
    assert post(double, "/", body, headers) == 400
    assert double.violations == [
        "request sagemaker.DescribeTrainingJob: DescribeTrainingJob.NoSuchMember: no such member"
    ]
    double.close()
    with pytest.raises(AssertionError):
        double.check()


def test_value_that_breaks_a_constraint_is_an_error(client: Client) -> None:
    sagemaker = client("sagemaker")
    code, message = refusal(sagemaker.describe_training_job, TrainingJobName="a b")
    assert code == "ValidationException"
    assert "pattern" in message
    code, message = refusal(sagemaker.list_training_jobs, MaxResults=101)
    assert (code, "allowed: 1 to 100" in message) == ("ValidationException", True)
    code, _ = refusal(sagemaker.list_training_jobs, StatusEquals="Done")
    assert code == "ValidationException"


def test_unsigned_request_is_an_error(double: AwsDouble) -> None:
    assert post(double, "/v1/describejobqueues", "{}", {}) == 403


def test_fault_affects_only_its_operation(double: AwsDouble, client: Client) -> None:
    batch = client("batch")
    double.faults.append(Fault("DescribeJobQueues", "throttling", after=1, times=2))
    batch.describe_job_queues()
    codes = [refusal(batch.describe_job_queues)[0] for _ in range(2)]
    assert codes == ["TooManyRequestsException"] * 2
    batch.describe_job_queues()
    double.faults.append(Fault("*", "expired", times=1))
    assert refusal(client("logs").describe_log_groups)[0] == "ExpiredTokenException"
    double.faults.append(Fault("SubmitJob", "denied"))
    code, message = refusal(batch.submit_job, jobName="a", jobQueue="queue", jobDefinition="a")
    assert (code, "batch:SubmitJob" in message) == ("AccessDeniedException", True)
    double.faults.append(Fault("ListTrainingJobs", latency=0.3))
    slept: list[float] = []
    double.sleep = slept.append
    client("sagemaker").list_training_jobs()
    assert slept == [0.3]
    assert double.counts["DescribeJobQueues"] == 4


def test_double_counts_concurrent_requests(double: AwsDouble, client: Client) -> None:
    double.faults.append(Fault("DescribeJobQueues"))
    together = threading.Barrier(4)
    double.sleep = lambda _: together.wait()
    clients = [client("batch") for _ in range(4)]
    threads = [threading.Thread(target=c.describe_job_queues) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert double.most_at_once == 4


def test_job_definitions_have_revisions(client: Client) -> None:
    batch = client("batch")
    kind = {"type": "container", "containerProperties": container("true")}
    made = [batch.register_job_definition(jobDefinitionName="a", **kind) for _ in range(3)]
    assert [m["revision"] for m in made] == [1, 2, 3]
    batch.deregister_job_definition(jobDefinition="a:3")
    words = {"jobDefinitionName": "a", "status": "ACTIVE"}
    found = batch.describe_job_definitions(**words)["jobDefinitions"]
    assert [d["revision"] for d in found] == [2, 1]
    job = batch.submit_job(jobName="a", jobQueue="queue", jobDefinition="a")["jobId"]
    assert described(batch, job)["jobDefinition"].endswith("job-definition/a:2")
    made = batch.register_job_definition(jobDefinitionName="a", **kind)
    assert made["revision"] == 4
    pages = list(batch.get_paginator("describe_job_definitions").paginate(maxResults=2))
    assert [len(p["jobDefinitions"]) for p in pages] == [2, 2]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"numNodes": 4}, "3 of 4 nodes"),
        ({"mainNode": 3}, "main node 3 of 3"),
        ({"nodeRangeProperties": []}, "node groups"),
    ],
)
def test_invalid_node_ranges_are_an_error(
    client: Client, change: dict[str, Any], expected: str
) -> None:
    properties = {**nodes("true", "true", "true"), **change}
    words = {"jobDefinitionName": "a", "type": "multinode", "nodeProperties": properties}
    code, message = refusal(client("batch").register_job_definition, **words)
    assert (code, expected in message) == ("ClientException", True), message


def test_too_large_definition_is_an_error(client: Client) -> None:
    properties = container("x" * 25_000)
    words = {"jobDefinitionName": "a", "type": "container", "containerProperties": properties}
    code, message = refusal(client("batch").register_job_definition, **words)
    assert (code, "24 KiB" in message) == ("ClientException", True)


def test_reserved_variables_are_an_error(client: Client) -> None:
    properties = container("true", environment=[{"name": "AWS_BATCH_X", "value": "1"}])
    words = {"jobDefinitionName": "a", "type": "container", "containerProperties": properties}
    assert "AWS_BATCH_X" in refusal(client("batch").register_job_definition, **words)[1]


def test_each_node_is_a_process_with_its_variables(client: Client) -> None:
    batch, logs = client("batch"), client("logs")
    job = submit(batch, *["env | grep AWS_BATCH | sort"] * 3, main=1)
    assert ended(batch, job)["status"] == "SUCCEEDED"
    for i in range(3):
        node = ended(batch, f"{job}#{i}")
        assert node["nodeDetails"] == {"nodeIndex": i, "isMainNode": i == 1}
        found = dict(line.split("=", 1) for line in log(logs, node["container"]["logStreamName"]))
        address = found.pop("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", None)
        assert address == (None if i == 1 else "127.0.0.1")
        assert found == {
            "AWS_BATCH_CE_NAME": "double",
            "AWS_BATCH_JOB_ATTEMPT": "1",
            "AWS_BATCH_JOB_ID": f"{job}#{i}",
            "AWS_BATCH_JOB_MAIN_NODE_INDEX": "1",
            "AWS_BATCH_JOB_NODE_INDEX": str(i),
            "AWS_BATCH_JOB_NUM_NODES": "3",
            "AWS_BATCH_JQ_NAME": "queue",
        }


def test_main_node_decides_the_state_of_the_job(double: AwsDouble, client: Client) -> None:
    double.batch.child_notice = 300.0
    batch = client("batch")
    job = submit(batch, "true", "exit 3")
    assert ended(batch, job)["status"] == "SUCCEEDED"
    node = described(batch, f"{job}#1")
    assert (node["status"], node["container"]["exitCode"]) == ("FAILED", 3)


def test_child_nodes_are_stopped_after_the_main_node(
    double: AwsDouble, client: Client, tmp_path: Path
) -> None:
    double.batch.child_notice = 1.5
    batch = client("batch")
    ending = tmp_path / "ending"
    main = f"until [ -e {ending} ]; do sleep 0.01; done; exit 4"
    job = submit(batch, main, "sleep 86400", f"touch {ending}")
    assert ended(batch, job)["status"] == "FAILED"
    assert described(batch, job)["attempts"][0]["container"]["exitCode"] == 4
    codes = [described(batch, f"{job}#{i}")["container"]["exitCode"] for i in range(3)]
    assert codes == [4, 143, 0]


def test_job_passes_all_statuses(
    double: AwsDouble, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = threading.Semaphore(0)
    monkeypatch.setattr(double.batch, "_pause", lambda job: steps.acquire())
    batch = client("batch")
    script = f"until [ -e {tmp_path / 'end'} ]; do sleep 0.01; done"
    job = submit(batch, script, script)
    for expected in ("SUBMITTED", "RUNNABLE", "STARTING", "RUNNING"):
        wait_for(lambda expected=expected: status(batch, job) == expected)
        steps.release()
    (tmp_path / "end").touch()
    assert ended(batch, job)["status"] == "SUCCEEDED"


def test_node_overrides_are_applied(client: Client) -> None:
    batch, logs = client("batch"), client("logs")
    properties = {
        "numNodes": 2,
        "mainNode": 0,
        "nodeRangeProperties": [{"targetNodes": "0:", "container": container("echo $A $B")}],
    }
    properties["nodeRangeProperties"][0]["container"]["environment"] = [
        {"name": "A", "value": "defined"}
    ]
    batch.register_job_definition(
        jobDefinitionName="job", type="multinode", nodeProperties=properties
    )
    override = {"environment": [{"name": "B", "value": "over"}]}
    job = batch.submit_job(
        jobName="job",
        jobQueue="queue",
        jobDefinition="job:1",
        nodeOverrides={
            "numNodes": 3,
            "nodePropertyOverrides": [{"targetNodes": "0:", "containerOverrides": override}],
        },
    )["jobId"]
    assert ended(batch, job)["nodeProperties"]["numNodes"] == 3
    for i in range(3):
        stream = ended(batch, f"{job}#{i}")["container"]["logStreamName"]
        assert log(logs, stream) == ["defined over"]


def test_retry_rules_are_applied(client: Client) -> None:
    batch, logs = client("batch"), client("logs")
    rules = [
        {"onExitCode": "3", "action": "RETRY"},
        {"onReason": "Out*", "action": "EXIT"},
        {"onExitCode": "*", "action": "EXIT"},
    ]
    strategy = {"attempts": 4, "evaluateOnExit": rules}
    script = "echo $AWS_BATCH_JOB_ATTEMPT; [ $AWS_BATCH_JOB_ATTEMPT = 1 ] && exit 3; exit 5"
    job = ended(batch, submit(batch, script, retryStrategy=strategy))
    attempts = [attempt["container"] for attempt in job["attempts"]]
    assert [attempt["exitCode"] for attempt in attempts] == [3, 5]
    assert [log(logs, attempt["logStreamName"]) for attempt in attempts] == [["1"], ["2"]]


def test_reclaimed_instance_has_a_status_reason(double: AwsDouble, client: Client) -> None:
    batch = client("batch")
    rules = [
        {"onStatusReason": "Host EC2*", "action": "RETRY"},
        {"onReason": "*", "action": "EXIT"},
    ]
    script = "[ $AWS_BATCH_JOB_ATTEMPT = 1 ] && exec sleep 86400; exit 0"
    job = submit(batch, script, retryStrategy={"attempts": 2, "evaluateOnExit": rules})
    wait_for(lambda: status(batch, job) == "RUNNING")
    double.batch.reclaim("job")
    found = ended(batch, job)
    assert found["status"] == "SUCCEEDED"
    assert found["attempts"][0]["statusReason"].startswith("Host EC2")


def test_terminate_and_cancel(double: AwsDouble, client: Client) -> None:
    batch = client("batch")
    running = submit(batch, "sleep 86400", "sleep 86400")
    wait_for(lambda: status(batch, running) == "RUNNING")
    batch.cancel_job(jobId=running, reason="has no effect on what runs")
    assert described(batch, running)["status"] == "RUNNING"
    batch.terminate_job(jobId=running, reason="by a test")
    found = ended(batch, running)
    assert (found["status"], found["statusReason"]) == ("FAILED", "by a test")
    assert found["isTerminated"] is True
    double.batch.add_queue("full", slots=0, reason="MISCONFIGURATION: none")
    waiting = submit(batch, "true", jobQueue="full")
    wait_for(lambda: status(batch, waiting) == "RUNNABLE")
    assert described(batch, waiting)["statusReason"] == "MISCONFIGURATION: none"
    batch.cancel_job(jobId=waiting, reason="waited too long")
    found = ended(batch, waiting)
    assert (found["statusReason"], found["isCancelled"]) == ("waited too long", True)


def test_container_that_cannot_start_fails(double: AwsDouble, client: Client) -> None:
    batch = client("batch")
    role = "arn:aws:iam::123456789012:role/refused"
    double.batch.missing_images.add("none")
    double.batch.refused_roles.add(role)
    for fields, message in [
        ({"image": "none"}, "CannotPullContainerError"),
        ({"executionRoleArn": role}, "unable to assume the role"),
        ({"command": ["/no/such/program"]}, "CannotStartContainerError"),
    ]:
        properties = {**container("true"), **fields}
        batch.register_job_definition(
            jobDefinitionName="bad", type="container", containerProperties=properties
        )
        job = batch.submit_job(jobName="bad", jobQueue="queue", jobDefinition="bad")["jobId"]
        found = ended(batch, job)
        assert (found["status"], found["statusReason"]) == ("FAILED", "Task failed to start")
        assert message in found["container"]["reason"]


def test_queue_that_accepts_no_job_is_an_error(double: AwsDouble, client: Client) -> None:
    batch = client("batch")
    double.batch.add_queue("off", state="DISABLED")
    double.batch.add_queue("fair", fair_share=True)
    for queue, message in [
        ("none", "not found"),
        ("off", "not ENABLED"),
        ("fair", "shareIdentifier"),
    ]:
        with pytest.raises(ClientError, match=message):
            submit(batch, "true", jobQueue=queue)
    with pytest.raises(ClientError, match="no scheduling policy"):
        submit(batch, "true", shareIdentifier="a")
    assert ended(batch, submit(batch, "true", jobQueue="fair", shareIdentifier="a"))


def test_list_jobs_by_status_and_filter(double: AwsDouble, client: Client) -> None:
    batch = client("batch")
    double.batch.add_queue("long")
    double.batch.fill("long", 250)
    words = {"jobQueue": "long", "filters": [{"name": "AFTER_CREATED_AT", "values": ["1"]}]}
    pages = list(batch.get_paginator("list_jobs").paginate(**words))
    assert [len(p["jobSummaryList"]) for p in pages] == [100, 100, 50]
    assert len({job["jobId"] for p in pages for job in p["jobSummaryList"]}) == 250
    # Without a status and a filter, the list has only running jobs.
    assert batch.list_jobs(jobQueue="long")["jobSummaryList"] == []
    words["filters"] = [{"name": "JOB_NAME", "values": ["LONG-filled-7"]}]
    assert len(batch.list_jobs(**words)["jobSummaryList"]) == 1


def test_log_has_pages(double: AwsDouble, client: Client) -> None:
    logs = client("logs")
    double.logs.page_lines = 10
    double.logs.empty_page_every = 3
    for i in range(95):
        double.logs.put("group", "stream", f"line {i}", timestamp=1_000 + i)
    words = {"logGroupName": "group", "logStreamName": "stream", "startFromHead": True}
    lines: list[str] = []
    empty = 0
    token = None
    while True:
        answer = logs.get_log_events(**words, **({"nextToken": token} if token else {}))
        lines += [event["message"] for event in answer["events"]]
        if answer["nextForwardToken"] == token:
            break
        empty += not answer["events"]
        token = answer["nextForwardToken"]
    assert lines == [f"line {i}" for i in range(95)]
    assert empty > 1  # although more pages follow
    double.logs.empty_page_every = 0
    double.logs.put("group", "stream", "late")
    answer = logs.get_log_events(**words, nextToken=token)
    assert [event["message"] for event in answer["events"]] == ["late"]


def test_log_of_a_time_range(double: AwsDouble, client: Client) -> None:
    logs = client("logs")
    for i in range(10):
        double.logs.put("group", "stream", str(i), timestamp=1_000 + i)
    words = {"logGroupName": "group", "logStreamName": "stream"}

    def read(**params: Any) -> list[str]:
        return [e["message"] for e in logs.get_log_events(**words, **params)["events"]]

    assert read(startFromHead=True, startTime=1_003, endTime=1_006) == ["3", "4", "5"]
    assert read(limit=3) == ["7", "8", "9"]
    back = logs.get_log_events(**words, limit=3)["nextBackwardToken"]
    assert read(limit=3, nextToken=back) == ["4", "5", "6"]
    assert read(startFromHead=True, limit=2) == ["0", "1"]


def test_missing_log_is_an_error(double: AwsDouble, client: Client) -> None:
    logs = client("logs")
    words = {"logGroupName": "group", "logStreamName": "stream"}
    assert "log group" in refusal(logs.get_log_events, **words)[1]
    double.logs.create("group", "other")
    code, message = refusal(logs.get_log_events, **words)
    assert (code, "log stream" in message) == ("ResourceNotFoundException", True)


def test_events_are_delayed(double: AwsDouble, client: Client) -> None:
    logs = client("logs")
    now = 0.0
    double.logs.clock = lambda: now
    double.logs.delay = 1.0
    double.logs.put("group", "stream", "late")
    words = {"logGroupName": "group", "logStreamName": "stream", "startFromHead": True}
    first = logs.get_log_events(**words)
    assert first["events"] == []
    now = 1.0
    again = logs.get_log_events(**words, nextToken=first["nextForwardToken"])
    assert [event["message"] for event in again["events"]] == ["late"]


def train(sagemaker: Any, name: str, script: str = "", **fields: Any) -> None:
    """Create a training job of two instances.

    Args:
        sagemaker: The client.
        name: Name of the job.
        script: Shell script of each instance; without a script, the job has no entrypoint.
        fields: Further parameters of ``CreateTrainingJob``.
    """
    algorithm: dict[str, Any] = {"TrainingImage": "any", "TrainingInputMode": "File"}
    if script:
        algorithm["ContainerEntrypoint"] = ["sh", "-c", script]
    words = {
        "TrainingJobName": name,
        "AlgorithmSpecification": algorithm,
        "RoleArn": "arn:aws:iam::123456789012:role/trainer",
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {
            "InstanceType": "ml.m5.large",
            "InstanceCount": 2,
            "VolumeSizeInGB": 30,
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
    }
    sagemaker.create_training_job(**{**words, **fields})


def trained(sagemaker: Any, name: str) -> dict[str, Any]:
    def job() -> dict[str, Any]:
        found: dict[str, Any] = sagemaker.describe_training_job(TrainingJobName=name)
        return found

    wait_for(lambda: job()["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"))
    return job()


def test_training_job_passes_all_statuses(client: Client) -> None:
    sagemaker, logs = client("sagemaker"), client("logs")
    config = "$SAGEMAKER_BASE_DIR/input/config/resourceconfig.json"
    train(sagemaker, "walk", f"cat {config}")
    job = trained(sagemaker, "walk")
    walked = [item["Status"] for item in job["SecondaryStatusTransitions"]]
    assert walked == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert all("EndTime" in item for item in job["SecondaryStatusTransitions"])
    group = "/aws/sagemaker/TrainingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix="walk/algo-2-")
    (stream,) = [found["logStreamName"] for found in streams["logStreams"]]
    words = {"logGroupName": group, "logStreamName": stream, "startFromHead": True}
    (event,) = logs.get_log_events(**words)["events"]
    hosts = json.loads(event["message"])
    assert (hosts["current_host"], hosts["hosts"]) == ("algo-2", ["algo-1", "algo-2"])


def test_failed_and_stopped_training_jobs(double: AwsDouble, client: Client) -> None:
    sagemaker = client("sagemaker")
    train(sagemaker, "fails", "exit 3")
    assert trained(sagemaker, "fails")["FailureReason"] == "AlgorithmError: , exit code: 3"
    double.sagemaker.outcomes["told"] = "ClientError: told so"
    train(sagemaker, "told-1")
    assert trained(sagemaker, "told-1")["FailureReason"] == "ClientError: told so"
    train(sagemaker, "long", "sleep 86400")
    code, _ = refusal(sagemaker.delete_training_job, TrainingJobName="long")
    assert code == "ResourceInUse"
    sagemaker.stop_training_job(TrainingJobName="long")
    assert trained(sagemaker, "long")["TrainingJobStatus"] == "Stopped"
    code, _ = refusal(sagemaker.stop_training_job, TrainingJobName="long")
    assert code == "ValidationException"
    sagemaker.delete_training_job(TrainingJobName="long")
    code, message = refusal(sagemaker.describe_training_job, TrainingJobName="long")
    assert (code, message) == ("ValidationException", "Requested resource not found.")
    double.sagemaker.runtime_scale = 0.001
    train(sagemaker, "slow", "sleep 86400", StoppingCondition={"MaxRuntimeInSeconds": 300})
    slow = trained(sagemaker, "slow")
    assert (slow["TrainingJobStatus"], slow["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


def test_interrupted_training_job_restarts(
    double: AwsDouble, client: Client, tmp_path: Path
) -> None:
    sagemaker = client("sagemaker")
    spot = {
        "EnableManagedSpotTraining": True,
        "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 60},
    }
    mark = tmp_path / "ran before"
    train(sagemaker, "spot", f"[ -e '{mark}' ] && exit; touch '{mark}'; exec sleep 86400", **spot)
    wait_for(mark.exists)
    double.sagemaker.interrupt("spot")
    job = trained(sagemaker, "spot")
    walked = [item["Status"] for item in job["SecondaryStatusTransitions"]]
    assert job["TrainingJobStatus"] == "Completed"
    assert walked.count("Training") == 2
    assert "Interrupted" in walked


def test_invalid_training_job_is_an_error(double: AwsDouble, client: Client) -> None:
    sagemaker = client("sagemaker")
    train(sagemaker, "one")
    with pytest.raises(ClientError, match="already exists"):
        train(sagemaker, "one")
    with pytest.raises(ClientError, match="MaxWaitTimeInSeconds"):
        train(sagemaker, "two", EnableManagedSpotTraining=True)
    double.sagemaker.limits.add("ml.m5.large")
    with pytest.raises(ClientError, match="ResourceLimitExceeded"):
        train(sagemaker, "two")
    role = "arn:aws:iam::123456789012:role/trainer"
    double.sagemaker.limits.clear()
    double.sagemaker.refused_roles.add(role)
    with pytest.raises(ClientError, match="Could not assume role"):
        train(sagemaker, "two")


def test_list_of_training_jobs_has_pages(double: AwsDouble, client: Client) -> None:
    double.sagemaker.fill(250)
    paginator = client("sagemaker").get_paginator("list_training_jobs")
    pages = list(paginator.paginate(PaginationConfig={"PageSize": 100}))
    assert [len(p["TrainingJobSummaries"]) for p in pages] == [100, 100, 50]


def test_training_jobs_have_tags(client: Client) -> None:
    sagemaker = client("sagemaker")
    train(sagemaker, "tagged", Tags=[{"Key": "a", "Value": "1"}])
    arn = sagemaker.describe_training_job(TrainingJobName="tagged")["TrainingJobArn"]
    sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "b", "Value": "2"}])
    tags = sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert tags == [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
