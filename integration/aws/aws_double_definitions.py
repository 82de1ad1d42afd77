"""Job definitions of the Batch double: checks, node ranges, overrides and retries."""

from __future__ import annotations

import copy
import fnmatch
import json
import re
from collections.abc import Mapping
from typing import Any

from aws_double_wire import ServiceError

#: Service quotas: largest job definition and largest submission, in bytes.
DEFINITION_BYTES = 24 * 1024
SUBMISSION_BYTES = 30 * 1024
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}\Z")
_NODE_GROUPS = 5
_RANGE = re.compile(r"(\d*):(\d*)\Z|(\d+)\Z")


def refuse(message: str) -> ServiceError:
    """Return the error of Batch for an invalid request."""
    return ServiceError("ClientException", message)


def check_definition(params: Mapping[str, Any]) -> None:
    """Check a job definition before its registration.

    Raises:
        ServiceError: Batch would reject the definition.
    """
    if len(json.dumps(params).encode()) > DEFINITION_BYTES:
        raise refuse("Job definition size exceeds the maximum of 24 KiB")
    if not NAME.match(params["jobDefinitionName"]):
        raise refuse(f"jobDefinitionName is invalid: {params['jobDefinitionName']:.200}")
    check_retries(params.get("retryStrategy"))
    check_timeout(params.get("timeout"))
    if params["type"] == "multinode":
        if "nodeProperties" not in params or "containerProperties" in params:
            raise refuse("a multinode job definition needs nodeProperties, and they alone")
        _check_nodes(params["nodeProperties"])
    else:
        if "containerProperties" not in params or "nodeProperties" in params:
            raise refuse("a container job definition needs containerProperties, and they alone")
        _check_container(params["containerProperties"])


def check_retries(strategy: Mapping[str, Any] | None) -> None:
    """Raise a ServiceError if Batch would reject a retry strategy; None is valid."""
    if strategy is None:
        return
    if not 1 <= strategy.get("attempts", 1) <= 10:
        raise refuse("retryStrategy.attempts must be between 1 and 10")
    rules = strategy.get("evaluateOnExit", ())
    if len(rules) > 5:
        raise refuse("evaluateOnExit has at most 5 conditions")
    if rules and "attempts" not in strategy:
        raise refuse("evaluateOnExit needs attempts")
    for rule in rules:
        code = rule.get("onExitCode")
        if code is not None and not re.fullmatch(r"\d+\*?|\*", code):
            raise refuse(f"onExitCode is invalid: {code}")
        for key in ("onReason", "onStatusReason"):
            if rule.get(key) is not None and not re.fullmatch(r"[\w.:\s]*\*?", rule[key]):
                raise refuse(f"{key} is invalid: {rule[key]}")
        if not {"onExitCode", "onReason", "onStatusReason"} & rule.keys():
            raise refuse("a condition of evaluateOnExit needs something to match")


def check_timeout(timeout: Mapping[str, Any] | None) -> None:
    """Raise a ServiceError if Batch would reject a timeout; None is valid."""
    if timeout is not None and timeout.get("attemptDurationSeconds", 60) < 60:
        raise refuse("attemptDurationSeconds must be at least 60")


def is_retried(
    strategy: Mapping[str, Any], attempt: int, exit_code: int | None, reason: str, status: str
) -> bool:
    """Return whether Batch retries a job after a failed attempt.

    Args:
        strategy: Retry strategy of the job.
        attempt: Number of the failed attempt, from 1.
        exit_code: Exit code of the container; None if it did not start.
        reason: Reason in the description of the container.
        status: Status reason of the attempt.
    """
    if attempt >= strategy.get("attempts", 1):
        return False
    for rule in strategy.get("evaluateOnExit", ()):
        given = {
            "onExitCode": "" if exit_code is None else str(exit_code),
            "onReason": reason,
            "onStatusReason": status,
        }
        wanted = {key: rule[key] for key in given if rule.get(key) is not None}
        if all(_glob(pattern, given[key]) for key, pattern in wanted.items()):
            return bool(rule["action"].upper() == "RETRY")
    return True


def _glob(pattern: str, text: str) -> bool:
    if pattern.endswith("*"):
        return text.lower().startswith(pattern[:-1].lower())
    return text.lower() == pattern.lower()


