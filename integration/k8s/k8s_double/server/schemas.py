"""Validation of objects by the schemas that Kubernetes publishes (``kubernetes-validate``).

A wrong type is refused as the server's decoder refuses it. The request's ``fieldValidation``
decides about an unknown field: ``Strict`` refuses the object, ``Warn`` drops the field with a
warning, and ``Ignore`` drops it without a warning.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from typing import Any

from k8s_double import errors
from k8s_double.errors import ApiError, Cause, bad_request
from k8s_double.kinds import Kind
from k8s_double.server.operator_schemas import DEFINITIONS

VERSION = "1.32"

# Name of the schema of every object's metadata.
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
# Fields that the server sets, which a client may omit although the schema requires them.
_SERVER_SIDE = frozenset({"status"})
_DEFAULTED = frozenset({("PodFailurePolicyOnPodConditionsPattern", "status")})


@functools.cache
def definitions() -> dict[str, dict[str, Any]]:
    """Return the published schemas and the schemas of the operators, by name."""
    folder = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema"
    text = (folder / f"v{VERSION}.0-local" / "_definitions.json").read_text("utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)["$defs"]
    return found | DEFINITIONS


class _Reading:
    """Reads one object, and collects its unknown, missing and wrong fields."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.unknown: list[str] = []
        self.causes: list[Cause] = []

    def wrong_type(self, value: Any, wanted: str, path: str, owner: str) -> None:
        if self.kind.operator:
            told = (
                "object"
                if isinstance(value, dict)
                else "array"
                if isinstance(value, list)
                else (
                    "string"
                    if isinstance(value, str)
                    else "boolean"
                    if isinstance(value, bool)
                    else "integer"
                    if isinstance(value, int)
                    else "number"
                )
            )
            self.causes.append(
                (
                    path,
                    f'Invalid value: "{told}": {path} in body must be of type {wanted}: "{told}"',
                    "FieldValueTypeInvalid",
                )
            )
            return
        told = {dict: "object", list: "array", str: "string", bool: "bool"}.get(
            type(value), "number"
        )
        go = {
            "string": "string",
            "boolean": "bool",
            "integer": "int32",
            "number": "float64",
            "array": "slice",
            "object": "struct",
        }[wanted]
        plain = ".".join(word.split("[")[0] for word in path.split("."))
        raise bad_request(
            f'{self.kind.kind} in version "{self.kind.version}" cannot be handled as a'
            f" {self.kind.kind}: json: cannot unmarshal {told} into Go struct field"
            f" {owner}.{plain} of type {go}"
        )

    def value(self, value: Any, schema: dict[str, Any], path: str, owner: str) -> Any:
        name = schema.get("$ref")
        if name:
            owner = name.rsplit("/", 1)[-1]
            schema = definitions()[owner]
            owner = owner.rsplit(".", 1)[-1]
        if "oneOf" in schema:  # a text or a number: a quantity or a port
            if isinstance(value, (dict, list, bool)):
                self.wrong_type(value, "string", path, owner)
            return value
        wanted = schema.get("type")
        if isinstance(wanted, list):
            wanted = next(item for item in wanted if item != "null")
        if "properties" in schema and not isinstance(value, dict):
            self.wrong_type(value, "object", path, owner)
            return value
        if isinstance(value, dict) and wanted in (None, "object"):
            return self.fields(value, schema, path, owner)
        if wanted == "array":
            if not isinstance(value, list):
                self.wrong_type(value, "array", path, owner)
                return value
            items = schema.get("items", {})
            return [self.value(item, items, f"{path}[{i}]", owner) for i, item in enumerate(value)]
        fits = {
            "string": isinstance(value, str),
            "boolean": isinstance(value, bool),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool),
            "object": isinstance(value, dict),
        }
        if wanted and not fits[wanted]:
            self.wrong_type(value, wanted, path, owner)
        if "enum" in schema and value not in schema["enum"]:
            self.causes.append(errors.unsupported_value(path, value, sorted(schema["enum"])))
        if "minimum" in schema and fits["number"] and value < schema["minimum"]:
            least = schema["minimum"]
            detail = f"{path} in body should be greater than or equal to {least}"
            self.causes.append(errors.invalid_value(path, value, detail))
        return value

    def fields(
        self, value: dict[str, Any], schema: dict[str, Any], path: str, owner: str
    ) -> dict[str, Any]:
        properties = schema.get("properties")
        found: dict[str, Any] = {}
        if properties is None:
            inner = schema.get("additionalProperties")
            if not isinstance(inner, dict):
                return value  # any value is valid
            for key, item in value.items():
                if item is not None:
                    found[key] = self.value(item, inner, f"{path}[{key}]", owner)
            return found
        for key, item in value.items():
            at = f"{path}.{key}" if path else key
            if key not in properties:
                if schema.get("x-kubernetes-preserve-unknown-fields"):
                    found[key] = item
                else:
                    self.unknown.append(at)
            elif item is not None:  # null is the same as a missing field
                found[key] = self.value(item, properties[key], at, owner)
        for key in schema.get("required", ()):
            filled_in = path in _SERVER_SIDE or (owner, key) in _DEFAULTED
            if key not in found and not filled_in:
                at = f"{path}.{key}" if path else key
                self.causes.append(errors.required(at))
        return found


def read(kind: Kind, body: bytes | dict[str, Any], validation: str) -> tuple[Any, list[str]]:
    """Read an object of a kind.

    Args:
        kind: The kind that the object must have.
        body: The object, as JSON or as data.
        validation: ``Strict``, ``Warn`` or ``Ignore``.

    Returns:
        The object without unknown fields, and the warnings.

    Raises:
        ApiError: 400 if the object cannot be decoded or ``Strict`` refuses it, 422 for missing or
            invalid fields.
    """
    found = body
    if isinstance(found, bytes):
        try:
            found = json.loads(found)
        except (UnicodeDecodeError, json.JSONDecodeError) as e:
            raise bad_request(
                f"couldn't get version/kind; json parse error: invalid character: {e}"
            ) from None
    if not isinstance(found, dict):
        raise bad_request("couldn't get version/kind; json parse error: it is no object")
    given, expected = (found.get("apiVersion"), found.get("kind")), (kind.api_version, kind.kind)
    if given[1] != kind.kind or given[0] != kind.api_version:
        if None in given and not kind.operator:
            found = {**found, "apiVersion": expected[0], "kind": expected[1]}
        else:
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind.kind}):"
                f" it says {given[0]} {given[1]}"
            )
    metadata = found.get("metadata")
    if isinstance(metadata, dict):  # drop a field that only servers set
        found = {**found, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}
    reading = _Reading(kind)
    schema = definitions()[kind.schema]
    properties = {"metadata": {"$ref": f"#/$defs/{_META}"}, **schema["properties"]}
    properties |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    decoded = reading.fields(found, {**schema, "properties": properties}, "", kind.kind)
    warnings = [f'unknown field "{path}"' for path in reading.unknown]
    if warnings and validation == "Strict":
        told = ", ".join(warnings)
        raise bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}:'
            f" strict decoding error: {told}"
        )
    decoded.setdefault("metadata", {})
    if reading.causes:
        name = decoded["metadata"].get("name", "")
        raise _refused(kind, name, reading.causes)
    return decoded, warnings if validation != "Ignore" else []


def _refused(kind: Kind, name: str, causes: list[Cause]) -> ApiError:
    return errors.invalid(kind.kind, kind.group, name, causes)
