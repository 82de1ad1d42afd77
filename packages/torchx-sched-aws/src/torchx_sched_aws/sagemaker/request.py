"""The native request: the parameters of ``CreateTrainingJob``, as plain data."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.names.ids import random_id
from torchx_kit.names.limits import SAGEMAKER, fit_name
from torchx_kit.role_templates import RoleTemplate
from torchx_kit.text.yaml_text import yaml_text
from torchx_sched_aws.sagemaker.checks import (
    hyperparameter_problems,
    scripted_problems,
)
from torchx_sched_aws.sagemaker.command import (
    BOOTSTRAP,
    MAX_VARIABLES,
    REPLICA_PLACEHOLDER,
    make_command,
)
from torchx_sched_aws.sagemaker.options import (
    ROLE_ARN,
    AWSSageMakerOpts,
    parse_pairs,
)
from torchx_sched_aws.sagemaker.script import (
    runs_as_script,
    script_argv,
    script_hyperparameters,
    split_script,
)
from torchx_sched_aws.tags import MAX_TAGS, make_tags
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros
from torchx_specs.overlays import OverlaySpec, apply_overlay
from torchx_specs.redaction import masked
from torchx_specs.schedulers.request_checks import entrypoint_problems

#: Overlay for any field of the request.
REQUEST_OVERLAY = OverlaySpec("aws_sagemaker", "CreateTrainingJob", ("TrainingJobName",))
#: Environment variable with the role's name, which `describe` reads back.
ENV_TORCHX_ROLE_NAME = "TORCHX_ROLE_NAME"
#: Environment variable with the job's name, unless the runner sets the variable to an app handle.
ENV_TORCHX_JOB_ID = "TORCHX_JOB_ID"
#: Host name of the first instance.
FIRST_HOST = "algo-1"
VOLUME_GB = 30
MAX_RUN = 24 * 60 * 60

_ID_LENGTH = 14
_MAX_METRICS = 40


logger = logging.getLogger(__name__)


@dataclass
class AWSSageMakerJob:
    """A request to SageMaker.

    Attributes:
        job_name: Name of the job.
        job_def: Parameters of ``CreateTrainingJob``.
        images_to_push: Unused; kept for code written for upstream's TorchX.
        display_argv: The container's command to print, with secrets masked; None unless the command
            is a shell script, in whose pieces secrets cannot be recognized.
    """

    job_name: str
    job_def: dict[str, Any]
    images_to_push: dict[str, Any] = field(default_factory=dict)
    display_argv: list[str] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return format_request(self)

    def __repr__(self) -> str:
        return format_request(self)


def make_request(app: AppDef, opts: AWSSageMakerOpts) -> AWSSageMakerJob:
    """Return the request for an app, without contacting AWS.

    Raises:
        RequestError: SageMaker cannot run the app; the error lists every problem.
    """
    problems: list[str] = []
    role = app.roles[0]
    region = configured_region()
    scripted = opts.launch == "script" or (
        opts.launch == "auto" and runs_as_script(role.entrypoint, role.args)
    )
    name = _job_name(app, role, opts)
    values = macros.Values(
        img_root="",
        app_id=name,
        replica_id=REPLICA_PLACEHOLDER,
        rank0_env=ENV_RANK0_HOST,
    )
    template = RoleTemplate(role)
    args = template.args(values)
    instances = opts.instance_count or role.num_replicas
    env = {
        **(opts.environment or {}),
        ENV_TORCHX_JOB_ID: name,
        ENV_TORCHX_ROLE_NAME: role.name,
        ENV_RANK0_HOST: FIRST_HOST if instances > 1 else "localhost",
        **template.env(values),
    }
    request = _request(app, role, opts, name, instances, region, problems)
    display_argv = None
    own: list[str] = []
    hyperparameters = dict(opts.hyperparameters or {})
    try:
        if scripted:
            program, named = split_script(script_argv(role.entrypoint, args))
            hyperparameters = script_hyperparameters(
                program,
                {**hyperparameters, **named},
                name,
                opts.source_dir,
                opts.container_log_level,
                region,
            )
            own.extend(scripted_problems(args, env))
            request["Environment"] = env
        elif missing := list(entrypoint_problems(role)):  # only a script needs none
            own += missing
        else:
            argv = [role.entrypoint, *args]
            command = make_command(argv, env, MAX_VARIABLES)
            algorithm = request["AlgorithmSpecification"]
            algorithm["ContainerEntrypoint"] = command.entrypoint
            if command.arguments:
                algorithm["ContainerArguments"] = command.arguments
            request["Environment"] = command.environment
            display_argv = command.display_argv or None
    except RequestError as e:
        own += e.problems
    problems += [f"role '{role.name}': {problem}" for problem in own]
    problems.extend(hyperparameter_problems(hyperparameters))
    if problems:
        raise RequestError(problems)
    if hyperparameters:
        request["HyperParameters"] = hyperparameters
    for target in (app, role):
        apply_overlay(request, REQUEST_OVERLAY.get(target))
    return AWSSageMakerJob(name, request, display_argv=display_argv)


def _job_name(app: AppDef, role: Role, opts: AWSSageMakerOpts) -> str:
    base = opts.base_job_name or app.name.partition("/")[2] or app.name.strip("/") or role.name
    room = SAGEMAKER.max_length - _ID_LENGTH - 1
    return f"{fit_name(base, SAGEMAKER.within(room))}-{random_id(_ID_LENGTH)}"


def _request(
    app: AppDef,
    role: Role,
    opts: AWSSageMakerOpts,
    name: str,
    instances: int,
    region: str,
    problems: list[str],
) -> dict[str, Any]:
    """Return the parts of the request that do not depend on the command.

    Appends the problems found to ``problems``.
    """
    output = opts.output_path or _default_output_path(opts.role, region)
    if not output:
        problems.append(
            "output_path is missing: set it to s3://BUCKET/PREFIX, or set role to an ARN and"
            " configure a region (AWS_DEFAULT_REGION)"
        )
    algorithm: dict[str, Any] = {
        "TrainingImage": role.image,
        "TrainingInputMode": opts.input_mode or "File",
    }
    metrics = parse_pairs(opts.metric_definitions, "metric_definitions", ("Name", "Regex"))
    if len(metrics) > _MAX_METRICS:
        problems.append(f"{len(metrics)} metric_definitions; SageMaker allows {_MAX_METRICS}")
    if metrics:
        algorithm["MetricDefinitions"] = metrics
    if opts.enable_sagemaker_metrics is not None:
        algorithm["EnableSageMakerMetricsTimeSeries"] = opts.enable_sagemaker_metrics
    if opts.training_repository_access_mode:
        access: dict[str, Any] = {
            "TrainingRepositoryAccessMode": opts.training_repository_access_mode
        }
        if opts.training_repository_credentials_provider_arn:
            arn = opts.training_repository_credentials_provider_arn
            access["TrainingRepositoryAuthConfig"] = {
                "TrainingRepositoryCredentialsProviderArn": arn
            }
        algorithm["TrainingImageConfig"] = access
    request: dict[str, Any] = {
        "TrainingJobName": name,
        "AlgorithmSpecification": algorithm,
        "RoleArn": opts.role,
        "OutputDataConfig": _present(
            S3OutputPath=output,
            KmsKeyId=opts.output_kms_key,
            CompressionType="NONE" if opts.disable_output_compression else None,
        ),
        "ResourceConfig": _present(
            InstanceType=opts.instance_type,
            InstanceCount=instances,
            VolumeSizeInGB=opts.volume_size or VOLUME_GB,
            VolumeKmsKeyId=opts.volume_kms_key,
            KeepAlivePeriodInSeconds=opts.keep_alive_period_in_seconds,
        ),
        "StoppingCondition": _stopping(opts),
        "Tags": _tags(app, opts, problems),
    }
    request.update(_optional_fields(role, opts, output))
    if opts.code_location:
        logger.warning(
            "code_location is ignored: the image contains the source, nothing is uploaded to S3"
        )
    return request


def _optional_fields(role: Role, opts: AWSSageMakerOpts, output: str) -> dict[str, Any]:
    """Return the fields that exist only if an option or the role's ``max_retries`` sets them."""
    request: dict[str, Any] = _present(
        EnableNetworkIsolation=opts.enable_network_isolation,
        EnableInterContainerTrafficEncryption=opts.encrypt_inter_container_traffic,
        EnableManagedSpotTraining=opts.use_spot_instances,
    )
    if opts.subnets and opts.security_group_ids:
        request["VpcConfig"] = {
            "SecurityGroupIds": list(opts.security_group_ids),
            "Subnets": list(opts.subnets),
        }
    if opts.model_uri:
        request["InputDataConfig"] = [
            {
                "ChannelName": opts.model_channel_name or "model",
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix",
                        "S3Uri": opts.model_uri,
                        "S3DataDistributionType": "FullyReplicated",
                    }
                },
                "ContentType": "application/x-sagemaker-model",
                "InputMode": "File",
            }
        ]
    if opts.checkpoint_s3_uri:
        request["CheckpointConfig"] = _present(
            S3Uri=opts.checkpoint_s3_uri, LocalPath=opts.checkpoint_local_path
        )
    if opts.debugger_hook_config:
        request["DebugHookConfig"] = {"S3OutputPath": output}
    if opts.disable_profiler is not None:
        request["ProfilerConfig"] = _present(
            S3OutputPath=None if opts.disable_profiler else output,
            DisableProfiler=opts.disable_profiler,
        )
    if opts.enable_infra_check is not None:
        request["InfraCheckConfig"] = {"EnableInfraCheck": opts.enable_infra_check}
    attempts = opts.max_retry_attempts or role.max_retries
    if attempts:
        request["RetryStrategy"] = {"MaximumRetryAttempts": attempts}
    return request


