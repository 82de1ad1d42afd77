"""The options of ``aws_sagemaker``: those of the SageMaker SDK's estimators, by the same names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_sched_aws.tags import current_user
from torchx_specs.errors import nearest
from torchx_specs.options.structured import StructuredOpts

#: What ``launch`` may be.
LAUNCHES = ("auto", "command", "script")
#: What ``input_mode`` may be.
INPUT_MODES = ("File", "Pipe", "FastFile")
#: What ``training_repository_access_mode`` may be.
ACCESS_MODES = ("Platform", "Vpc")

ROLE_ARN = re.compile(r"arn:aws[a-z-]*:iam::(\d{12}):role/?[\w+=,.@/-]+")
_ROLE_NAME = re.compile(r"[\w+=,.@-]{1,64}")
_S3 = re.compile(r"(https|s3)://[^/]+/?.*")
_S3_OPTIONS = ("output_path", "model_uri", "checkpoint_s3_uri")
# option -> smallest and largest value; None for no limit
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
    """IAM role that SageMaker takes on, by ARN or name (a name is looked up when submitting)"""

    instance_type: str
    """type of the instances, e.g. ml.p4d.24xlarge"""

    instance_count: int | None = None
    """how many instances; as many as the role has replicas, unless given"""

    user: str = field(default_factory=current_user)
    """who submits, for the tags; the current user unless given"""

    launch: str = "auto"
    """what runs: the role's command, by SageMaker's container entrypoint (command), or a script by
    the training toolkit in the image, arguments as hyperparameters (script); auto: script if the
    arguments are a .py or .sh file or -m MODULE, and --name value pairs, otherwise command"""

    keep_alive_period_in_seconds: int | None = None
    """how long the instances are kept for the next job, in seconds"""

    volume_size: int | None = None
    """storage of each instance in GB, 30 unless given"""

    volume_kms_key: str | None = None
    """KMS key that encrypts the instances' storage"""

    max_run: int | None = None
    """longest run in seconds, a day unless given"""

    input_mode: str | None = None
    """how input comes: File (the default), Pipe, FastFile"""

    output_path: str | None = None
    """s3://bucket/prefix for what the job produces; SageMaker's usual bucket in the account of the
    role unless given (s3://sagemaker-REGION-ACCOUNT/)"""

    output_kms_key: str | None = None
    """KMS key that encrypts the output"""

    base_job_name: str | None = None
    """beginning of the job's name, the app's name unless given"""

    tags: str | list | None = None  # type: ignore[type-arg]
    """more tags: key:value;key:value, or a list of {"Key": ..., "Value": ...}"""

    subnets: list[str] | None = None
    """subnets of the VPC that the job reaches; with security_group_ids"""

    security_group_ids: list[str] | None = None
    """security groups in the VPC; with subnets"""

    model_uri: str | None = None
    """s3:// prefix of a model, as an input channel"""

    model_channel_name: str | None = None
    """name of that channel, model unless given"""

    metric_definitions: str | list | None = None  # type: ignore[type-arg]
    """metrics read from the log: name:regex;name:regex, or a list of {"Name": ..., "Regex": ...}"""

    encrypt_inter_container_traffic: bool | None = None
    """encrypts what the instances send each other"""

    use_spot_instances: bool | None = None
    """runs on spot capacity; see max_wait, checkpoint_s3_uri"""

    max_wait: int | None = None
    """with use_spot_instances: longest time until the job has ended, waiting included, in seconds;
    max_run unless given"""

    checkpoint_s3_uri: str | None = None
    """s3:// prefix that checkpoints are kept in, and brought back from"""

    checkpoint_local_path: str | None = None
    """folder of the checkpoints in the container, /opt/ml/checkpoints unless given"""

    debugger_hook_config: bool | None = None
    """saves tensors for SageMaker Debugger to the output"""

    enable_sagemaker_metrics: bool | None = None
    """keeps time series of the metrics"""

    enable_network_isolation: bool | None = None
    """containers reach no network"""

    disable_profiler: bool | None = None
    """turns SageMaker's profiler off (true), or on (false)"""

    environment: dict[str, str] | None = None
    """variables for the job; the role's own replace these"""

    max_retry_attempts: int | None = None
    """how often SageMaker starts the job again after an error of its own; max_retries of the role
    unless given"""

    source_dir: str | None = None
    """with launch=script: where the source is, s3://...tar.gz, or a folder of the image
    (/opt/ml/code unless given); local source goes along as the workspace"""

    git_config: dict[str, str] | None = None
    """not taken: check the source out and run from there"""

    hyperparameters: dict[str, str] | None = None
    """hyperparameters of the job; those in a script's arguments replace these"""

    container_log_level: int | None = None
    """with launch=script: level of the training toolkit's log, as Python's logging has them"""

    code_location: str | None = None
    """ignored, with a warning: no source is uploaded to S3"""

    dependencies: list[str] | None = None
    """not taken: map the folders into the workspace"""

    training_repository_access_mode: str | None = None
    """how the image's registry is reached: Platform, or Vpc for a private one"""

    training_repository_credentials_provider_arn: str | None = None
    """Lambda function that gives the credentials of a private registry"""

    disable_output_compression: bool | None = None
    """leaves the output as files"""

    enable_infra_check: bool | None = None
    """has the instances checked before the job begins"""


