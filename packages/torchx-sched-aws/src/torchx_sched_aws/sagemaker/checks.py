"""Checks that find the reasons why SageMaker cannot run an app."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torchx_sched_aws.base_scheduler import NOT_UTF8
from torchx_sched_aws.sagemaker.command import (
    MAX_VALUE_LENGTH,
    MAX_VARIABLES,
    REPLICA_PLACEHOLDER,
    make_command,
)
from torchx_sched_aws.sagemaker.options import AWSSageMakerOpts, option_problems
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, RetryPolicy
from torchx_specs.model.templates import macros
from torchx_specs.schedulers.request_checks import RequestRules, variable_problems

_MAX_HYPERPARAMETERS = 100
_MAX_KEY_LENGTH = 256
_MAX_VALUE_LENGTH = 2500
_MAX_IMAGE_LENGTH = 255
_LINE_ENDS = re.compile("[\n\r\u0085\u2028\u2029]")


RULES = RequestRules(
    needs_resource=False,
    needs_image=True,
    max_retries=30,
)


def request_problems(app: AppDef, opts: AWSSageMakerOpts) -> Iterator[str]:
    """Yield every problem of an app and its options, one line each."""
    yield from option_problems(opts)
    if len(app.roles) > 1:
        names = ", ".join(role.name for role in app.roles)
        yield f"the app has {len(app.roles)} roles ({names}); a training job has exactly one"
    for name, value in (opts.environment or {}).items():
        for problem in variable_problems(name, value, NOT_UTF8):
            yield f"option environment: {problem}"
    for role in app.roles[:1]:
        where = f"role '{role.name}'"
        if len(role.image) > _MAX_IMAGE_LENGTH:
            yield (
                f"{where}: image '{role.image:.60}' has {len(role.image)} characters; SageMaker"
                f" allows {_MAX_IMAGE_LENGTH}"
            )
        if role.mounts:
            yield (
                f"{where}: SageMaker supports no mounts; set InputDataConfig (S3, EFS, FSx for"
                " Lustre) with an overlay"
            )
        if role.max_retries > 0 and role.retry_policy == RetryPolicy.REPLICA:
            yield (
                f"{where}: retry_policy is RetryPolicy.REPLICA; SageMaker can only restart the"
                " whole job"
            )


def hyperparameter_problems(parameters: Mapping[str, str]) -> Iterator[str]:
    """Yield every problem of a job's hyperparameters, one line each."""
    if len(parameters) > _MAX_HYPERPARAMETERS:
        yield (
            f"{len(parameters)} hyperparameters; SageMaker allows {_MAX_HYPERPARAMETERS}, use"
            " launch=command for more arguments"
        )
    for name, value in parameters.items():
        for what, text, limit in (
            ("name", name, _MAX_KEY_LENGTH),
            ("value", value, _MAX_VALUE_LENGTH),
        ):
            if len(text) > limit:
                yield (
                    f"hyperparameter '{name:.60}': its {what} has {len(text)} characters; SageMaker"
                    f" allows {limit}, use launch=command for longer ones"
                )
        if _LINE_ENDS.search(name) or _LINE_ENDS.search(value):
            yield f"hyperparameter '{name:.60}' contains a line end, which SageMaker does not allow"


def scripted_problems(args: list[str], env: Mapping[str, str]) -> Iterator[str]:
    """Yield the parts of a role that only launch=command supports, one line each."""
    if any(REPLICA_PLACEHOLDER in text for text in (*args, *env.values())):
        yield (
            f"{macros.replica_id} cannot be used with launch=script, whose instances share one"
            " command; use launch=command"
        )
    # make_command does not put variables that only a shell script can set into `environment`.
    try:
        command = make_command(["true"], env, MAX_VARIABLES)
    except RequestError as e:
        yield from e.problems
        return
    for name in env:
        if name not in command.environment:
            yield (
                f"environment variable '{name:.60}' is too many or too long; SageMaker allows"
                f" {MAX_VARIABLES} variables of {MAX_VALUE_LENGTH} characters, use launch=command"
                " for more"
            )
