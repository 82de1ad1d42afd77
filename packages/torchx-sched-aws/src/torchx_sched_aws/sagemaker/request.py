"""The native request: the parameters of ``CreateTrainingJob``, as plain data."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torchx_kit.names.ids import random_id
from torchx_kit.names.limits import SAGEMAKER, fit_name
from torchx_kit.role_checks import for_each_role
from torchx_kit.role_templates import RoleTemplate
from torchx_kit.text.yaml_text import yaml_text
from torchx_sched_aws.base_scheduler import NOT_UTF8
from torchx_sched_aws.command import BOOTSTRAP, make_placeholder, training_command
from torchx_sched_aws.limits import limit_problems, without_unset
from torchx_sched_aws.sagemaker.options import (
    PLACES,
    ROLE_ARN,
    AWSSageMakerOpts,
    option_problems,
    pairs,
)
from torchx_sched_aws.sagemaker.script import runs_as_script, script_hyperparameters, split_script
from torchx_sched_aws.tags import make_tags, tag_problems
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros
from torchx_specs.overlays import OverlaySpec, apply_overlay
from torchx_specs.redaction import masked
from torchx_specs.schedulers.request_checks import entrypoint_problems, variable_problems
from torchx_specs.settings import ENV_TORCHX_JOB_ID, ENV_TORCHX_REPLICA_ID

#: Overlay for any field of the request.
REQUEST_OVERLAY = OverlaySpec("aws_sagemaker", "CreateTrainingJob", ("TrainingJobName",))
#: Environment variable with the role's name, which `describe` reads back.
ENV_TORCHX_ROLE_NAME = "TORCHX_ROLE_NAME"
#: Host name of the first instance.
FIRST_HOST = "algo-1"
VOLUME_GB = 30
MAX_RUN = 24 * 60 * 60

_ID_LENGTH = 14

logger = logging.getLogger(__name__)


@dataclass
class AWSSageMakerJob:
    """A request to SageMaker.

    Attributes:
        job_name: Name of the job.
        job_def: Parameters of ``CreateTrainingJob``.
        images_to_push: Unused; kept for code written for upstream's TorchX.
    """

    job_name: str
    job_def: dict[str, Any]
    images_to_push: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the request as YAML, with secrets masked."""
        fields = {"job_name": self.job_name, "job_def": _masked(self.job_def)}
        return yaml_text(fields, sort_keys=False)

    __repr__ = __str__


def request_problems(app: AppDef, opts: AWSSageMakerOpts) -> Iterator[str]:
    """Yield every problem of an app and its options, one line each."""
    yield from option_problems(opts)
    if not _output_path(opts):
        yield (
            "output_path is missing: set it to s3://BUCKET/PREFIX, or set role to an ARN and"
            " configure a region (AWS_DEFAULT_REGION)"
        )
    with suppress(ValueError):  # option_problems reports it
        yield from tag_problems(_tags(app, opts))
    if len(app.roles) > 1:
        names = ", ".join(role.name for role in app.roles)
        yield f"the app has {len(app.roles)} roles ({names}); a training job has exactly one"
    for name, value in (opts.environment or {}).items():
        for problem in variable_problems(name, value, NOT_UTF8):
            yield f"option environment: {problem}"
    for role in app.roles[:1]:
        where = f"role '{role.name}': "
        image = "AlgorithmSpecification.TrainingImage"
        yield from limit_problems(role.image, image, f"{where}image")
        if role.mounts:
            yield (
                f"{where}SageMaker supports no mounts; set InputDataConfig (S3, EFS, FSx for"
                " Lustre) with an overlay"
            )
        if role.max_retries > 0 and role.retry_policy == RetryPolicy.REPLICA:
            yield (
                f"{where}retry_policy is RetryPolicy.REPLICA; SageMaker can only restart the whole"
                " job"
            )


def make_request(app: AppDef, opts: AWSSageMakerOpts) -> AWSSageMakerJob:
    """Return the request for an app without problems, without contacting AWS.

    Raises:
        RequestError: SageMaker cannot run the command; the error lists every problem.
    """
    (role,) = app.roles
    request = _request(app, role, opts)
    for_each_role(app.roles, lambda role: _set_command(request, role, opts))
    for target in (app, role):
        apply_overlay(request, REQUEST_OVERLAY.get(target))
    return AWSSageMakerJob(request["TrainingJobName"], request)


def _set_command(request: dict[str, Any], role: Role, opts: AWSSageMakerOpts) -> None:
    """Set the fields of the request that depend on the command.

    Raises:
        RequestError: SageMaker cannot run the command.
    """
    name, instances = request["TrainingJobName"], request["ResourceConfig"]["InstanceCount"]
    placeholder = make_placeholder([role.entrypoint, *role.args, *role.env.values()])
    values = macros.Values("", name, placeholder, ENV_RANK0_HOST)
    template = RoleTemplate(role)
    args = template.args(values)
    env = {
        **(opts.environment or {}),
        ENV_TORCHX_JOB_ID: name,  # The runner sets it to the app's handle.
        ENV_TORCHX_ROLE_NAME: role.name,
        ENV_RANK0_HOST: FIRST_HOST if instances > 1 else "localhost",
        **template.env(values),
    }
    hyperparameters = dict(opts.hyperparameters or {})
    if opts.launch == "script" or (
        opts.launch == "auto" and runs_as_script(role.entrypoint, role.args)
    ):
        program, named = split_script(role.entrypoint, args)
        hyperparameters = script_hyperparameters(
            program,
            {**hyperparameters, **named},
            name,
            opts.source_dir,
            opts.container_log_level,
            configured_region(),
        )
        problems = list(_script_problems(args, env, placeholder))
    else:
        problems = list(entrypoint_problems(role))  # only a script needs none
        env[ENV_TORCHX_REPLICA_ID] = placeholder if instances > 1 else "0"
        fields, env = training_command([role.entrypoint, *args], env, placeholder)
        request["AlgorithmSpecification"].update(fields)
    problems += [
        f"{problem}; use launch=command for other arguments"
        for problem in limit_problems(hyperparameters, "HyperParameters", "hyperparameters")
    ]
    if problems:
        raise RequestError(problems)
    request["Environment"] = env
    if hyperparameters:
        request["HyperParameters"] = hyperparameters


