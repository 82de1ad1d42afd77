"""An app as a request for a training job: plain data, as ``CreateTrainingJob`` takes it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.names.ids import random_id
from torchx_kit.names.limits import SAGEMAKER, fit_name
from torchx_kit.role_checks import entrypoint_problems
from torchx_kit.yaml_text import yaml_text
from torchx_sched_aws.sagemaker.checks import (
    app_problems,
    hyperparameter_problems,
    scripted_problems,
)
from torchx_sched_aws.sagemaker.command import (
    BOOT,
    MOST_VARIABLES,
    REPLICA_MARK,
    make_command,
)
from torchx_sched_aws.sagemaker.options import (
    ROLE_ARN,
    AWSSageMakerOpts,
    pairs,
    problems_of,
)
from torchx_sched_aws.sagemaker.script import is_script, script_hyperparameters, split_script
from torchx_sched_aws.tags import MOST_TAGS, make_tags
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import RoleTemplate, macros
from torchx_specs.overlays import OverlaySpec, apply_overlay
from torchx_specs.redaction import masked, masked_text

#: Any field of the request, laid over what options and app say.
REQUEST_OVERLAY = OverlaySpec("aws_sagemaker", "CreateTrainingJob", ("TrainingJobName",))
#: Variable with the role's name, for whoever describes the job.
ENV_TORCHX_ROLE_NAME = "TORCHX_ROLE_NAME"
#: Variable with the job's name where no runner gave a handle.
ENV_TORCHX_JOB_ID = "TORCHX_JOB_ID"
#: What SageMaker calls the first instance.
FIRST_HOST = "algo-1"
VOLUME_GB = 30
MAX_RUN = 24 * 60 * 60

_ID_LENGTH = 14
_MOST_METRICS = 40


logger = logging.getLogger(__name__)


@dataclass
class AWSSageMakerJob:
    """The native request.

    Args:
        job_name: the job's name
        job_def: parameters of ``CreateTrainingJob``
        images_to_push: kept for older code
        shown: the container's command for people, with secrets masked; None if it has none
    """

    job_name: str
    job_def: dict[str, Any]
    images_to_push: dict[str, Any] = field(default_factory=dict)
    shown: list[str] | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        return format_request(self)

    def __repr__(self) -> str:
        return format_request(self)


def make_request(app: AppDef, opts: AWSSageMakerOpts) -> AWSSageMakerJob:
    """Returns the request for an app; contacts nobody.

    Raises:
        RequestError: SageMaker could not run it; all problems in one error
    """
    problems = [*problems_of(opts), *app_problems(app, opts)]
    if problems:
        raise RequestError(problems)
    role = app.roles[0]
    region = find_region()
    scripted = opts.launch == "script" or (opts.launch == "auto" and is_script(role.args))
    name = _job_name(app, role, opts)
    values = macros.Values(
        img_root="",
        app_id=name,
        replica_id=REPLICA_MARK,
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
    shown = None
    own: list[str] = []
    hyperparameters = dict(opts.hyperparameters or {})
    try:
        if scripted:
            program, named = split_script(args)
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
        elif missing := list(entrypoint_problems(role)):
            own += missing
        else:
            words = [role.entrypoint, *args]
            command = make_command(words, env, MOST_VARIABLES)
            algorithm = request["AlgorithmSpecification"]
            algorithm["ContainerEntrypoint"] = command.entrypoint
            if command.arguments:
                algorithm["ContainerArguments"] = command.arguments
            request["Environment"] = command.environment
            shown = command.shown or None
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
    return AWSSageMakerJob(name, request, shown=shown)


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
    """Returns all of the request that has nothing to do with the command."""
    output = opts.output_path or _usual_output(opts.role, region)
    if not output:
        problems.append(
            "output_path is needed (s3://BUCKET/PREFIX) unless role is an ARN and a region is"
            " configured (AWS_DEFAULT_REGION)"
        )
    algorithm: dict[str, Any] = {
        "TrainingImage": role.image,
        "TrainingInputMode": opts.input_mode or "File",
    }
    metrics = pairs(opts.metric_definitions, "metric_definitions", ("Name", "Regex"))
    if len(metrics) > _MOST_METRICS:
        problems.append(f"{len(metrics)} metric_definitions: SageMaker takes {_MOST_METRICS}")
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
        "OutputDataConfig": _given(
            S3OutputPath=output,
            KmsKeyId=opts.output_kms_key,
            CompressionType="NONE" if opts.disable_output_compression else None,
        ),
        "ResourceConfig": _given(
            InstanceType=opts.instance_type,
            InstanceCount=instances,
            VolumeSizeInGB=opts.volume_size or VOLUME_GB,
            VolumeKmsKeyId=opts.volume_kms_key,
            KeepAlivePeriodInSeconds=opts.keep_alive_period_in_seconds,
        ),
        "StoppingCondition": _stopping(opts),
        "Tags": _tags(app, opts, problems),
    }
    request.update(_further(role, opts, output))
    if opts.code_location:
        logger.warning(
            "code_location is ignored: source goes along in the image, none is uploaded to S3"
        )
    return request


def _further(role: Role, opts: AWSSageMakerOpts, output: str) -> dict[str, Any]:
    """Returns the fields that are only there if asked for."""
    request: dict[str, Any] = _given(
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
        request["CheckpointConfig"] = _given(
            S3Uri=opts.checkpoint_s3_uri, LocalPath=opts.checkpoint_local_path
        )
    if opts.debugger_hook_config:
        request["DebugHookConfig"] = {"S3OutputPath": output}
    if opts.disable_profiler is not None:
        request["ProfilerConfig"] = _given(
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
    for pair in pairs(opts.tags, "tags", ("Key", "Value")):
        tags[pair["Key"]] = pair["Value"]
    if len(tags) > MOST_TAGS:
        problems.append(f"{len(tags)} tags: SageMaker takes {MOST_TAGS}")
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _usual_output(role: str, region: str) -> str:
    account = ROLE_ARN.fullmatch(role)
    return f"s3://sagemaker-{region}-{account[1]}/" if account and region else ""


def find_region() -> str:
    """Returns the region that the AWS SDK will use, without importing it; empty if none is set."""
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
    """Returns a request as plain YAML, with secrets masked."""
    return yaml_text({"job_name": job.job_name, "job_def": shown_request(job)}, sort_keys=False)


def shown_request(job: AWSSageMakerJob) -> dict[str, Any]:
    """Returns the parameters of a request with secrets masked."""
    shown = {key: _without_passwords(value) for key, value in job.job_def.items()}
    for key in ("Environment", "HyperParameters"):
        if key in shown:
            shown[key] = masked(job.job_def[key])
    algorithm = shown.get("AlgorithmSpecification") or {}
    given = [*algorithm.get("ContainerEntrypoint", ()), *algorithm.get("ContainerArguments", ())]
    if job.shown and given[2:3] == [BOOT]:
        # the words are pieces of a text that may hold secrets
        algorithm["ContainerEntrypoint"] = job.shown[:-1]
        algorithm["ContainerArguments"] = [masked_text(job.shown[-1])]
    return shown


def _without_passwords(value: Any) -> Any:
    """Returns a copy with the passwords of URLs masked.

    Names say nothing here: a tag is a ``Key`` and a ``Value``.
    """
    if isinstance(value, Mapping):
        return {key: _without_passwords(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_passwords(item) for item in value]
    return masked_text(value) if isinstance(value, str) else value
