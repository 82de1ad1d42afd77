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

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import (
    NamedResourceNotFoundError,
    RequestError,
    SerializationError,
    nearest,
)
from torchx_specs.model.app import AppDef, RetryPolicy, Role
from torchx_specs.model.mounts import BindMount, DeviceMount, VolumeMount
from torchx_specs.model.resources import NULL_RESOURCE, Resource, resource
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    import os

KIND = "AppDef"
VERSION = 1

_TUPLE = "$tuple"
_DICT = "$dict"

_TOO_DEEP = "data is nested too deeply, or contains itself"


def to_dict(app: AppDef) -> dict[str, Any]:
    """Return an app as a dict that JSON can represent.

    A role of a subclass becomes a plain role. Overrides are replaced by their values.

    Raises:
        SerializationError: Fields have values of undeclared types, or values that JSON cannot
            represent. The message lists all of them.
    """
    writer = _Writer()
    try:
        data: dict[str, Any] = writer.record(app, "", _schema(), AppDef)
    except RecursionError:
        raise SerializationError(f"app '{app.name}': {_TOO_DEEP}") from None
    if writer.problems:
        raise SerializationError(writer.problems)
    return data


def from_dict(data: Mapping[str, Any]) -> AppDef:
    """Return the app that a document describes.

    Raises:
        SerializationError: Fields are unknown, missing or of the wrong type. The message lists all
            of them.
    """
    reader = _Reader()
    try:
        app: AppDef | None = reader.app(data)
    except RecursionError:
        raise SerializationError(_TOO_DEEP) from None
    if reader.problems or app is None:
        raise SerializationError(reader.problems)
    return app


def to_json(app: AppDef) -> str:
    """Return an app as indented JSON.

    Raises:
        SerializationError: See :func:`to_dict`.
    """
    from torchx_specs.formats.documents import dump_json

    return dump_json(to_dict(app))


def from_json(text: str) -> AppDef:
    """Return the app in a JSON document.

    Raises:
        SerializationError: The text is not JSON; also see :func:`from_dict`.
    """
    from torchx_specs.formats.documents import parse_json

    return _parsed(text, "JSON", parse_json)


def to_yaml(app: AppDef) -> str:
    """Return an app as YAML.

    Raises:
        SerializationError: See :func:`to_dict`.
        RequestError: PyYAML is not installed.
    """
    from torchx_specs.formats.documents import dump_yaml

    return dump_yaml(to_dict(app))


def from_yaml(text: str) -> AppDef:
    """Return the app in a YAML document.

    Raises:
        SerializationError: The text is not YAML; also see :func:`from_dict`.
        RequestError: PyYAML is not installed.
    """
    from torchx_specs.formats.documents import parse_yaml

    return _parsed(text, "YAML", parse_yaml)


