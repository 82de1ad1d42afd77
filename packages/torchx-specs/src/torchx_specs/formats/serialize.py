"""Conversion of AppDefs to plain dicts, JSON and YAML, and back, without loss.

>>> from torchx_specs import AppDef, Role
>>> app = AppDef("echo", roles=[Role("echo", image="/tmp", entrypoint="echo", args=["hi"])])
>>> from_json(to_json(app)) == app
True

``appdef.schema.json`` beside this module is the JSON Schema of a document (:func:`json_schema`).
This module writes, reads and checks the fields that the schema lists. A document may omit ``kind``,
``version`` and every field with a default, and ``resource`` may be the name of a named resource.

Overlays contain tuples, which JSON does not have. A tuple is written as ``{"$tuple": [...]}``, and
a dict that looks like a tuple as ``{"$dict": {...}}``.
"""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any

from torchx_specs.errors import (
    NamedResourceNotFoundError,
    RequestError,
    SerializationError,
    nearest,
)
from torchx_specs.formats.documents import (
    dump_json,
    dump_yaml,
    parse_document,
    parse_json,
    parse_yaml,
    read_text_file,
)
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.nesting import TOO_DEEP, is_too_deep
from torchx_specs.model.resources import NULL_RESOURCE, Resource
from torchx_specs.resources.registry import resource
from torchx_specs.workspace.spec import Workspace

KIND = "AppDef"
VERSION = 1

_TUPLE = "$tuple"
_DICT = "$dict"


def to_dict(app: AppDef) -> dict[str, Any]:
    """Return an app as a dict that JSON can represent.

    A role of a subclass becomes a plain role. Overrides are replaced by their values.

    Raises:
        SerializationError: Fields have values of undeclared types, or values that JSON cannot
            represent. The message lists all of them.
    """
    data: dict[str, Any] = _converted(_Writer(), app)
    return data


def from_dict(data: Mapping[str, Any]) -> AppDef:
    """Return the app that a document describes.

    Raises:
        SerializationError: Fields are unknown, missing or of the wrong type. The message lists all
            of them.
    """
    app: AppDef = _converted(_Reader(), data)
    return app


def _converted(converter: _Reader, value: Any) -> Any:
    try:
        result = converter.app(value)
        if is_too_deep(result if isinstance(value, AppDef) else value):
            raise RecursionError
    except RecursionError:
        where = f"app '{value.name}': " if isinstance(value, AppDef) else ""
        raise SerializationError(f"{where}data is {TOO_DEEP}") from None
    if converter.problems:
        raise SerializationError(converter.problems)
    return result


def to_json(app: AppDef) -> str:
    """Return an app as indented JSON; raise the errors of :func:`to_dict`."""
    return dump_json(to_dict(app))


def from_json(text: str) -> AppDef:
    """Return the app in a JSON document; raise the errors of :func:`load`."""
    return _parsed(text, "JSON", parse_json)


def to_yaml(app: AppDef) -> str:
    """Return an app as YAML; raise the errors of :func:`to_dict`. PyYAML must be installed."""
    return dump_yaml(to_dict(app))


def from_yaml(text: str) -> AppDef:
    """Return the app in a YAML document; raise the errors of :func:`load`."""
    return _parsed(text, "YAML", parse_yaml)


