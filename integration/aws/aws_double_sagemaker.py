"""The double of SageMaker training jobs; each instance is a process.

A job runs ``ContainerEntrypoint`` on every instance; the double has no images, so it needs this
command. As in the training toolkit, the variable ``SAGEMAKER_BASE_DIR`` names the directory that is
``/opt/ml`` in a real container.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from aws_double_logs import Logs
from aws_double_process import ContainerProcess, StartError
from aws_double_wire import Call, ServiceError, page

ACCOUNT = "123456789012"
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_ENDED = ("Completed", "Failed", "Stopped")
#: Fields of a request that the description of the job repeats.
_ANSWERED = frozenset(
    {
        *("TrainingJobName", "HyperParameters", "AlgorithmSpecification", "RoleArn"),
        *("InputDataConfig", "OutputDataConfig", "ResourceConfig", "VpcConfig", "Environment"),
        *("EnableNetworkIsolation", "EnableInterContainerTrafficEncryption", "RetryStrategy"),
        *("EnableManagedSpotTraining", "CheckpointConfig", "DebugHookConfig", "ProfilerConfig"),
        *("TensorBoardOutputConfig", "ExperimentConfig", "InfraCheckConfig", "RemoteDebugConfig"),
    }
)
_MESSAGES = {
    "Starting": "Preparing the instances for training",
    "Downloading": "Downloading the training image",
    "Training": "Training image download completed. Training in progress.",
    "Uploading": "Uploading generated training model",
    "Completed": "Training job completed",
    "Failed": "Training job failed",
    "Stopping": "Stopping the training job",
    "Stopped": "Training job stopped",
    "MaxRuntimeExceeded": "Training job runtime exceeded MaxRuntimeInSeconds provided",
    "Interrupted": "Training job stopped because a managed spot instance was interrupted",
    "Pending": "Training job waiting for capacity",
}


@dataclass
class _TrainingJob:
    request: dict[str, Any]
    arn: str
    created: datetime
    status: str = "InProgress"
    secondary: str = "Starting"
    failure: str = ""
    transitions: list[dict[str, Any]] = field(default_factory=list)
    modified: datetime | None = None
    training_began: datetime | None = None
    training_ended: datetime | None = None
    stopping: bool = False
    processes: list[ContainerProcess] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.request["TrainingJobName"])


class SageMaker:
    """The double of SageMaker; methods with the name of an operation answer its requests.

    Attributes:
        pace: How long a job stays in each status, in seconds.
        grace: How long a container may take to stop before it is killed, in seconds.
        runtime_scale: Length of one second of ``MaxRuntimeInSeconds``, in seconds.
        pending: Whether jobs stay pending, as if they waited for capacity.
        refused_roles: IAM roles that cannot be assumed.
        missing_images: Images that cannot be pulled.
        limits: Instance types with a quota of 0.
        unindexed: Names of jobs that ``Search`` does not find yet.
    """

    def __init__(self, logs: Logs) -> None:
        self.pace = 0.02
        self.grace = 2.0
        self.runtime_scale = 1.0
        self.pending = False
        self.refused_roles: set[str] = set()
        self.missing_images: set[str] = set()
        self.limits: set[str] = set()
        self.unindexed: set[str] = set()
        self._logs = logs
        self._changed = threading.Condition(threading.RLock())
        self._jobs: dict[str, _TrainingJob] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self._interrupted: set[str] = set()

    def interrupt(self, name: str) -> None:
        """Interrupt a job's instances once, as if spot capacity had ended; the job restarts."""
        with self._changed:
            self._interrupted.add(name)
            processes = list(self._jobs[name].processes)
        for process in processes:
            process.stop(0)

    def close(self) -> None:
        """Stop all jobs."""
        with self._changed:
            processes = [p for job in self._jobs.values() for p in job.processes]
            for job in self._jobs.values():
                job.stopping = True
            self._changed.notify_all()
        for process in processes:
            process.stop(0)

    def CreateTrainingJob(self, call: Call) -> dict[str, Any]:  # noqa: N802 - the operation's name
        request = call.params
        name = request["TrainingJobName"]
        _check(request)
        if request["ResourceConfig"].get("InstanceType") in self.limits:
            raise ServiceError(
                "ResourceLimitExceeded",
                "The account-level service limit"
                f" '{request['ResourceConfig']['InstanceType']} for training job usage' is 0"
                " Instances, with current utilization of 0 Instances and a request delta of"
                f" {request['ResourceConfig'].get('InstanceCount', 1)} Instances.",
            )
        if request["RoleArn"] in self.refused_roles:
            raise ServiceError(
                "ValidationException",
                f"Could not assume role {request['RoleArn']}. Please ensure that the role exists"
                " and allows principal 'sagemaker.amazonaws.com' to assume the role.",
            )
        arn = _arn(call.region, name)
        with self._changed:
            if name in self._jobs:
                raise ServiceError(
                    "ResourceInUse",
                    "Training job names must be unique within an AWS account and region, and a"
                    f" training job with this name already exists ({arn})",
                )
            job = self._jobs[name] = _TrainingJob(request, arn, _now())
            self._tags[arn] = {tag["Key"]: tag["Value"] for tag in request.get("Tags", ())}
            self._to(job, "Starting")
        threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return {"TrainingJobArn": arn}

    def DescribeTrainingJob(self, call: Call) -> dict[str, Any]:  # noqa: N802
        with self._changed:
            job = self._job(call)
            request = {k: v for k, v in job.request.items() if k in _ANSWERED}
            return {
                **request,
                "StoppingCondition": job.request.get("StoppingCondition", {}),
                "TrainingJobArn": job.arn,
                "TrainingJobStatus": job.status,
                "SecondaryStatus": job.secondary,
                "FailureReason": job.failure or None,
                "ModelArtifacts": {
                    "S3ModelArtifacts": f"{job.request['OutputDataConfig']['S3OutputPath']}"
                    f"/{job.name}/output/model.tar.gz"
                },
                "CreationTime": job.created,
                "TrainingStartTime": job.training_began,
                "TrainingEndTime": job.training_ended,
                "LastModifiedTime": job.modified,
                "SecondaryStatusTransitions": [dict(item) for item in job.transitions],
            }

    def ListTrainingJobs(self, call: Call) -> dict[str, Any]:  # noqa: N802
        params = call.params
        with self._changed:
            jobs = list(self._jobs.values())
            jobs = [j for j in jobs if j.created.timestamp() > params["CreationTimeAfter"]]
            jobs.sort(key=lambda job: job.created, reverse=True)
            part, token = page(jobs, params.get("NextToken"), params.get("MaxResults", 10))
            found = [
                {
                    "TrainingJobName": job.name,
                    "TrainingJobArn": job.arn,
                    "CreationTime": job.created,
                    "TrainingEndTime": job.training_ended,
                    "LastModifiedTime": job.modified,
                    "TrainingJobStatus": job.status,
                    "SecondaryStatus": job.secondary,
                }
                for job in part
            ]
        return {"TrainingJobSummaries": found, "NextToken": token}

    def Search(self, call: Call) -> dict[str, Any]:  # noqa: N802
        """Find training jobs created after a time; the index lacks the jobs in ``unindexed``."""
        params = call.params
        (created,) = params["SearchExpression"]["Filters"]
        if params["Resource"] != "TrainingJob" or created["Name"] != "CreationTime":
            raise ServiceError("ValidationException", "the double only searches by creation time")
        after = datetime.fromisoformat(created["Value"].replace("Z", "+00:00"))
        with self._changed:
            jobs = [job for job in self._jobs.values() if job.created >= after]
            jobs = [job for job in jobs if job.name not in self.unindexed]
            part, token = page(jobs, params.get("NextToken"), params.get("MaxResults", 10))
            found = [
                {
                    "TrainingJob": {
                        "TrainingJobName": job.name,
                        "TrainingJobArn": job.arn,
                        "CreationTime": job.created,
                        "TrainingStartTime": job.training_began,
                        "TrainingEndTime": job.training_ended,
                        "Tags": _as_list(self._tags.get(job.arn, {})),
                    }
                }
                for job in part
            ]
        return {"Results": found, "NextToken": token}

    def StopTrainingJob(self, call: Call) -> dict[str, Any]:  # noqa: N802
        with self._changed:
            job = self._job(call)
            if job.status in _ENDED:
                raise ServiceError(
                    "ValidationException",
                    f"The request was rejected because the training job is in status {job.status}.",
                )
            if not job.stopping:
                job.stopping = True
                self._to(job, "Stopping", "Stopping")
        return {}

    def DeleteTrainingJob(self, call: Call) -> dict[str, Any]:  # noqa: N802
        with self._changed:
            job = self._job(call)
            if job.status not in _ENDED:
                raise ServiceError(
                    "ResourceInUse", f"The training job is in status {job.status}; stop it first."
                )
            del self._jobs[job.name]
        return {}

    def ListTags(self, call: Call) -> dict[str, Any]:  # noqa: N802
        return {"Tags": _as_list(self._tags.get(call.params["ResourceArn"], {}))}

    def _job(self, call: Call) -> _TrainingJob:
        job = self._jobs.get(call.params["TrainingJobName"])
        if job is None:
            # The service model defines ResourceNotFound, but the real service returns this error.
            raise ServiceError("ValidationException", "Requested resource not found.")
        return job

    def _run(self, job: _TrainingJob) -> None:
        while True:
            for status in ("Downloading", "Training"):
                time.sleep(self.pace)
                while self.pending and not job.stopping:
                    if job.secondary != "Pending":
                        self._to(job, "Pending")
                    time.sleep(0.02)
                if job.stopping:
                    break
                if status == "Training":
                    job.training_began = job.training_began or _now()
                self._to(job, status)
            failure = "" if job.stopping else self._train(job)
            with self._changed:
                if job.name not in self._interrupted:
                    break
                self._interrupted.discard(job.name)
            self._to(job, "Interrupted")
            self._to(job, "Starting")
        job.training_ended = _now()
        time.sleep(self.pace)
        if job.stopping:
            if job.secondary != "Stopping":
                self._to(job, "Stopping", "Stopping")
            self._end(job, "Stopped", "Stopped")
        elif failure == "MaxRuntimeExceeded":
            self._end(job, "Stopped", "MaxRuntimeExceeded")
        elif failure:
            job.failure = failure[:1024]
            self._end(job, "Failed", "Failed")
        else:
            self._to(job, "Uploading")
            time.sleep(self.pace)
            self._end(job, "Completed", "Completed")

    def _train(self, job: _TrainingJob) -> str:
        """Run the instances; return the failure reason, empty for a succeeded or stopped job."""
        specification = job.request["AlgorithmSpecification"]
        count = job.request["ResourceConfig"].get("InstanceCount", 1)
        stamp = int(time.time() * 1000)
        streams = [f"{job.name}/algo-{i + 1}-{stamp}" for i in range(count)]
        if specification.get("TrainingImage") in self.missing_images:
            return (
                "ClientError: Cannot pull the training image"
                f" {specification['TrainingImage']}: the repository does not exist"
            )
        for stream in streams:
            self._logs.create(LOG_GROUP, stream)
        return self._run_instances(job, streams)

    def _run_instances(self, job: _TrainingJob, streams: list[str]) -> str:
        specification = job.request["AlgorithmSpecification"]
        command = [
            *specification["ContainerEntrypoint"],
            *specification.get("ContainerArguments", ()),
        ]
        folders = []
        try:
            for i, stream in enumerate(streams):
                folders.append(_configured(job, i, len(streams)))
                environment = {
                    **job.request.get("Environment", {}),
                    "TRAINING_JOB_NAME": job.name,
                    "TRAINING_JOB_ARN": job.arn,
                    "SAGEMAKER_BASE_DIR": str(folders[-1]),
                }
                process = ContainerProcess(
                    command,
                    environment,
                    lambda line, stream=stream: self._logs.put(LOG_GROUP, stream, line),
                )
                with self._changed:
                    job.processes.append(process)
                    is_stopped = job.stopping or job.name in self._interrupted
                if is_stopped:
                    process.stop(0)
            return self._until_ended(job)
        except StartError as e:
            return f"AlgorithmError: {e}, exit code: 127"
        finally:
            for process in job.processes:
                process.stop(0)
            job.processes = []
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)

    def _until_ended(self, job: _TrainingJob) -> str:
        limit = job.request.get("StoppingCondition", {}).get("MaxRuntimeInSeconds", 86_400)
        deadline = time.monotonic() + limit * self.runtime_scale
        while True:
            ended = [process for process in job.processes if process.ended.is_set()]
            failed = next((process for process in ended if process.exit_code), None)
            if job.stopping:
                for process in job.processes:
                    process.stop(self.grace)
                return ""
            if failed is not None:  # one failed instance ends the whole job
                return f"AlgorithmError: , exit code: {failed.exit_code}"
            if len(ended) == len(job.processes):
                return ""
            if time.monotonic() > deadline:
                return "MaxRuntimeExceeded"
            time.sleep(0.01)

    def _to(self, job: _TrainingJob, secondary: str, status: str = "InProgress") -> None:
        with self._changed:
            if job.stopping and status == "InProgress":
                return
            now = _now()
            if job.transitions:
                job.transitions[-1]["EndTime"] = now
            job.transitions.append(
                {
                    "Status": secondary,
                    "StartTime": now,
                    "StatusMessage": _MESSAGES[secondary],
                }
            )
            job.secondary, job.status, job.modified = secondary, status, now
            self._changed.notify_all()

    def _end(self, job: _TrainingJob, status: str, secondary: str) -> None:
        with self._changed:
            self._to(job, secondary, status)
            job.transitions[-1]["EndTime"] = job.modified