def load(path_or_text: str | os.PathLike[str], *, called: str | None = None) -> AppDef:
    """Return the app in a JSON or YAML file, or in a string.

    Args:
        path_or_text: Path of the file. A string that has several lines or begins with ``{`` is the
            document itself.
        called: Name of the document in error messages. If given, a string is always the document
            itself.

    Raises:
        SerializationError: The file cannot be read; also see :func:`from_dict`.
        RequestError: The document is YAML and PyYAML is not installed.
    """
    from torchx_specs.formats.documents import parse_document, read_text_file

    if isinstance(path_or_text, str) and (
        called or "\n" in path_or_text or path_or_text.lstrip()[:1] == "{"
    ):
        return _parsed(path_or_text, called or "document", parse_document)
    try:
        text = read_text_file(path_or_text)
    except RequestError as e:
        raise SerializationError(e.problems) from None
    return _parsed(text, str(path_or_text), parse_document)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the documents."""
    import copy

    return copy.deepcopy(_schema())


@functools.cache
def _schema() -> dict[str, Any]:
    import json
    import os

    path = os.path.join(os.path.dirname(__file__), "appdef.schema.json")
    with open(path, encoding="utf-8") as f:
        schema: dict[str, Any] = json.load(f)
    return schema


def _parsed(text: str, where: str, parse: Callable[[str, str], Any]) -> AppDef:
    from torchx_specs.formats.documents import YamlMissingError

    try:
        data = parse(text, where)
    except YamlMissingError:
        raise
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
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, Mapping):
        return "a mapping"
    text = repr(value)
    return f"{text if len(text) <= 40 else text[:37] + '...'} ({type(value).__name__})"


#: The class of each record in the schema's ``$defs``.
_CLASSES: Mapping[str, type] = {"role": Role, "resource": Resource, "workspace": Workspace}
_MOUNTS: Mapping[str, type] = {"bind": BindMount, "volume": VolumeMount, "device": DeviceMount}
#: The scalar types of the schema: the name in error messages, and the accepted Python types.
_SCALARS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "string": ("text", (str,)),
    "integer": ("an integer", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
}


class _Walk:
    """Walks a value together with the schema of the value, and collects the problems."""

    #: Noun for a dict in error messages: "a dict" or "a mapping".
    mapping: str
    #: Hint to append if a number or boolean is given instead of a string.
    advice: str = ""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def refuse(self, path: str, expected: str, value: object, advice: str = "") -> None:
        where = f"{path}: " if path else ""
        self.problems.append(f"{where}expected {expected}, got {_shown(value)}{advice}")

    def value(self, value: Any, path: str, schema: Mapping[str, Any]) -> Any:
        """Convert a value as the schema requires."""
        name = schema.get("$ref", "").rpartition("/")[2]
        if name == "plainObject":
            return self.dict_of(value, path, self.plain)
        if name == "plain":
            return self.plain(value, path)
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
        kind = schema.get("type") or {str: "string", int: "integer"}[type(schema["const"])]
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
        if isinstance(value, bool):
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
        for key in value:
            if not isinstance(key, str):
                self.problems.append(f"{path}: key {_shown(key)} is not text{self.advice}")
        return {
            str.__str__(key): convert(item, _field_path(path, key))
            for key, item in value.items()
            if isinstance(key, str)
        }

    def record(self, value: Any, path: str, schema: Mapping[str, Any], cls: type) -> Any:
        """Convert between an instance of a class and a dict of its fields."""
        raise NotImplementedError

    def resource(self, value: Any, path: str, schema: Mapping[str, Any]) -> Any:
        raise NotImplementedError

    def mount(self, value: Any, path: str, kinds: list[Mapping[str, Any]]) -> Any:
        raise NotImplementedError

    def retry_policy(self, value: Any, path: str) -> Any:
        raise NotImplementedError

    def plain(self, value: Any, path: str) -> Any:
        """Convert a value that may be any JSON data."""
        raise NotImplementedError


class _Writer(_Walk):
    """Converts an app to data."""

    mapping = "a dict"

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
                continue
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
        return None

    def retry_policy(self, value: Any, path: str) -> Any:
        if isinstance(value, RetryPolicy):
            return value.name
        self.refuse(path, "a RetryPolicy", value)
        return None

    def plain(self, value: Any, path: str) -> Any:
        if value is None:
            return None
        if isinstance(value, (str, int, float)):
            return self.plain_scalar(value, path)
        if isinstance(value, tuple):
            return {_TUPLE: self.list_of(value, path, self.plain)}
        if isinstance(value, list):
            return self.list_of(value, path, self.plain)
        if isinstance(value, Mapping):
            written = self.dict_of(value, path, self.plain)
            return {_DICT: written} if list(written) in ([_TUPLE], [_DICT]) else written
        self.problems.append(f"{path}: JSON cannot hold {_shown(value)}")
        return None


class _Reader(_Walk):
    """Converts data to an app."""

    mapping = "a mapping"
    advice = "; put it in quotes"  # YAML reads unquoted no, on and 1.0 as booleans and numbers

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
                continue
            converted = self.value(item, _field_path(path, key), properties[key])
            if "const" not in properties[key]:
                read[key] = converted
        return None if missing else cls(**read)

    def resource(self, value: Any, path: str, schema: Mapping[str, Any]) -> Any:
        if value is None:
            return NULL_RESOURCE
        if isinstance(value, str) and value:
            try:
                return resource(h=value)
            except NamedResourceNotFoundError as e:
                self.problems.append(f"{path}: {e}")
        elif isinstance(value, Mapping):
            return self.value(value, path, schema)
        else:
            self.refuse(path, "a mapping or the name of a named resource", value)
        return None

    def mount(self, value: Any, path: str, kinds: list[Mapping[str, Any]]) -> Any:
        if not isinstance(value, Mapping):
            self.refuse(path, "a mapping", value)
        elif "type" not in value:
            self.problems.append(f"{path}: missing field 'type': bind, volume or device")
        elif value["type"] not in list(_MOUNTS):
            self.refuse(f"{path}.type", "bind, volume or device", value["type"])
        else:
            kind = value["type"]
            schema = kinds[list(_MOUNTS).index(kind)]
            return self.record(value, path, schema, _MOUNTS[kind])
        return None

    def retry_policy(self, value: Any, path: str) -> Any:
        policies = RetryPolicy.__members__
        if isinstance(value, str) and value in policies:
            return policies[value]
        hint = nearest(value, policies) if isinstance(value, str) else ""
        self.refuse(path, f"one of {', '.join(policies)}", value, f";{hint}" if hint else "")
        return None

    def plain(self, value: Any, path: str) -> Any:
        if isinstance(value, Mapping):
            if list(value) == [_TUPLE]:
                return tuple(self.list_of(value[_TUPLE], f"{path}.{_TUPLE}", self.plain))
            if list(value) == [_DICT]:
                return self.dict_of(value[_DICT], f"{path}.{_DICT}", self.plain)
            return self.dict_of(value, path, self.plain)
        if isinstance(value, (list, tuple)):  # YAML documents may have !!python/tuple
            return type(value)(self.list_of(value, path, self.plain))
        if value is not None and not isinstance(value, (str, int, float)):
            self.problems.append(f"{path}: {_shown(value)} is no JSON value; put it in quotes")
            return None
        return None if value is None else self.plain_scalar(value, path)