def load(path_or_text: str | os.PathLike[str], *, called: str | None = None) -> AppDef:
    """Return the app in a JSON or YAML file, or in a string.

    Args:
        path_or_text: Path of the file. A string that has several lines or begins with ``{`` is the
            document itself.
        called: Name of the document in error messages. If given, a string is always the document
            itself.

    Raises:
        SerializationError: The file cannot be read or parsed, or the document is YAML and PyYAML is
            not installed; also see :func:`from_dict`.
    """
    if isinstance(path_or_text, str) and (
        called or "\n" in path_or_text or path_or_text.lstrip()[:1] == "{"
    ):
        return _parsed(path_or_text, called or "document", parse_document)
    path = os.fspath(path_or_text)
    return _parsed(path, path, lambda _, where: parse_document(read_text_file(path), where))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the documents."""
    return copy.deepcopy(_schema())


@functools.cache
def _schema() -> dict[str, Any]:
    path = os.path.join(os.path.dirname(__file__), "appdef.schema.json")
    schema: dict[str, Any] = parse_json(read_text_file(path), path)
    return schema


def _parsed(text: str, where: str, parse: Callable[[str, str], Any]) -> AppDef:
    try:
        data = parse(text, where)
    except RequestError as e:
        raise SerializationError(e.problems) from None
    try:
        return from_dict(data)
    except SerializationError as e:
        raise SerializationError([f"{where}: {problem}" for problem in e.problems]) from None


def _field_path(path: str, key: object) -> str:
    name = str(key)
    if not isinstance(key, str) or not name.replace("_", "a").replace("-", "a").isalnum():
        return f"{path}[{key!r}]"
    return f"{path}.{name}" if path else name


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, Mapping):
        return "a mapping"
    text = repr(value)
    return f"{text if len(text) <= 40 else text[:37] + '...'} ({type(value).__name__})"


#: The classes of the schema's ``$defs`` other than mounts.
_CLASSES: Mapping[str, type] = {"role": Role, "resource": Resource, "workspace": Workspace}
#: The classes of mounts, in the order of their schemas in ``$defs``.
_MOUNTS: Mapping[str, type] = {"bind": BindMount, "volume": VolumeMount, "device": DeviceMount}
#: The scalar types of the schema: the name in error messages, and the accepted Python types.
_SCALARS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "string": ("text", (str,)),
    "integer": ("an integer", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
}


class _Reader:
    """Converts a document to an app as the schema requires, and collects the problems.

    A conversion that finds a problem returns None, or an empty list or dict.
    """

    #: Noun for a dict in error messages.
    mapping = "a mapping"
    #: Hint for text that is not quoted: YAML reads `no` as a boolean and `1.0` as a number.
    advice = "; put it in quotes"

    def __init__(self) -> None:
        self.problems: list[str] = []

    def refuse(self, path: str, expected: str, value: object, advice: str = "") -> None:
        where = f"{path}: " if path else ""
        self.problems.append(f"{where}expected {expected}, got {_shown(value)}{advice}")

    def app(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            kind, version = value.get("kind", KIND), value.get("version", VERSION)
            if kind != KIND:
                self.problems.append(f"kind: expected '{KIND}', got {_shown(kind)}")
            elif isinstance(version, bool) or not isinstance(version, int):
                self.refuse("version", "an integer", version)
            elif version != VERSION:
                newer = " (written by a newer torchx-specs?)" if version > VERSION else ""
                self.problems.append(f"version: this reads version {VERSION}, not {version}{newer}")
            if self.problems:  # errors in the fields of another format would only confuse
                return None
        return self.record(value, "", _schema(), AppDef)

    def value(self, value: Any, path: str, schema: Mapping[str, Any]) -> Any:
        name = schema.get("$ref", "").rpartition("/")[2]
        if name == "plainObject":
            return self.dict_of(value, path, self.plain)
        if name == "mount":
            return self.mount(value, path, _schema()["$defs"]["mount"]["oneOf"])
        if name:
            return self.record(value, path, _schema()["$defs"][name], _CLASSES[name])
        if "enum" in schema:
            return self.retry_policy(value, path)
        if "oneOf" in schema:  # null or a record; a resource may also be a name
            *others, record = schema["oneOf"]
            if {"type": "string"} in others:
                return self.resource(value, path, record)
            return None if value is None else self.value(value, path, record)
        kind = schema["type"]
        if isinstance(kind, list):  # a scalar or null
            return None if value is None else self.scalar(value, path, kind[0])
        if kind == "array":
            return self.list_of(value, path, lambda v, p: self.value(v, p, schema["items"]))
        if kind == "object":
            items = schema["additionalProperties"]
            return self.dict_of(value, path, lambda v, p: self.value(v, p, items))
        if kind == "integer" and isinstance(value, int) and value > schema.get("maximum", value):
            self.problems.append(f"{path} is {value}; it must be {schema['maximum']} or less")
            return None
        return self.scalar(value, path, kind)

    def scalar(self, value: Any, path: str, kind: str) -> Any:
        expected, types = _SCALARS[kind]
        if not isinstance(value, types) or (isinstance(value, bool) and kind != "boolean"):
            unquoted = kind == "string" and not isinstance(value, (Mapping, list, type(None)))
            self.refuse(path, expected, value, self.advice if unquoted else "")
            return None
        return self.plain_scalar(value, path)

    def plain_scalar(self, value: Any, path: str) -> Any:
        """Convert a subclass of str, int or float, such as an Enum, to its builtin type."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float):
            if value - value != 0:
                self.problems.append(f"{path}: JSON has no number {value}")
            return float(value)
        return str.__str__(value) if isinstance(value, str) else int(value)

    def list_of(self, value: Any, path: str, convert: Callable[[Any, str], Any]) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            self.refuse(path, "a list", value)
            return []
        return [convert(item, f"{path}[{i}]") for i, item in enumerate(value)]

    def dict_of(self, value: Any, path: str, convert: Callable[[Any, str], Any]) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            self.refuse(path, self.mapping, value)
            return {}
        converted = {}
        for key, item in value.items():
            if isinstance(key, str):
                converted[str.__str__(key)] = convert(item, _field_path(path, key))
            else:
                self.problems.append(f"{path}: key {_shown(key)} is not text{self.advice}")
        return converted

    def record(self, value: Any, path: str, schema: Mapping[str, Any], cls: type) -> Any:
        if not isinstance(value, Mapping):
            self.refuse(path, "a mapping", value)
            return None
        properties = schema["properties"]
        missing = [field for field in schema["required"] if field not in value]
        where = f"{path}: " if path else ""
        self.problems += [f"{where}missing field '{field}'" for field in missing]
        read = {}
        for key, item in value.items():
            if key not in properties:
                hint = nearest(str(key), properties)
                problem = f"{_field_path(path, key)}: unknown field"
                self.problems.append(f"{problem};{hint}" if hint else problem)
            elif "const" not in properties[key]:
                read[key] = self.value(item, _field_path(path, key), properties[key])
        return None if missing else cls(**read)

    def resource(self, value: Any, path: str, schema: Mapping[str, Any]) -> Any:
        if value is None:
            return NULL_RESOURCE
        if isinstance(value, Mapping):
            return self.value(value, path, schema)
        if not isinstance(value, str) or not value:
            self.refuse(path, "a mapping or the name of a named resource", value)
            return None
        try:
            return resource(h=value)
        except NamedResourceNotFoundError as e:
            self.problems.append(f"{path}: {e}")

    def mount(self, value: Any, path: str, kinds: list[Mapping[str, Any]]) -> Any:
        if not isinstance(value, Mapping):
            self.refuse(path, "a mapping", value)
        elif "type" not in value:
            self.problems.append(f"{path}: missing field 'type': bind, volume or device")
        elif (kind := value["type"]) not in list(_MOUNTS):
            self.refuse(f"{path}.type", "bind, volume or device", kind)
        else:
            return self.record(value, path, kinds[list(_MOUNTS).index(kind)], _MOUNTS[kind])

    def retry_policy(self, value: Any, path: str) -> Any:
        policies = RetryPolicy.__members__
        if isinstance(value, str) and value in policies:
            return policies[value]
        hint = nearest(value, policies) if isinstance(value, str) else ""
        self.refuse(path, f"one of {', '.join(policies)}", value, f";{hint}" if hint else "")

    def plain(self, value: Any, path: str) -> Any:
        """Convert JSON data without a schema, such as metadata; restore its tuples."""
        if isinstance(value, Mapping):
            if list(value) == [_TUPLE]:
                return tuple(self.list_of(value[_TUPLE], f"{path}.{_TUPLE}", self.plain))
            if list(value) == [_DICT]:
                return self.dict_of(value[_DICT], f"{path}.{_DICT}", self.plain)
            return self.dict_of(value, path, self.plain)
        if isinstance(value, (list, tuple)):  # YAML documents may have !!python/tuple
            return type(value)(self.list_of(value, path, self.plain))
        if value is None or isinstance(value, (str, int, float)):
            return self.plain_scalar(value, path)
        self.problems.append(f"{path}: {_shown(value)} is no JSON value; put it in quotes")