def problems_of(opts: AWSSageMakerOpts) -> Iterator[str]:
    """Yields what is wrong with options, as far as that is known without asking AWS."""
    if not ROLE_ARN.fullmatch(opts.role) and not _ROLE_NAME.fullmatch(opts.role):
        yield (
            f"role '{opts.role}' is neither the name of an IAM role nor its ARN"
            " (arn:aws:iam::123456789012:role/NAME)"
        )
    if not opts.instance_type.startswith("ml."):
        yield f"instance_type '{opts.instance_type}': SageMaker's begin with ml., e.g. ml.m5.large"
    for key, values in (
        ("launch", LAUNCHES),
        ("input_mode", INPUT_MODES),
        ("training_repository_access_mode", ACCESS_MODES),
    ):
        value = opts[key]
        if value is not None and value not in values:
            hint = nearest(str(value), values)
            yield f"{key} '{value}':{hint} it is one of {', '.join(values)}"
    for key, (low, high) in _RANGES.items():
        number = opts[key]
        if number is not None and not low <= int(str(number)) <= (high or int(str(number))):
            yield f"{key}={number} must be {low} or more" + (f", at most {high}" if high else "")
    for key in _S3_OPTIONS:
        uri = opts[key]
        if uri is not None and not _S3.fullmatch(str(uri)):
            yield f"{key} '{uri}' must be s3://BUCKET/PREFIX"
    yield from _together(opts)
    for key, names in (("tags", ("Key", "Value")), ("metric_definitions", ("Name", "Regex"))):
        try:
            pairs(opts[key], key, names)
        except ValueError as e:
            yield str(e)


def _together(opts: AWSSageMakerOpts) -> Iterator[str]:
    if opts.max_wait is not None:
        if not opts.use_spot_instances:
            yield "max_wait is for spot instances: add use_spot_instances=True, or leave it out"
        elif opts.max_run is not None and opts.max_wait < opts.max_run:
            yield f"max_wait={opts.max_wait} is less than max_run={opts.max_run}, which it includes"
    if opts.use_spot_instances and opts.keep_alive_period_in_seconds:
        yield "keep_alive_period_in_seconds: spot instances cannot be kept"
    if opts.checkpoint_local_path and not opts.checkpoint_s3_uri:
        yield "checkpoint_local_path needs checkpoint_s3_uri"
    if bool(opts.subnets) != bool(opts.security_group_ids):
        yield "subnets and security_group_ids belong together: give both, or none"
    if opts.training_repository_credentials_provider_arn and (
        opts.training_repository_access_mode != "Vpc"
    ):
        yield (
            "training_repository_credentials_provider_arn needs training_repository_access_mode=Vpc"
        )
    if opts.model_channel_name and not opts.model_uri:
        yield "model_channel_name needs model_uri"
    if opts.git_config:
        yield "git_config is not taken: check the source out and run with --workspace FOLDER"
    if opts.dependencies:
        folders = ", ".join(
            f"{path}: {path.rstrip('/').rpartition('/')[2]}" for path in opts.dependencies
        )
        yield (
            "dependencies are not taken: map them into the workspace:"
            f" --workspace '{{.: \"\", {folders}}}'"
        )
    if opts.source_dir and not opts.source_dir.startswith(("s3://", "/")):
        yield (
            f"source_dir '{opts.source_dir}': local source goes along as the workspace:"
            f" leave it out and run with --workspace {opts.source_dir}"
        )


def pairs(value: Any, option: str, names: tuple[str, str]) -> list[dict[str, str]]:
    """Returns an option that is a list of pairs as the API has it.

    >>> pairs("team:vision;cost:7", "tags", ("Key", "Value"))
    [{'Key': 'team', 'Value': 'vision'}, {'Key': 'cost', 'Value': '7'}]

    Args:
        value: text, a list of such pairs, or None
        option: its name, for messages
        names: of the two fields

    Raises:
        ValueError: it is something else
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
            raise ValueError(f"{option}: {item!r} is no pair of texts named {' and '.join(names)}")
    return found


def _pair(item: str, option: str, names: tuple[str, str]) -> dict[str, str]:
    key, colon, value = item.partition(":")
    if not colon or not key.strip():
        raise ValueError(f"{option}: '{item}' is not of the form {names[0]}:{names[1]}".lower())
    return {names[0]: key.strip(), names[1]: value.strip()}
