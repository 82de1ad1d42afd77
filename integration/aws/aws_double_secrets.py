"""Secrets Manager of the double of AWS: secrets in memory, with names, ARNs and JSON keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aws_double_wire import Call, ServiceError

_ACCOUNT = "123456789012"
#: ARN of an execution role; a job needs such a role to read secrets.
EXECUTION_ROLE = f"arn:aws:iam::{_ACCOUNT}:role/execution"


class SecretsManager:
    """The double of Secrets Manager.

    Attributes:
        values: The value of each secret, by name.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def store(self, name: str, key: str, value: str) -> None:
        """Store a secret that has one JSON key; the conformance suite calls this method."""
        self.values[name] = json.dumps({key: value})

    def DescribeSecret(self, call: Call) -> dict[str, Any]:  # noqa: N802 - the operation's name
        name = call.params["SecretId"]
        if name not in self.values:
            words = "Secrets Manager can't find the specified secret."
            raise ServiceError("ResourceNotFoundException", words)
        return {"ARN": self._arn(call.region, name), "Name": name}

    def variables(self, region: str, container: Mapping[str, Any]) -> dict[str, str]:
        """Return the environment variables that a container gets from secrets.

        Raises:
            LookupError: The container has no execution role, or refers to a missing secret or key.
        """
        items = container.get("secrets", ())
        if items and not container.get("executionRoleArn"):
            raise LookupError("secrets need an execution role")
        return {item["name"]: self._value(region, item["valueFrom"]) for item in items}

    def _value(self, region: str, source: str) -> str:
        parts = source.split(":")
        arn, key = ":".join(parts[:7]), parts[7:8]
        for name, value in self.values.items():
            if self._arn(region, name) == arn:
                return str(json.loads(value)[key[0]]) if key else value
        raise LookupError(f"unable to retrieve the secret {source}")

    def _arn(self, region: str, name: str) -> str:
        return f"arn:aws:secretsmanager:{region}:{_ACCOUNT}:secret:{name}-Dou8le"