def _stopping(opts: AWSSageMakerOpts) -> dict[str, int]:
    run = opts.max_run or MAX_RUN
    if opts.max_run is None and opts.max_wait is not None:
        run = min(run, opts.max_wait)
    stopping = {"MaxRuntimeInSeconds": run}
    if opts.use_spot_instances:
        stopping["MaxWaitTimeInSeconds"] = opts.max_wait or run
    return stopping


def _tags(app: AppDef, opts: AWSSageMakerOpts, problems: list[str]) -> list[dict[str, str]]:
    try:
        tags = make_tags(app.name, opts.user, app.metadata)
    except RequestError as e:
        problems += e.problems
        return []
    for pair in parse_pairs(opts.tags, "tags", ("Key", "Value")):
        tags[pair["Key"]] = pair["Value"]
    if len(tags) > MAX_TAGS:
        problems.append(f"{len(tags)} tags; SageMaker allows {MAX_TAGS}")
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _default_output_path(role: str, region: str) -> str:
    account = ROLE_ARN.fullmatch(role)
    return f"s3://sagemaker-{region}-{account[1]}/" if account and region else ""


def configured_region() -> str:
    """Return the region that the AWS SDK would use, without importing the SDK.

    Return an empty string if no region is configured.
    """
    region = os.environ.get("AWS_DEFAULT_REGION")
    if region:
        return region
    import configparser

    path = os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    profile = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    parser = configparser.RawConfigParser()
    try:
        parser.read(os.path.expanduser(path), encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return ""
    for section in (f"profile {profile}", profile):
        if parser.has_option(section, "region"):
            return parser.get(section, "region").strip()
    return ""


def format_request(job: AWSSageMakerJob) -> str:
    """Return a request as YAML, with secrets masked."""
    return yaml_text({"job_name": job.job_name, "job_def": masked_request(job)}, sort_keys=False)


def masked_request(job: AWSSageMakerJob) -> dict[str, Any]:
    """Return the parameters of a request, with secrets masked."""
    shown: dict[str, Any] = masked(job.job_def)
    algorithm = job.job_def.get("AlgorithmSpecification") or {}
    entrypoint = list(algorithm.get("ContainerEntrypoint") or ())
    arguments = list(algorithm.get("ContainerArguments") or ())
    if job.display_argv and [*entrypoint, *arguments][2:3] == [BOOTSTRAP]:
        # The strings are pieces of a script that may contain secrets.
        argv, first = job.display_argv, len(job.display_argv) - 1
    else:
        # An option may be the last string of the entrypoint, and its value the first argument.
        argv, first = masked([*entrypoint, *arguments]), len(entrypoint)
    if entrypoint:
        shown["AlgorithmSpecification"]["ContainerEntrypoint"] = argv[:first]
    if arguments:
        shown["AlgorithmSpecification"]["ContainerArguments"] = argv[first:]
    return shown
