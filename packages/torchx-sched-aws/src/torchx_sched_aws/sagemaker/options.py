"""Options of ``aws_sagemaker``, named like the parameters of the SageMaker SDK's estimators."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_sched_aws.limits import (
    apply_time,
    limit_problems,
    maximum,
    text_problems,
    time_problems,
)
from torchx_sched_aws.model_limits import CREATE_TRAINING_JOB
from torchx_sched_aws.tags import current_user
from torchx_specs.options.structured import StructuredOpts
from torchx_specs.schedulers.request_checks import RequestRules

#: Valid values of ``launch``.
LAUNCH_MODES = ("auto", "command", "script")
#: For each option that is a list of pairs: the place in the request, and the names of the fields.
_PAIRS = {
    "tags": ("Tags", ("Key", "Value")),
    "metric_definitions": ("AlgorithmSpecification.MetricDefinitions", ("Name", "Regex")),
}
#: The place in the request of each option whose value is sent unchanged.
PLACES = {
    "input_mode": "AlgorithmSpecification.TrainingInputMode",
    "enable_sagemaker_metrics": "AlgorithmSpecification.EnableSageMakerMetricsTimeSeries",
    "training_repository_access_mode": (
        "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAccessMode"
    ),
    "training_repository_credentials_provider_arn": (
        "AlgorithmSpecification.TrainingImageConfig.TrainingRepositoryAuthConfig"
        ".TrainingRepositoryCredentialsProviderArn"
    ),
    "output_path": "OutputDataConfig.S3OutputPath",
    "output_kms_key": "OutputDataConfig.KmsKeyId",
    "instance_type": "ResourceConfig.InstanceType",
    "instance_count": "ResourceConfig.InstanceCount",
    "volume_size": "ResourceConfig.VolumeSizeInGB",
    "volume_kms_key": "ResourceConfig.VolumeKmsKeyId",
    "keep_alive_period_in_seconds": "ResourceConfig.KeepAlivePeriodInSeconds",
    "max_run": "StoppingCondition.MaxRuntimeInSeconds",
    "max_wait": "StoppingCondition.MaxWaitTimeInSeconds",
    "enable_network_isolation": "EnableNetworkIsolation",
    "encrypt_inter_container_traffic": "EnableInterContainerTrafficEncryption",
    "use_spot_instances": "EnableManagedSpotTraining",
    "security_group_ids": "VpcConfig.SecurityGroupIds",
    "subnets": "VpcConfig.Subnets",
    "checkpoint_s3_uri": "CheckpointConfig.S3Uri",
    "checkpoint_local_path": "CheckpointConfig.LocalPath",
    "disable_profiler": "ProfilerConfig.DisableProfiler",
    "enable_infra_check": "InfraCheckConfig.EnableInfraCheck",
    "max_retry_attempts": "RetryStrategy.MaximumRetryAttempts",
}

RULES = RequestRules(
    needs_resource=False,
    needs_image=True,
    max_retries=maximum(PLACES["max_retry_attempts"]),
)
ROLE_ARN = re.compile(CREATE_TRAINING_JOB["RoleArn"]["pattern"])
# Options that have no effect without another option.
_REQUIRED = {
    "max_wait": "use_spot_instances",
    "checkpoint_local_path": "checkpoint_s3_uri",
    "model_channel_name": "model_uri",
}
_ROLE_NAME = re.compile(r"[\w+=,.@-]{1,64}")


@dataclass
class AWSSageMakerOpts(StructuredOpts):
    """Options of ``aws_sagemaker``."""

    role: str
    """IAM role of the job, by ARN or name; a name is looked up on submission."""

    instance_type: str
    """Type of the instances. Example: instance_type=ml.p4d.24xlarge"""

    instance_count: int | None = None
    """Number of instances (default: the number of the role's replicas)."""

    user: str = field(default_factory=current_user)
    """User to name in the job's tags (default: the current user)."""

    launch: str = "auto"
    """Run the role's command in the container (command), or run a script with the training toolkit
    of the image, which gets the arguments as hyperparameters (script). auto: a script if the
    entrypoint, or the first argument of a role without an entrypoint, is a .py or .sh file or -m
    MODULE, followed only by --name value pairs; a command otherwise (default: auto)."""

    keep_alive_period_in_seconds: int | None = None
    """Keep the instances for the next job for this many seconds."""

    volume_size: int | None = None
    """Size of each instance's storage volume in GB (default: 30)."""

    volume_kms_key: str | None = None
    """KMS key to encrypt the storage volumes with."""

    max_run: int | None = None
    """Stop the job after this many seconds (default: 86400, one day)."""

    time: str | None = None
    """Stop the job after this time with a unit: 90s, 30m, 2h or 1-12:00 (days, hours and minutes);
    the same as max_run."""

    input_mode: str | None = None
    """Input mode of the channels: File, Pipe or FastFile (default: File)."""

    output_path: str | None = None
    """S3 location of the output, s3://BUCKET/PREFIX (default: s3://sagemaker-REGION-ACCOUNT/, in
    the account of the role)."""

    output_kms_key: str | None = None
    """KMS key to encrypt the output with."""

    base_job_name: str | None = None
    """Prefix of the job's name (default: the name of the app)."""

    tags: str | list | None = None  # type: ignore[type-arg]
    """Add tags: key:value;key:value, or a list of {"Key": ..., "Value": ...}."""

    subnets: list[str] | None = None
    """Subnets of the VPC to connect to; requires security_group_ids."""

    security_group_ids: list[str] | None = None
    """Security groups of the VPC to connect to; requires subnets."""

    model_uri: str | None = None
    """S3 prefix of a model to provide as an input channel."""

    model_channel_name: str | None = None
    """Name of the model's input channel (default: model)."""

    metric_definitions: str | list | None = None  # type: ignore[type-arg]
    """Read metrics from the log: name:regex;name:regex, or a list of {"Name": ..., "Regex":
    ...}."""

    encrypt_inter_container_traffic: bool | None = None
    """Encrypt the traffic between instances."""

    use_spot_instances: bool | None = None
    """Run on managed spot instances; see max_wait and checkpoint_s3_uri."""

    max_wait: int | None = None
    """With use_spot_instances: stop the job after this many seconds, including the wait for
    instances (default: max_run)."""

    checkpoint_s3_uri: str | None = None
    """S3 prefix to save checkpoints to and restore them from."""

    checkpoint_local_path: str | None = None
    """Directory of the checkpoints in the container (default: /opt/ml/checkpoints)."""

    debugger_hook_config: bool | None = None
    """Save tensors for SageMaker Debugger to the output."""

    enable_sagemaker_metrics: bool | None = None
    """Store the metrics as time series."""

    enable_network_isolation: bool | None = None
    """Run the containers without network access."""

    disable_profiler: bool | None = None
    """Disable (true) or enable (false) SageMaker's profiler."""

    environment: dict[str, str] | None = None
    """Set environment variables; the role's own variables take precedence."""

    max_retry_attempts: int | None = None
    """Retry the job this often after an internal server error (default: max_retries of the
    role)."""

    source_dir: str | None = None
    """With launch=script: location of the source, s3://BUCKET/KEY.tar.gz or a directory of the
    image (default: /opt/ml/code). Use --workspace for local source."""

    git_config: dict[str, str] | None = None
    """Not supported; check out the source and use --workspace."""

    hyperparameters: dict[str, str] | None = None
    """Set hyperparameters of the job; the arguments of a script take precedence."""

    container_log_level: int | None = None
    """With launch=script: log level of the training toolkit, as a number of Python's logging
    (default: 20)."""

    code_location: str | None = None
    """Ignored with a warning: no source is uploaded to S3."""

    dependencies: list[str] | None = None
    """Not supported; map the directories into the workspace."""

    training_repository_access_mode: str | None = None
    """Access to the image's registry: Platform, or Vpc for a private registry."""

    training_repository_credentials_provider_arn: str | None = None
    """Lambda function that provides the credentials of a private registry."""

    disable_output_compression: bool | None = None
    """Store the output as separate files instead of a compressed archive."""

    enable_infra_check: bool | None = None
    """Check the instances before the job starts."""

    def __post_init__(self) -> None:
        apply_time(self, "max_run")


def option_problems(opts: AWSSageMakerOpts) -> Iterator[str]:
    """Yield every problem of the options that is known without a request to AWS, one line each."""
    yield from time_problems(opts, "max_run")
    if not ROLE_ARN.fullmatch(opts.role) and not _ROLE_NAME.fullmatch(opts.role):
        yield (
            f"role '{opts.role}' is not the name or ARN of an IAM role"
            " (arn:aws:iam::123456789012:role/NAME)"
        )
    if not opts.instance_type.startswith("ml."):
        yield (
            f"instance_type '{opts.instance_type}' is not an instance type of SageMaker; they begin"
            " with 'ml.', for example ml.m5.large"
        )
    yield from text_problems(opts.launch, f"launch '{opts.launch}'", {"values": LAUNCH_MODES})
    model = "InputDataConfig[].DataSource.S3DataSource.S3Uri"
    for option, place in {**PLACES, "model_uri": model}.items():
        yield from limit_problems(opts[option], place, option)
    yield from _combination_problems(opts)
    for option, (place, _) in _PAIRS.items():
        try:
            yield from limit_problems(pairs(opts, option), place, option)
        except ValueError as e:
            yield str(e)


def _combination_problems(opts: AWSSageMakerOpts) -> Iterator[str]:
    for option, required in _REQUIRED.items():
        if opts[option] and not opts[required]:
            yield f"{option} requires {required}"
    if opts.max_run is not None and opts.max_wait is not None and opts.max_wait < opts.max_run:
        yield f"max_wait={opts.max_wait} includes max_run={opts.max_run} and cannot be less"
    if opts.use_spot_instances and opts.keep_alive_period_in_seconds:
        yield "keep_alive_period_in_seconds cannot be used with use_spot_instances"
    if bool(opts.subnets) != bool(opts.security_group_ids):
        yield "subnets and security_group_ids must be set together"
    if opts.training_repository_credentials_provider_arn and (
        opts.training_repository_access_mode != "Vpc"
    ):
        yield (
            "training_repository_credentials_provider_arn requires"
            " training_repository_access_mode=Vpc"
        )
    if opts.git_config:
        yield "git_config is not supported; check out the source and run with --workspace DIRECTORY"
    if opts.dependencies:
        folders = ", ".join(
            f"{path}: {path.rstrip('/').rpartition('/')[2]}" for path in opts.dependencies
        )
        yield (
            "dependencies is not supported; map the directories into the workspace:"
            f" --workspace '{{.: \"\", {folders}}}'"
        )
    if opts.source_dir and not opts.source_dir.startswith(("s3://", "/")):
        yield (
            f"source_dir '{opts.source_dir}' is a local directory; remove the option and run with"
            f" --workspace {opts.source_dir}"
        )


def pairs(opts: AWSSageMakerOpts, option: str) -> list[dict[str, str]]:
    """Return the value of an option that is a list of pairs, in the API's form.

    >>> pairs(AWSSageMakerOpts("role", "ml.m5.large", tags="team:vision;cost:7"), "tags")
    [{'Key': 'team', 'Value': 'vision'}, {'Key': 'cost', 'Value': '7'}]

    Args:
        opts: The options.
        option: Name of the option: ``tags`` or ``metric_definitions``.

    Raises:
        ValueError: The value is not a list of such pairs.
    """
    value: Any = opts[option] or []
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError as e:
            raise ValueError(f"{option} is not valid JSON: {e}") from None
    elif isinstance(value, str):
        value = [item for item in value.split(";") if item.strip()]
    return [_pair(item, option) for item in value]


def _pair(item: object, option: str) -> dict[str, str]:
    _, (first, second) = _PAIRS[option]
    if isinstance(item, str):
        key, colon, value = item.partition(":")
        if not colon or not key.strip():
            form = f"{first}:{second}".lower()
            raise ValueError(f"{option}: '{item}' is not of the form {form}")
        return {first: key.strip(), second: value.strip()}
    if (
        isinstance(item, Mapping)
        and item.keys() == {first, second}
        and all(isinstance(text, str) for text in item.values())
    ):
        return {first: item[first], second: item[second]}
    raise ValueError(f"{option}: {item!r} is not a pair of strings named {first} and {second}")
