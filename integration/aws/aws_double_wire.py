"""The protocol of the AWS double: decodes requests and encodes responses with botocore's models.

Every request and response is checked against the model: unknown and missing members, types, ranges,
lengths, enumerations, patterns. If a value in a request breaks a constraint, the response is the
service's own error. A request that no client of the service could send, or an invalid response of
the double, is a violation, which fails the test.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any
from urllib.parse import unquote, urlsplit

import botocore.session
from botocore.model import OperationModel, ServiceModel, Shape
from botocore.validate import ParamValidator

#: Error code of each service for a value that breaks a constraint.
CONSTRAINT_ERRORS = {
    "batch": "ClientException",
    "logs": "InvalidParameterException",
    "sagemaker": "ValidationException",
    "secretsmanager": "InvalidParameterException",
}
_CREDENTIAL = re.compile(r"Credential=([^/]+)/\d{8}/([^/]+)/([^/]+)/aws4_request")
_LINE_ENDS = re.compile("[\n\r\u0085\u2028\u2029]")
_CLASSES = {r"\p{L}": r"\w", r"\p{N}": r"\d", r"\p{Z}": r" ", r"\p{Alnum}": "a-zA-Z0-9"}


class ServiceError(Exception):
    """An error response of a service."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class ViolationError(Exception):
    """A request or response that does not fit the service's model."""


@dataclass(frozen=True)
class Call:
    """A decoded request.

    Args:
        service: ``batch``, ``logs``, ``sagemaker`` or ``secretsmanager``.
        operation: Model of the operation.
        params: Parameters of the operation.
        region: Region in the signature.
        token: Session token in the signature.
        key: Access key in the signature.
    """

    service: str
    operation: OperationModel
    params: dict[str, Any] = field(default_factory=dict)
    region: str = ""
    token: str = ""
    key: str = ""

    @property
    def name(self) -> str:
        return str(self.operation.name)


@functools.cache
def wire() -> Wire:
    """Return the cached :class:`Wire`: its service models take a second to load."""
    return Wire()