def node_containers(
    properties: Mapping[str, Any], overrides: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Return the container properties of every node, with the overrides applied.

    Raises:
        ServiceError: The overrides do not fit the nodes.
    """
    count = properties["numNodes"]
    containers = {}
    known = []
    for group in properties["nodeRangeProperties"]:
        known.append(group["targetNodes"])
        for index in node_range(group["targetNodes"], count):
            containers[index] = copy.deepcopy(group["container"])
    for override in (overrides or {}).get("nodePropertyOverrides", ()):
        if override["targetNodes"] not in known:
            raise refuse(f"no node range is {override['targetNodes']}")
        for index in node_range(override["targetNodes"], count):
            apply_override(containers[index], override.get("containerOverrides", {}))
    return [containers[index] for index in range(count)]


def node_range(text: str, count: int) -> range:
    """Return the nodes of a range: ``a:b``, ``a:``, ``:b`` or ``a``.

    Raises:
        ServiceError: The job has no such nodes.
    """
    found = _RANGE.match(text)
    if found is None:
        raise refuse(f"targetNodes is invalid: {text}")
    if found[3]:
        first = last = int(found[3])
    else:
        first = int(found[1] or 0)
        last = int(found[2]) if found[2] else count - 1
    if last < first or first >= count:
        raise refuse(f"targetNodes {text}: the job has {count} nodes")
    return range(first, min(last, count - 1) + 1)


def apply_override(container: dict[str, Any], override: Mapping[str, Any]) -> None:
    """Apply the overrides of a submission to a container."""
    for key in ("command", "instanceType", "vcpus", "memory"):
        if key in override:
            container[key] = override[key]
    for key, name in (("environment", "name"), ("resourceRequirements", "type")):
        if key in override:
            merged = {item[name]: item for item in container.get(key, ())}
            merged.update({item[name]: item for item in override[key]})
            container[key] = list(merged.values())
    check_environment(container.get("environment", ()))


def check_environment(environment: Any) -> None:
    """Raise a ServiceError if an environment variable has a name that Batch reserves."""
    for item in environment:
        if item.get("name", "").startswith("AWS_BATCH"):
            raise refuse(f"environment variables cannot begin with AWS_BATCH: {item['name']}")


def _check_nodes(properties: Mapping[str, Any]) -> None:
    count, main = properties["numNodes"], properties["mainNode"]
    groups = properties["nodeRangeProperties"]
    if count < 1 or not 0 <= main < count:
        raise refuse(f"main node {main} of {count} nodes")
    if not 1 <= len(groups) <= _NODE_GROUPS:
        raise refuse(f"a job has at most {_NODE_GROUPS} node groups, not {len(groups)}")
    covered: set[int] = set()
    for group in groups:
        covered.update(node_range(group["targetNodes"], count))
        if "container" not in group:
            raise refuse(f"node range {group['targetNodes']} has no container")
        _check_container(group["container"])
    if covered != set(range(count)):
        raise refuse(f"node ranges have {len(covered)} of {count} nodes")
    if len({group["container"].get("instanceType", "") for group in groups}) > 1:
        raise refuse("all node groups must have the same instance type")


def _check_container(container: Mapping[str, Any]) -> None:
    if not container.get("image"):
        raise refuse("a container needs an image")
    wanted = {item["type"]: item["value"] for item in container.get("resourceRequirements", ())}
    for kind in ("VCPU", "MEMORY"):
        value = wanted.get(kind, "")
        if not fnmatch.fnmatch(value, "[0-9]*") or float(value) <= 0:
            raise refuse(f"resourceRequirements: {kind} is {value or 'missing'}")
    volumes = [volume.get("name") for volume in container.get("volumes", ())]
    for mount in container.get("mountPoints", ()):
        if mount.get("sourceVolume") not in volumes:
            raise refuse(f"mountPoints: no volume {mount.get('sourceVolume')}")
    if len(set(volumes)) != len(volumes):
        raise refuse(f"volumes have one name: {volumes}")
    for role in ("jobRoleArn", "executionRoleArn"):
        if role in container and not container[role].startswith("arn:"):
            raise refuse(f"{role} is no ARN: {container[role]}")
    check_environment(container.get("environment", ()))
