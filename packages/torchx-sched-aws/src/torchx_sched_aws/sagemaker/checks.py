"""What SageMaker cannot run: checks of apps and of their hyperparameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torchx_kit import role_checks
from torchx_sched_aws.sagemaker.command import (
    MOST_VARIABLES,
    REPLICA_MARK,
    make_command,
)
from torchx_sched_aws.sagemaker.options import AWSSageMakerOpts
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, RetryPolicy
from torchx_specs.model.templates import macros

_MOST_HYPERPARAMETERS = 100
_LONGEST_KEY = 256
_LONGEST_VALUE = 2500
_LONGEST_IMAGE = 255
_LINE_ENDS = re.compile("[\n\r\u0085\u2028\u2029]")


#: Name of the API, for messages.
API = "AWS's API"


def app_problems(app: AppDef, opts: AWSSageMakerOpts) -> Iterator[str]:
    if len(app.roles) != 1:
        names = ", ".join(role.name for role in app.roles) or "none"
        yield f"a training job is one role, the app has {len(app.roles)}: {names}"
    for name, value in (opts.environment or {}).items():
        for problem in role_checks.variable_problems(name, value, API):
            yield f"option environment: {problem}"
    for role in app.roles[:1]:
        where = f"role '{role.name}'"
        for problem in (
            *role_checks.image_problems(role),
            *role_checks.replica_count_problems(role),
            *role_checks.text_problems(role, API),
        ):
            yield f"{where}: {problem}"
        if len(role.image) > _LONGEST_IMAGE:
            yield f"{where}: image '{role.image:.60}': SageMaker takes {_LONGEST_IMAGE} characters"
        if not role.entrypoint and not role.args:
            yield f"{where}: it has neither entrypoint nor arguments"
        if role.mounts:
            yield (
                f"{where}: SageMaker mounts nothing by itself; set InputDataConfig by an overlay"
                " (S3, EFS, FSx for Lustre)"
            )
        if role.max_retries > 30:
            yield f"{where}: max_retries is {role.max_retries}, SageMaker tries again 30 times"
        if role.max_retries > 0 and role.retry_policy == RetryPolicy.REPLICA:
            yield f"{where}: SageMaker starts a job again, not one replica (RetryPolicy.REPLICA)"


def hyperparameter_problems(parameters: Mapping[str, str]) -> Iterator[str]:
    if len(parameters) > _MOST_HYPERPARAMETERS:
        yield (
            f"{len(parameters)} hyperparameters: SageMaker takes {_MOST_HYPERPARAMETERS};"
            " launch=command takes more arguments"
        )
    for name, value in parameters.items():
        if len(name) > _LONGEST_KEY or len(value) > _LONGEST_VALUE:
            yield (
                f"hyperparameter '{name:.60}' has {len(value)} characters, SageMaker takes"
                f" {_LONGEST_VALUE}; launch=command takes longer ones"
            )
        if _LINE_ENDS.search(name) or _LINE_ENDS.search(value):
            yield f"hyperparameter '{name:.60}' holds a line end, which SageMaker does not take"


def scripted_problems(args: list[str], env: Mapping[str, str]) -> Iterator[str]:
    """Yields what only a command can have."""
    if any(REPLICA_MARK in text for text in (*args, *env.values())):
        yield (
            f"{macros.replica_id} is not known to launch=script, whose instances share their"
            " arguments; use launch=command"
        )
    # what a command may have in any number and length is checked where it is made
    try:
        command = make_command(["true"], env, MOST_VARIABLES)
    except RequestError as e:
        yield from e.problems
        return
    for name in env:
        if name not in command.environment:
            yield (
                f"environment variable '{name:.60}': SageMaker takes {MOST_VARIABLES} of 512"
                " characters; launch=command takes more"
            )