class _Writer(_Reader):
    """Converts an app to a document, in the opposite direction of :class:`_Reader`."""

    mapping = "a dict"
    advice = ""

    def record(self, value: Any, path: str, schema: Mapping[str, Any], cls: type) -> Any:
        if not isinstance(value, cls):
            self.refuse(path, f"a {cls.__name__}", value)
            return None
        written = {}
        for field, field_schema in schema["properties"].items():
            where = _field_path(path, field)
            if "const" in field_schema:
                written[field] = field_schema["const"]
                continue
            try:
                item = getattr(value, field)
            except Exception as e:
                self.problems.append(f"{where}: cannot resolve the override: {e}")
            else:
                written[field] = self.value(item, where, field_schema)
        return written

    def resource(self, value: Any, path: str, schema: Mapping[str, Any]) -> Any:
        is_null = isinstance(value, Resource) and value == NULL_RESOURCE
        return None if is_null else self.value(value, path, schema)

    def mount(self, value: Any, path: str, kinds: list[Mapping[str, Any]]) -> Any:
        for schema, cls in zip(kinds, _MOUNTS.values(), strict=True):
            if isinstance(value, cls):
                return self.record(value, path, schema, cls)
        self.refuse(path, "a BindMount, VolumeMount or DeviceMount", value)

    def retry_policy(self, value: Any, path: str) -> Any:
        if isinstance(value, RetryPolicy):
            return value.name
        self.refuse(path, "a RetryPolicy", value)

    def plain(self, value: Any, path: str) -> Any:
        if isinstance(value, tuple):
            return {_TUPLE: self.list_of(value, path, self.plain)}
        if isinstance(value, Mapping):
            written = self.dict_of(value, path, self.plain)
            return {_DICT: written} if list(written) in ([_TUPLE], [_DICT]) else written
        if isinstance(value, list):
            return self.list_of(value, path, self.plain)
        if value is None or isinstance(value, (str, int, float)):
            return self.plain_scalar(value, path)
        self.problems.append(f"{path}: JSON cannot hold {_shown(value)}")
