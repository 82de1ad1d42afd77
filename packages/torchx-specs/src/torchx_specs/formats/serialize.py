"""AppDefs as documents: plain dicts, JSON, YAML. Nothing is lost on the way there and back.

>>> from torchx_specs import AppDef, Role
>>> app = AppDef("echo", roles=[Role("echo", image="/tmp", entrypoint="echo", args=["hi"])])
>>> from_json(to_json(app)) == app
True

A document has a ``kind`` and a ``version``; ``appdef.schema.json`` beside this module is its JSON
Schema (:func:`json_schema`). In a document written by hand, these two and everything that has a
default can be left out, and ``resource`` can be the name of a named resource.

What JSON has no notation for has one of ours: a tuple (overlays use them) is ``{"$tuple": [...]}``,
and a dict that looks like that is ``{"$dict": {...}}``.
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
    """Returns an app as plain data that JSON can hold.

    A role of a subclass becomes a plain role. Overrides are resolved, and not part of the result.

    Raises:
        SerializationError: it has values that JSON cannot hold, or of other types than declared;
            all of them are named
    """
    writer = _Writer()
    try:
        data = writer.app(app)
    except RecursionError:
        raise SerializationError(f"app '{app.name}': {_TOO_DEEP}") from None
    if writer.problems:
        raise SerializationError(writer.problems)
    return data


def from_dict(data: Mapping[str, Any]) -> AppDef:
    """Returns the app that :func:`to_dict`, or someone by hand, described.

    Raises:
        SerializationError: fields are unknown, missing or of the wrong type; all of them are named
    """
    reader = _Reader()
    try:
        app = reader.app(data)
    except RecursionError:
        raise SerializationError(_TOO_DEEP) from None
    if reader.problems or app is None:
        raise SerializationError(reader.problems)
    return app


def to_json(app: AppDef) -> str:
    """Returns an app as indented JSON.

    Raises:
        SerializationError: see :func:`to_dict`
    """
    from torchx_specs.formats.documents import dump_json

    return dump_json(to_dict(app))


def from_json(text: str) -> AppDef:
    """Returns the app in a JSON document.

    Raises:
        SerializationError: it is not JSON; and see :func:`from_dict`
    """
    from torchx_specs.formats.documents import parse_json

    return _parsed(text, "JSON", parse_json)


def to_yaml(app: AppDef) -> str:
    """Returns an app as YAML.

    Raises:
        SerializationError: see :func:`to_dict`
        RequestError: PyYAML is not installed
    """
    from torchx_specs.formats.documents import dump_yaml

    return dump_yaml(to_dict(app))


def from_yaml(text: str) -> AppDef:
    """Returns the app in a YAML document.

    Raises:
        SerializationError: it is not YAML; and see :func:`from_dict`
        RequestError: PyYAML is not installed
    """
    from torchx_specs.formats.documents import parse_yaml

    return _parsed(text, "YAML", parse_yaml)


def load(path_or_text: str | os.PathLike[str], *, called: str | None = None) -> AppDef:
    """Returns the app in a file, or in the text itself, of JSON or YAML.

    Args:
        path_or_text: a string with several lines, or one that begins with ``{``, is the text
        called: what messages call the text; it is one then, whatever it looks like

    Raises:
        SerializationError: the file cannot be read; and see :func:`from_dict`
        RequestError: it is YAML and PyYAML is not installed
    """
    import os

    from torchx_specs.formats.documents import parse_document

    if isinstance(path_or_text, str) and (
        called or "\n" in path_or_text or path_or_text.lstrip()[:1] == "{"
    ):
        return _parsed(path_or_text, called or "document", parse_document)
    path = os.path.expanduser(path_or_text)
    try:
        with open(path, encoding="utf-8") as f:
            text = f.read()
    except OSError as e:
        raise SerializationError(f"{path}: {(e.strerror or str(e)).lower()}") from None
    except UnicodeDecodeError as e:
        raise SerializationError(f"{path}: not UTF-8 text ({e.reason} at byte {e.start})") from None
    return _parsed(text, path, parse_document)


@functools.cache
def _schema_text() -> str:
    import os

    path = os.path.join(os.path.dirname(__file__), "appdef.schema.json")
    with open(path, encoding="utf-8") as f:
        return f.read()


def json_schema() -> dict[str, Any]:
    """Returns the JSON Schema (2020-12) of the documents."""
    import json

    schema: dict[str, Any] = json.loads(_schema_text())
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


def _below(path: str, key: object) -> str:
    """Returns the path of a field."""
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


def _is_finite(value: float) -> bool:
    return value - value == 0


_Convert = Callable[[Any, str], Any]


class _Walk:
    """What taking apart and putting together have in common."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def _refuse(self, path: str, expected: str, value: object) -> None:
        where = f"{path}: " if path else ""
        self.problems.append(f"{where}expected {expected}, got {_shown(value)}")

    def _optional(self, convert: _Convert) -> _Convert:
        return lambda value, path: None if value is None else convert(value, path)

    def _list(self, convert: _Convert) -> Callable[[Any, str], list[Any]]:
        def convert_list(value: Any, path: str) -> list[Any]:
            if not isinstance(value, (list, tuple)):
                self._refuse(path, "a list", value)
                return []
            return [convert(item, f"{path}[{i}]") for i, item in enumerate(value)]

        return convert_list


def _role_fields(walk: _Writer | _Reader) -> dict[str, _Convert]:
    """Returns the fields of a role, each with what writes or reads it."""
    return {
        "name": walk.text,
        "image": walk.text,
        "min_replicas": walk._optional(walk.integer),
        "entrypoint": walk.text,
        "args": walk._list(walk.text),
        "env": walk._dict(walk.text),
        "num_replicas": walk.integer,
        "max_retries": walk.integer,
        "retry_policy": walk.retry_policy,
        "resource": walk.resource,
        "port_map": walk._dict(walk.integer),
        "metadata": walk.plain_dict,
        "mounts": walk._list(walk.mount),
        "workspace": walk._optional(walk.workspace),
    }


class _Writer(_Walk):
    """Takes an app apart, and collects what cannot be written."""

    def app(self, app: AppDef) -> dict[str, Any]:
        return {
            "kind": KIND,
            "version": VERSION,
            "name": self.text(app.name, "name"),
            "roles": [self.role(role, f"roles[{i}]") for i, role in enumerate(app.roles)],
            "metadata": self.plain_dict(app.metadata, "metadata"),
        }

    def role(self, role: Role, path: str) -> dict[str, Any]:
        if not isinstance(role, Role):
            self._refuse(path, "a Role", role)
            return {}
        # an attribute may be an override that is computed now, and fails
        values: dict[str, Any] = {}
        for field, write in _role_fields(self).items():
            where = _below(path, field)
            try:
                value = getattr(role, field)
            except Exception as e:
                self.problems.append(f"{where}: cannot resolve the override: {e}")
                continue
            values[field] = write(value, where)
        return values

    def text(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            self._refuse(path, "text", value)
            return ""
        return str.__str__(value)  # of an Enum that is a str: its value

    def integer(self, value: Any, path: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            self._refuse(path, "an integer", value)
            return 0
        return int(value)

    def number(self, value: Any, path: str) -> int | float:
        if isinstance(value, float):
            return self._finite(value, path)
        if not isinstance(value, int) or isinstance(value, bool):
            self._refuse(path, "a number", value)
            return 0
        return int(value)

    def _finite(self, value: float, path: str) -> float:
        if not _is_finite(value):
            self.problems.append(f"{path}: JSON has no number {value}")
        return float(value)

    def _dict(self, write: _Convert) -> Callable[[Any, str], dict[str, Any]]:
        def write_dict(value: Any, path: str) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                self._refuse(path, "a dict", value)
                return {}
            for key in value:
                if not isinstance(key, str):
                    self.problems.append(f"{path}: key {_shown(key)} is not text")
            return {
                str.__str__(k): write(v, _below(path, k))
                for k, v in value.items()
                if isinstance(k, str)
            }

        return write_dict

    def plain_dict(self, value: Any, path: str) -> dict[str, Any]:
        return self._dict(self.plain)(value, path)

    def plain(self, value: Any, path: str) -> Any:
        """Writes a value of no declared type."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return self._finite(value, path)
        if isinstance(value, tuple):
            return {_TUPLE: self._list(self.plain)(value, path)}
        if isinstance(value, list):
            return self._list(self.plain)(value, path)
        if isinstance(value, Mapping):
            written = self.plain_dict(value, path)
            return {_DICT: written} if list(written) in ([_TUPLE], [_DICT]) else written
        self.problems.append(f"{path}: JSON cannot hold {_shown(value)}")
        return None

    def retry_policy(self, value: Any, path: str) -> str:
        if not isinstance(value, RetryPolicy):
            self._refuse(path, "a RetryPolicy", value)
            return ""
        return value.name

    def resource(self, value: Any, path: str) -> dict[str, Any] | None:
        if not isinstance(value, Resource):
            self._refuse(path, "a Resource", value)
            return None
        if value == NULL_RESOURCE:
            return None
        return {
            "cpu": self.number(value.cpu, f"{path}.cpu"),
            "gpu": self.number(value.gpu, f"{path}.gpu"),
            "memMB": self.number(value.memMB, f"{path}.memMB"),
            "capabilities": self.plain_dict(value.capabilities, f"{path}.capabilities"),
            "devices": self._dict(self.number)(value.devices, f"{path}.devices"),
            "tags": self.plain_dict(value.tags, f"{path}.tags"),
        }

    def mount(self, value: Any, path: str) -> dict[str, Any]:
        if isinstance(value, BindMount):
            return {
                "type": "bind",
                "src_path": self.text(value.src_path, f"{path}.src_path"),
                "dst_path": self.text(value.dst_path, f"{path}.dst_path"),
                "read_only": bool(value.read_only),
            }
        if isinstance(value, VolumeMount):
            return {
                "type": "volume",
                "src": self.text(value.src, f"{path}.src"),
                "dst_path": self.text(value.dst_path, f"{path}.dst_path"),
                "read_only": bool(value.read_only),
            }
        if isinstance(value, DeviceMount):
            return {
                "type": "device",
                "src_path": self.text(value.src_path, f"{path}.src_path"),
                "dst_path": self.text(value.dst_path, f"{path}.dst_path"),
                "permissions": self.text(value.permissions, f"{path}.permissions"),
            }
        self._refuse(path, "a BindMount, VolumeMount or DeviceMount", value)
        return {}

    def workspace(self, value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, Workspace):
            self._refuse(path, "a Workspace", value)
            return {}
        return {"projects": self._dict(self.text)(value.projects, f"{path}.projects")}


class _Reader(_Walk):
    """Puts an app together, and collects what is wrong with the document."""

    def _fields(
        self, value: Any, path: str, fields: Mapping[str, _Convert], required: tuple[str, ...] = ()
    ) -> dict[str, Any] | None:
        """Reads a mapping; None if required fields are not there, or it is none."""
        if not isinstance(value, Mapping):
            self._refuse(path, "a mapping", value)
            return None
        missing = [field for field in required if field not in value]
        where = f"{path}: " if path else ""
        self.problems += [f"{where}missing field '{field}'" for field in missing]
        read: dict[str, Any] = {}
        for key, item in value.items():
            if key not in fields:
                hint = nearest(str(key), fields)
                problem = f"{_below(path, key)}: unknown field"
                self.problems.append(f"{problem};{hint}" if hint else problem)
            else:
                read[key] = fields[key](item, _below(path, key))
        return None if missing else read

    def app(self, value: Any) -> AppDef | None:
        if isinstance(value, Mapping) and not self._is_readable(value):
            return None
        fields = {
            "kind": self.text,
            "version": self.integer,
            "name": self.text,
            "roles": self._list(self.role),
            "metadata": self.plain_dict,
        }
        read = self._fields(value, "", fields, required=("name",))
        if read is None:
            return None
        read.pop("kind", None)
        read.pop("version", None)
        return AppDef(**read)

    def _is_readable(self, document: Mapping[str, Any]) -> bool:
        """Checks first what makes the rest of the checks pointless."""
        kind, version = document.get("kind", KIND), document.get("version", VERSION)
        if kind != KIND:
            self.problems.append(f"kind: expected '{KIND}', got {_shown(kind)}")
        elif isinstance(version, bool) or not isinstance(version, int):
            self._refuse("version", "an integer", version)
        elif version != VERSION:
            newer = " (written by a newer torchx-specs?)" if version > VERSION else ""
            self.problems.append(f"version: this reads version {VERSION}, not {version}{newer}")
        return not self.problems

    def role(self, value: Any, path: str) -> Role | None:
        read = self._fields(value, path, _role_fields(self), required=("name", "image"))
        return None if read is None else Role(**read)

    def text(self, value: Any, path: str) -> str:
        if not isinstance(value, str):
            self._refuse(path, "text", value)
            if not isinstance(value, (Mapping, list)) and value is not None:
                self.problems[-1] += "; put it in quotes"  # YAML reads no, on, 1e3 as it likes
            return ""
        return value

    def integer(self, value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            self._refuse(path, "an integer", value)
            return 0
        return value

    def number(self, value: Any, path: str) -> int | float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self._refuse(path, "a number", value)
            return 0
        return self._finite(value, path)

    def _finite(self, value: int | float, path: str) -> int | float:
        if isinstance(value, float) and not _is_finite(value):
            self.problems.append(f"{path}: JSON has no number {value}")
        return value

    def boolean(self, value: Any, path: str) -> bool:
        if not isinstance(value, bool):
            self._refuse(path, "true or false", value)
        return bool(value)

    def _dict(self, read: _Convert) -> Callable[[Any, str], dict[str, Any]]:
        def read_dict(value: Any, path: str) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                self._refuse(path, "a mapping", value)
                return {}
            for key in value:
                if not isinstance(key, str):
                    self.problems.append(f"{path}: key {_shown(key)} is not text; put it in quotes")
            return {key: read(item, _below(path, key)) for key, item in value.items()}

        return read_dict

    def plain_dict(self, value: Any, path: str) -> dict[str, Any]:
        return self._dict(self.plain)(value, path)

    def plain(self, value: Any, path: str) -> Any:
        """Reads a value of no declared type."""
        if isinstance(value, Mapping):
            if list(value) == [_TUPLE]:
                return tuple(self._list(self.plain)(value[_TUPLE], f"{path}.{_TUPLE}"))
            if list(value) == [_DICT]:
                return self.plain_dict(value[_DICT], f"{path}.{_DICT}")
            return self.plain_dict(value, path)
        if isinstance(value, tuple):  # YAML has a tag for them
            return tuple(self._list(self.plain)(value, path))
        if isinstance(value, list):
            return self._list(self.plain)(value, path)
        if isinstance(value, float):
            return self._finite(value, path)
        if value is not None and not isinstance(value, (str, int)):
            self.problems.append(f"{path}: {_shown(value)} is no JSON value; put it in quotes")
        return value

    def retry_policy(self, value: Any, path: str) -> RetryPolicy:
        policy = RetryPolicy.__members__.get(value) if isinstance(value, str) else None
        if policy is None:
            names = ", ".join(RetryPolicy.__members__)
            hint = nearest(value, RetryPolicy.__members__) if isinstance(value, str) else ""
            self._refuse(path, f"one of {names}", value)
            self.problems[-1] += f";{hint}" if hint else ""
        return policy or RetryPolicy.APPLICATION

    def resource(self, value: Any, path: str) -> Resource:
        if value is None:
            return NULL_RESOURCE
        if isinstance(value, str) and value:
            try:
                return resource(h=value)
            except NamedResourceNotFoundError as e:
                self.problems.append(f"{path}: {e}")
                return NULL_RESOURCE
        if not isinstance(value, Mapping):
            self._refuse(path, "a mapping or the name of a named resource", value)
            return NULL_RESOURCE
        fields = {
            "cpu": self.number,
            "gpu": self.number,
            "memMB": self.number,
            "capabilities": self.plain_dict,
            "devices": self._dict(self.number),
            "tags": self.plain_dict,
        }
        read = self._fields(value, path, fields, required=("cpu", "gpu", "memMB"))
        return NULL_RESOURCE if read is None else Resource(**read)

    def mount(self, value: Any, path: str) -> BindMount | VolumeMount | DeviceMount | None:
        if not isinstance(value, Mapping):
            self._refuse(path, "a mapping", value)
            return None
        kind = value.get("type")
        rest = {key: item for key, item in value.items() if key != "type"}
        if kind == "bind":
            fields = {"src_path": self.text, "dst_path": self.text, "read_only": self.boolean}
            read = self._fields(rest, path, fields, ("src_path", "dst_path"))
            return None if read is None else BindMount(**read)
        if kind == "volume":
            fields = {"src": self.text, "dst_path": self.text, "read_only": self.boolean}
            read = self._fields(rest, path, fields, ("src", "dst_path"))
            return None if read is None else VolumeMount(**read)
        if kind == "device":
            fields = {"src_path": self.text, "dst_path": self.text, "permissions": self.text}
            read = self._fields(rest, path, fields, ("src_path", "dst_path"))
            return None if read is None else DeviceMount(**read)
        if "type" not in value:
            self.problems.append(f"{path}: missing field 'type': bind, volume or device")
        else:
            self._refuse(f"{path}.type", "bind, volume or device", kind)
        return None

    def workspace(self, value: Any, path: str) -> Workspace | None:
        read = self._fields(
            value, path, {"projects": self._dict(self.text)}, required=("projects",)
        )
        return None if read is None else Workspace(**read)