class Wire:
    """Decodes requests and encodes responses, and checks both against the service models."""

    def __init__(self) -> None:
        session = botocore.session.Session()
        self.models: dict[str, ServiceModel] = {
            name: session.get_service_model(name) for name in CONSTRAINT_ERRORS
        }
        self._targets = {
            str(model.metadata["targetPrefix"]): name
            for name, model in self.models.items()
            if model.metadata["protocol"] == "json"
        }
        self._routes = list(_routes(self.models["batch"]))

    def decode(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Call:
        """Decode a request and check it against the model.

        Raises:
            ServiceError: The request is not signed, or a value breaks a constraint.
            ViolationError: No client of the service could send this request.
        """
        service, operation, params = self._operation(method, target, headers, body)
        signed = _CREDENTIAL.search(headers.get("Authorization", ""))
        if signed is None:
            raise ServiceError(
                "MissingAuthenticationTokenException", "the request isn't signed", 403
            )
        if signed[3] != service:
            raise ServiceError(
                "SignatureDoesNotMatch", f"signed for {signed[3]}, sent to {service}", 403
            )
        token = headers.get("X-Amz-Security-Token", "")
        call = Call(service, operation, params, signed[2], token, signed[1])
        broken = _check(operation.input_shape, params, f"request {service}.{operation.name}")
        if broken:
            raise ServiceError(
                CONSTRAINT_ERRORS[service],
                f"{len(broken)} validation error(s) detected: {'; '.join(broken)}",
            )
        return call

    def _operation(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[str, OperationModel, dict[str, Any]]:
        prefix, dot, name = headers.get("X-Amz-Target", "").partition(".")
        if dot:
            if prefix not in self._targets or (method, target) != ("POST", "/"):
                raise ViolationError(f"no such target: {method} {target} {prefix}.{name}")
            service = self._targets[prefix]
            version = self.models[service].metadata["jsonVersion"]
            if headers.get("Content-Type") != f"application/x-amz-json-{version}":
                raise ViolationError(f"wrong content type: {headers.get('Content-Type')}")
            return service, self.models[service].operation_model(name), _json(body)
        parts = urlsplit(target)
        for verb, pattern, operation in self._routes:
            found = pattern.fullmatch(parts.path)
            if verb == method and found:
                params = {name: unquote(value) for name, value in found.groupdict().items()}
                return "batch", operation, {**params, **_json(body)}
        raise ViolationError(f"no such operation: {method} {target}")

    def encode(self, call: Call, result: Mapping[str, Any]) -> bytes:
        """Return the body of a response, checked against the model.

        Raises:
            ViolationError: The response does not fit the model.
        """
        shape = call.operation.output_shape
        if shape is None:
            return b""
        answer = _plain(result)
        broken = _check(shape, answer, f"answer {call.service}.{call.name}")
        if broken:
            raise ViolationError("; ".join(broken))
        return json.dumps(answer).encode()


def encode_error(service: str, error: ServiceError) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of an error."""
    if service == "batch":
        return json.dumps({"message": error.message}).encode(), {"x-amzn-errortype": error.code}
    return json.dumps({"__type": error.code, "message": error.message}).encode(), {}


def _routes(model: ServiceModel) -> Iterator[tuple[str, re.Pattern[str], OperationModel]]:
    for name in model.operation_names:
        operation = model.operation_model(name)
        pattern = "".join(
            f"(?P<{part[1:-1]}>.+)" if part.startswith("{") else re.escape(part)
            for part in re.split(r"(\{\w+\})", operation.http["requestUri"])
        )
        yield operation.http["method"], re.compile(pattern), operation


def _json(body: bytes) -> dict[str, Any]:
    try:
        data = json.loads(body) if body else {}
    except ValueError as e:
        raise ViolationError(f"the body is no JSON: {e}") from None
    if not isinstance(data, dict):
        raise ViolationError("the body is no JSON object")
    return data


def _plain(value: Any) -> Any:
    """Return a result as JSON data, with times in seconds."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.timestamp() if isinstance(value, datetime) else value


def _check(shape: Shape | None, value: Mapping[str, Any], name: str) -> list[str]:
    """Return the constraints of the model that a request or an answer breaks.

    Raises:
        ViolationError: Members are missing or unknown, or have other types.
    """
    if shape is None:
        if value:
            raise ViolationError(f"{name}: takes nothing")
        return []
    report = ParamValidator().validate(value, shape)
    if report.has_errors():
        raise ViolationError(f"{name}: {report.generate_report()}")
    return list(_broken(shape, value, name))


def _broken(shape: Any, value: Any, path: str) -> Iterator[str]:
    """Yield the constraints that the SDK does not check: sizes, enumerations and patterns."""
    kind = shape.type_name
    limits = shape.metadata
    if kind == "structure":
        for name, item in value.items():
            yield from _broken(shape.members[name], item, f"{path}.{name}")
    elif kind == "list":
        for i, item in enumerate(value):
            yield from _broken(shape.member, item, f"{path}[{i}]")
    elif kind == "map":
        for key, item in value.items():
            yield from _broken(shape.key, key, f"{path} (key)")
            yield from _broken(shape.value, item, f"{path}[{key}]")
    elif kind == "string":
        if shape.enum and value not in shape.enum:
            yield f"Value '{value:.80}' at '{path}' must be one of its enumeration"
        if "pattern" in limits and not _matches(limits["pattern"], value):
            yield f"Value '{value:.80}' at '{path}' must satisfy pattern: {limits['pattern']}"
    if "max" in limits:
        size = len(value) if kind in ("string", "list", "map") else value
        if size > limits["max"]:
            yield f"'{path}' has {size}, allowed: {limits.get('min')} to {limits['max']}"


def _matches(pattern: str, value: str) -> bool:
    """Return whether a value matches a pattern of the models, a regular expression of Java."""
    if pattern in (".*", ".+"):  # in Java, a dot matches fewer line ends
        return not _LINE_ENDS.search(value) and (pattern == ".*" or bool(value))
    for name, same in _CLASSES.items():
        pattern = pattern.replace(name, same)
    return re.fullmatch(pattern, value) is not None


def now_ms() -> int:
    """Return the current time in milliseconds since 1970, the unit of Batch and CloudWatch Logs."""
    return int(datetime.now(timezone.utc).timestamp() * 1000)


def page(items: list[Any], token: str | None, limit: int) -> tuple[list[Any], str | None]:
    """Return one page of a list and the token of the next page.

    Raises:
        ServiceError: The token is not valid.
    """
    try:
        start = int(token.removeprefix("page-")) if token else 0
    except ValueError:
        raise ServiceError("ClientException", f"invalid nextToken: {token}") from None
    end = start + limit
    return items[start:end], f"page-{end}" if end < len(items) else None