def _script_problems(args: list[str], env: Mapping[str, str], placeholder: str) -> Iterator[str]:
    """Yield the parts of a role that only launch=command supports, one line each."""
    if any(placeholder in text for text in (*args, *env.values())):
        yield (
            f"{macros.replica_id} cannot be used with launch=script, whose instances share one"
            " command; use launch=command"
        )
    for problem in limit_problems(dict(env), "Environment", "environment variables"):
        yield f"{problem}; use launch=command for more"


def _job_name(app: AppDef, role: Role, opts: AWSSageMakerOpts) -> str:
    base = opts.base_job_name or app.name.partition("/")[2] or app.name.strip("/") or role.name
    room = SAGEMAKER.max_length - _ID_LENGTH - 1
    return f"{fit_name(base, SAGEMAKER.within(room))}-{random_id(_ID_LENGTH)}"


def _request(app: AppDef, role: Role, opts: AWSSageMakerOpts) -> dict[str, Any]:
    """Return the parts of the request that do not depend on the command."""
    output = _output_path(opts)
    model = {
        "S3DataType": "S3Prefix",
        "S3Uri": opts.model_uri,
        "S3DataDistributionType": "FullyReplicated",
    }
    channel = {
        "ChannelName": opts.model_channel_name or "model",
        "DataSource": {"S3DataSource": model},
        "ContentType": "application/x-sagemaker-model",
        "InputMode": "File",
    }
    request: dict[str, Any] = {
        "TrainingJobName": _job_name(app, role, opts),
        "AlgorithmSpecification": {
            "TrainingImage": role.image,
            "MetricDefinitions": pairs(opts, "metric_definitions"),
        },
        "RoleArn": opts.role,
        "InputDataConfig": [channel] if opts.model_uri else [],
        "OutputDataConfig": {
            "CompressionType": "NONE" if opts.disable_output_compression else None
        },
        "DebugHookConfig": {"S3OutputPath": output if opts.debugger_hook_config else None},
        "ProfilerConfig": {"S3OutputPath": output if opts.disable_profiler is False else None},
        "Tags": [{"Key": key, "Value": value} for key, value in _tags(app, opts).items()],
    }
    run = opts.max_run or min(MAX_RUN, opts.max_wait or MAX_RUN)
    values = {
        **{option: opts[option] for option in PLACES},
        "input_mode": opts.input_mode or "File",
        "output_path": output,
        "instance_count": opts.instance_count or role.num_replicas,
        "volume_size": opts.volume_size or VOLUME_GB,
        "max_run": run,
        "max_wait": (opts.max_wait or run) if opts.use_spot_instances else None,
        "max_retry_attempts": opts.max_retry_attempts or role.max_retries or None,
    }
    for option, place in PLACES.items():
        *parents, name = place.split(".")
        fields = request
        for parent in parents:
            fields = fields.setdefault(parent, {})
        fields[name] = None if values[option] == "" else values[option]
    if opts.code_location:
        logger.warning(
            "code_location is ignored: the image contains the source, nothing is uploaded to S3"
        )
    request = without_unset(request)
    return request


def _tags(app: AppDef, opts: AWSSageMakerOpts) -> dict[str, str]:
    own = {pair["Key"]: pair["Value"] for pair in pairs(opts, "tags")}
    return {**make_tags(app.name, opts.user, app.metadata), **own}


def _output_path(opts: AWSSageMakerOpts) -> str:
    """Return the location of the output; an empty string if the default location is not known."""
    region = configured_region()
    if opts.output_path or not region or not ROLE_ARN.fullmatch(opts.role):
        return opts.output_path or ""
    return f"s3://sagemaker-{region}-{opts.role.split(':')[4]}/"


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
    with suppress(configparser.Error, OSError, UnicodeDecodeError):
        parser.read(os.path.expanduser(path), encoding="utf-8")
    found = (parser.get(name, "region", fallback="") for name in (f"profile {profile}", profile))
    return next(filter(None, found), "").strip()


def _masked(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request, with secrets masked."""
    shown: dict[str, Any] = masked(request)
    algorithm = request.get("AlgorithmSpecification") or {}
    entrypoint = list(algorithm.get("ContainerEntrypoint") or ())
    argv = [*entrypoint, *(algorithm.get("ContainerArguments") or ())]
    first = len(entrypoint)
    if argv[2:3] == [BOOTSTRAP]:
        # The next strings are pieces of a script, which hide secrets: show the script's words.
        argv, first = [*argv[:4], *shlex.split("".join(argv[4:]))], 4
    # An option may be the last string of the entrypoint, and its value the first argument.
    argv = masked(argv)
    if argv[:first]:
        shown["AlgorithmSpecification"]["ContainerEntrypoint"] = argv[:first]
    if argv[first:]:
        shown["AlgorithmSpecification"]["ContainerArguments"] = argv[first:]
    return shown
