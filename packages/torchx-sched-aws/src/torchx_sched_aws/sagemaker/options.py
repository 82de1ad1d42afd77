"""Options of ``aws_sagemaker``, named like the parameters of the SageMaker SDK's estimators."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_sched_aws.tags import current_user
from torchx_specs.errors import nearest
from torchx_specs.options.structured import StructuredOpts

#: Valid values of ``launch``.
LAUNCH_MODES = ("auto", "command", "script")
#: Valid values of ``input_mode``.
INPUT_MODES = ("File", "Pipe", "FastFile")
#: Valid values of ``training_repository_access_mode``.
ACCESS_MODES = ("Platform", "Vpc")

ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::(\d{12}):role/?[\w+=,.@/-]+")
_ROLE_NAME = re.compile(r"[\w+=,.@-]{1,64}")
_S3 = re.compile(r"(https|s3)://[^/]+/?.*")
_S3_OPTIONS = ("output_path", "model_uri", "checkpoint_s3_uri")
# Smallest and largest value by option; None means no limit.
_RANGES: dict[str, tuple[int, int | None]] = {
    "instance_count": (1, None),
    "volume_size": (1, None),
    "max_run": (1, None),
    "max_wait": (1, None),
    "max_retry_attempts": (1, 30),
    "keep_alive_period_in_seconds": (0, 21_600),
}


@dataclass
class AWSSageMakerOpts(StructuredOpts):
    """Options of ``aws_sagemaker``."""

    role: str
    """IAM role of the job, by ARN or name; a name is looked up on submission."""

    instance_type: str
    """Type of the instances. Example: ml.p4d.24xlarge"""

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


def option_problems(opts: AWSSageMakerOpts) -> Iterator[str]:
    """Yield every problem of the options that is known without a request to AWS, one line each."""
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
    for key, values in (
        ("launch", LAUNCH_MODES),
        ("input_mode", INPUT_MODES),
        ("training_repository_access_mode", ACCESS_MODES),
    ):
        value = opts[key]
        if value is not None and value not in values:
            hint = nearest(str(value), values)
            yield f"{key} '{value}' is not valid;{hint} valid values: {', '.join(values)}"
    for key, (low, high) in _RANGES.items():
        number = opts[key]
        if number is not None and not low <= int(str(number)) <= (high or int(str(number))):
            yield f"{key}={number} is not valid; it must be at least {low}" + (
                f" and at most {high}" if high else ""
            )
    for key in _S3_OPTIONS:
        uri = opts[key]
        if uri is not None and not _S3.fullmatch(str(uri)):
            yield f"{key} '{uri}' is not of the form s3://BUCKET/PREFIX"
    yield from _combination_problems(opts)
    for key, names in (("tags", ("Key", "Value")), ("metric_definitions", ("Name", "Regex"))):
        try:
            parse_pairs(opts[key], key, names)
        except ValueError as e:
            yield str(e)


def _combination_problems(opts: AWSSageMakerOpts) -> Iterator[str]:
    if opts.max_wait is not None:
        if not opts.use_spot_instances:
            yield "max_wait requires use_spot_instances=True"
        elif opts.max_run is not None and opts.max_wait < opts.max_run:
            yield f"max_wait={opts.max_wait} includes max_run={opts.max_run} and cannot be less"
    if opts.use_spot_instances and opts.keep_alive_period_in_seconds:
        yield "keep_alive_period_in_seconds cannot be used with use_spot_instances"
    if opts.checkpoint_local_path and not opts.checkpoint_s3_uri:
        yield "checkpoint_local_path requires checkpoint_s3_uri"
    if bool(opts.subnets) != bool(opts.security_group_ids):
        yield "subnets and security_group_ids must be set together"
    if opts.training_repository_credentials_provider_arn and (
        opts.training_repository_access_mode != "Vpc"
    ):
        yield (
            "training_repository_credentials_provider_arn requires"
            " training_repository_access_mode=Vpc"
        )
    if opts.model_channel_name and not opts.model_uri:
        yield "model_channel_name requires model_uri"
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


def parse_pairs(value: Any, option: str, names: tuple[str, str]) -> list[dict[str, str]]:
    """Convert the value of an option that is a list of pairs to the API's form.

    >>> parse_pairs("team:vision;cost:7", "tags", ("Key", "Value"))
    [{'Key': 'team', 'Value': 'vision'}, {'Key': 'cost', 'Value': '7'}]

    Args:
        value: A text, a list of pairs, or None.
        option: Name of the option, for messages.
        names: Names of the two fields of a pair.

    Raises:
        ValueError: The value is not a list of such pairs.
    """
    if value is None or value == "":
        return []
    if isinstance(value, str):
        if not value.lstrip().startswith("["):
            return [_pair(item, option, names) for item in value.split(";") if item.strip()]
        try:
            value = json.loads(value)
        except ValueError as e:
            raise ValueError(f"{option} is not valid JSON: {e}") from None
    found = []
    for item in value:
        if isinstance(item, str):
            found.append(_pair(item, option, names))
        elif (
            isinstance(item, Mapping)
            and item.keys() == set(names)
            and all(isinstance(text, str) for text in item.values())
        ):
            found.append({name: item[name] for name in names})
        else:
            raise ValueError(
                f"{option}: {item!r} is not a pair of strings named {' and '.join(names)}"
            )
    return found


def _pair(item: str, option: str, names: tuple[str, str]) -> dict[str, str]:
    key, colon, value = item.partition(":")
    if not colon or not key.strip():
        form = f"{names[0]}:{names[1]}".lower()
        raise ValueError(f"{option}: '{item}' is not of the form {form}")
    return {names[0]: key.strip(), names[1]: value.strip()}
