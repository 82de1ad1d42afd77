"""Find the ARNs of secrets in AWS Secrets Manager; job definitions refer to secrets by ARN."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchx_sched_aws.batch.request import BatchJob, container_properties
from torchx_sched_aws.client import AccessDeniedError, AwsError, Clients, aws_errors
from torchx_specs.errors import RequestError
from torchx_specs.model.secrets import SecretRef, is_secret_reference, parse_secret

# An ARN ends with the secret's name, a hyphen and six characters. In a job definition, a JSON key
# may follow the ARN.
_ARN = re.compile(
    r"arn:[^:]+:secretsmanager:[^:]*:[^:]*:secret:([^:]+)-\w{6}(?::([^:]*):[^:]*:[^:]*)?"
)


def with_arns(clients: Clients, job: BatchJob) -> BatchJob:
    """Return a job whose definition refers to secrets by their ARNs; ``job`` is not changed.

    AWS Batch would look up a name that is not an ARN in the Parameter Store.

    Raises:
        RequestError: A secret does not exist.
        AwsError: AWS refused the request or did not answer.
    """
    definition = copy.deepcopy(job.job_def)
    items = [
        item
        for container in container_properties(definition)
        for item in container.get("secrets") or ()
        if is_secret_reference(str(item.get("valueFrom")))
    ]
    if not items:
        return job
    arns: dict[str, str] = {}
    problems = []
    for item in items:
        reference = parse_secret(item["valueFrom"])
        if reference is None:
            continue
        try:
            arn = arns.get(reference.name) or _arn(clients, reference.name)
        except RequestError as e:
            problems.append(f"env['{item['name']}']: {e}")
            continue
        arns[reference.name] = arn
        item["valueFrom"] = arn if reference.key is None else f"{arn}:{reference.key}::"
    if problems:
        raise RequestError(problems)
    return replace(job, job_def=definition)


def described_secrets(container: Mapping[str, Any]) -> dict[str, str]:
    """Return a container's references to secrets, by the name of the environment variable.

    Leave out values from the Parameter Store, and secrets that no reference can name.
    """
    env = {}
    for item in container.get("secrets") or ():
        found = _ARN.fullmatch(str(item.get("valueFrom")))
        if found and "/" not in found[1]:  # names in AWS may contain a slash, references may not
            reference = str(SecretRef(found[1], found[2] or None))
            if is_secret_reference(reference):
                env[str(item["name"])] = reference
    return env


def _arn(clients: Clients, name: str) -> str:
    """Return the ARN of a secret.

    Raises:
        RequestError: The secret does not exist.
        AwsError: AWS refused the request or did not answer.
    """
    try:
        with aws_errors(f"describe the secret {name}"):
            found = clients.client("secretsmanager").describe_secret(SecretId=name)
    except AccessDeniedError as e:
        raise AccessDeniedError(
            f"{e}; without the permission secretsmanager:DescribeSecret, set the option secrets to"
            " VARIABLE:ARN, and remove the reference",
            e.code,
        ) from None
    except AwsError as e:
        if e.code != "ResourceNotFoundException":
            raise
        found = {"DeletedDate": None}
    if "DeletedDate" in found:
        raise RequestError(
            f"the secret '{name}' does not exist in Secrets Manager in {clients.region}; create it"
            f" with: aws secretsmanager create-secret --name {name} --secret-string file://FILE"
        )
    return str(found["ARN"])