def _check(request: dict[str, Any]) -> None:
    """Check the documented rules that concern several fields, which the service model lacks."""

    def refuse(message: str) -> ServiceError:
        return ServiceError("ValidationException", message)

    algorithm = request.get("AlgorithmSpecification", {})
    if ("TrainingImage" in algorithm) == ("AlgorithmName" in algorithm):
        raise refuse("AlgorithmSpecification needs one of TrainingImage and AlgorithmName")
    resources = request.get("ResourceConfig", {})
    if "InstanceGroups" in resources and "InstanceType" in resources:
        raise refuse("InstanceGroups can't be used with InstanceType")
    if (
        "InstanceGroups" not in resources
        and not {"InstanceType", "InstanceCount"} <= resources.keys()
    ):
        raise refuse("ResourceConfig needs InstanceType and InstanceCount")
    if "VolumeSizeInGB" not in resources:
        raise refuse("ResourceConfig needs VolumeSizeInGB")
    stopping = request.get("StoppingCondition", {})
    wait, run = stopping.get("MaxWaitTimeInSeconds"), stopping.get("MaxRuntimeInSeconds", 86_400)
    if wait is not None and not request.get("EnableManagedSpotTraining"):
        raise refuse("MaxWaitTimeInSeconds must not be set without managed spot training")
    if request.get("EnableManagedSpotTraining") and (wait is None or wait < run):
        raise refuse("MaxWaitTimeInSeconds must be set, and at least MaxRuntimeInSeconds")
    if resources.get("KeepAlivePeriodInSeconds") and request.get("EnableManagedSpotTraining"):
        raise refuse("KeepAlivePeriodInSeconds can't be used with managed spot training")
    keys = [tag["Key"] for tag in request.get("Tags", ())]
    if len(set(keys)) != len(keys):
        raise refuse("Duplicate tag keys found")
    if any(key.lower().startswith("aws:") for key in keys):
        raise refuse("Tag keys cannot begin with aws:")


def _configured(job: _TrainingJob, index: int, count: int) -> Path:
    base = Path(tempfile.mkdtemp(prefix="aws-double-ml-"))
    folder = base / "input" / "config"
    folder.mkdir(parents=True)
    hosts = [f"algo-{i + 1}" for i in range(count)]
    current = {
        "current_host": hosts[index],
        "current_instance_type": job.request["ResourceConfig"].get("InstanceType"),
        "hosts": hosts,
        "network_interface_name": "eth0",
    }
    (folder / "resourceconfig.json").write_text(json.dumps(current))
    parameters = json.dumps(job.request.get("HyperParameters", {}))
    (folder / "hyperparameters.json").write_text(parameters)
    return base


def _as_list(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _arn(region: str, name: str) -> str:
    return f"arn:aws:sagemaker:{region}:{ACCOUNT}:training-job/{name}"


def _now() -> datetime:
    return datetime.now(timezone.utc)
