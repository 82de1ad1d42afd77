"""Overlays patch a scheduler's request with fields that ``AppDef`` and ``Role`` do not have.

For users
---------

:func:`set_overlay` attaches scheduler-specific fields to a role or an app:

>>> from torchx_specs import Role
>>> from torchx_specs.overlays import DEL, JOIN, PUT, get_overlay, set_overlay
>>> role = Role(name="trainer", image="my-image", entrypoint="train.py")
>>> set_overlay(role, "kubernetes", "V1Pod", {
...     "spec": {"nodeSelector": {"accelerator": "a100"}},
... })

Several calls merge: dicts take up new keys, lists grow.

>>> set_overlay(role, "kubernetes", "V1Pod", {
...     "spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
... })
>>> get_overlay(role, "kubernetes", "V1Pod")
{'spec': {'nodeSelector': {'accelerator': 'a100'}, 'tolerations': [{'key': 'gpu', 'operator': 'Exists'}]}}

The operators :func:`PUT`, :func:`JOIN` and :func:`DEL`, used as keys, choose another rule for one
field:

>>> role = Role(name="trainer", image="my-image", entrypoint="train.py")
>>> set_overlay(role, "kubernetes", "V1Pod", {"spec": {PUT("containers"): [{"name": "only"}]}})
>>> set_overlay(role, "kubernetes", "V1Pod", {
...     "spec": {JOIN("initContainers", on="name"): [{"name": "setup", "image": "init:v2"}]},
... })
>>> set_overlay(role, "kubernetes", "V1Pod", {DEL("hostNetwork"): None})

A key that is missing leaves the field as it is; ``"field": None`` sets it to null; ``DEL("field")``
takes it out. A tuple replaces the list that is there, like ``PUT`` with a list.

For authors of schedulers
-------------------------

::

    overlay = get_overlay(role, "my_scheduler", "JobSpec")
    validate_overlay(overlay, blocklist=["command", "env"], overlay_name="JobSpec")
    apply_overlay(request, overlay)
"""  # noqa: E501 - results as the examples print them

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_specs.errors import RequestError

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef, Role

_PUT = "__put__:"
_JOIN = "__join__:"
_DEL = "__del__:"
#: In ``metadata[namespace]``: what lies beside this key are overlays by kind, not the fields of
#: one.
_BY_KIND = "__torchx_overlays__"


class OverlayTypeError(RequestError, TypeError):
    """An overlay and what it is laid over differ in shape; the text has the path of the field."""


def PUT(key: str) -> str:  # noqa: N802 - the documented name
    """Replaces a value entirely instead of merging or appending.

    Use as a dict key in overlays.

    >>> base = {"containers": [{"name": "old1"}, {"name": "old2"}]}
    >>> apply_overlay(base, {PUT("containers"): [{"name": "only"}]})
    >>> base
    {'containers': [{'name': 'only'}]}
    """
    return _PUT + key


def JOIN(key: str, *, on: str) -> str:  # noqa: N802 - the documented name
    """Merges a list of dicts by the field ``on``.

    Items with the same value for ``on`` have their fields merged (a field of the overlay takes the
    place of the base's); other items are appended. Use as a dict key in overlays; operators work
    inside the items.

    >>> base = {"containers": [{"name": "main", "image": "v1", "cpu": "1"}]}
    >>> apply_overlay(base, {JOIN("containers", on="name"): [
    ...     {"name": "main", "memory": "1Gi"},
    ...     {"name": "sidecar", "image": "proxy"},
    ... ]})
    >>> base
    {'containers': [{'name': 'main', 'image': 'v1', 'cpu': '1', 'memory': '1Gi'}, {'name': 'sidecar', 'image': 'proxy'}]}

    Raises:
        ValueError: ``on`` contains a colon
        TypeError: when applied, if the base's list or the overlay's contains items that are not
            dicts
    """  # noqa: E501 - a result as it is printed
    if ":" in on:
        raise RequestError(f"JOIN('{key}', on='{on}'): the field to join on cannot contain a colon")
    return f"{_JOIN}{key}:{on}"


def DEL(key: str) -> str:  # noqa: N802 - the documented name
    """Removes a key from the base; the value is ignored (write None).

    Not the same as setting a field to None: that sends a null, this sends nothing, and the server
    uses its default.

    >>> base = {"keep": 1, "remove_me": "old"}
    >>> apply_overlay(base, {DEL("remove_me"): None})
    >>> base
    {'keep': 1}
    """
    return _DEL + key


class _Op(NamedTuple):
    """A key of an overlay, taken apart."""

    kind: str  # one of the prefixes, or "" for a plain key
    field: str
    on: str = ""


def _op(key: Any) -> _Op:
    if not isinstance(key, str) or not key.startswith("__"):
        return _Op("", key)
    if key.startswith(_PUT):
        return _Op(_PUT, key[len(_PUT) :])
    if key.startswith(_DEL):
        return _Op(_DEL, key[len(_DEL) :])
    if key.startswith(_JOIN):
        field, _, on = key[len(_JOIN) :].rpartition(":")
        if not field or not on:
            raise RequestError(f"malformed overlay key '{key}': use JOIN(key, on=field)")
        return _Op(_JOIN, field, on)
    return _Op("", key)


def apply_overlay(
    base: dict[str, Any], overlay: Mapping[str, Any], *, _resolve: bool = True
) -> None:
    """Merges ``overlay`` into ``base`` in place; the result shares nothing with ``overlay``.

    1. dict: recursive merge
    2. list: items are appended
    3. tuple: replaces the list
    4. anything else: overwrites; None sets null

    and by operator: :func:`PUT` replaces, :func:`JOIN` merges list items by a key, :func:`DEL`
    removes.

    >>> base = {"spec": {"cpu": "500m"}, "tags": ["prod"], "replicas": 1}
    >>> apply_overlay(base, {"spec": {"memory": "1Gi"}, "tags": ["gpu"], "replicas": 3})
    >>> base
    {'spec': {'cpu': '500m', 'memory': '1Gi'}, 'tags': ['prod', 'gpu'], 'replicas': 3}

    Args:
        base: the request
        overlay: what to lay over it
        _resolve: for :func:`set_overlay`: False keeps operators as they are, the last one for a
            field winning

    Raises:
        TypeError: a dict or list meets something else; the text has the path. ``base`` is then half
            merged.
    """
    (_merge if _resolve else _accumulate)(base, overlay, "")


def set_overlay(
    target: AppDef | Role, namespace: str, kind: str, overlay: Mapping[str, Any] | Any
) -> None:
    """Stores an overlay in ``target.metadata[namespace][kind]``.

    Several calls for the same namespace and kind accumulate: dicts merge, lists grow; of operators
    for the same field the last one wins. What the metadata held before as a URI or as a flat
    overlay becomes part of the result.

    Args:
        target: the role or app
        namespace: the scheduler (``kubernetes``)
        kind: type of the scheduler's structure (``V1Pod``)
        overlay: fields of that structure, or a dataclass of them (fields that are None are left
            out)

    Raises:
        TypeError: a dict or list meets something else
    """
    metadata: dict[str, Any] = target.metadata
    stored = _stored(metadata, namespace)
    if kind in stored or _BY_KIND in stored:
        by_kind = dict(stored)
    elif stored:
        _warn_flat(namespace, kind, stored)
        by_kind = {kind: stored}
    else:
        by_kind = {}
    merged = copy.deepcopy(by_kind.get(kind)) or {}
    if not isinstance(merged, dict):
        raise OverlayTypeError(_not_a_dict(f"metadata['{namespace}']['{kind}']", merged))
    apply_overlay(merged, _plain(overlay, kind), _resolve=False)
    metadata[namespace] = {_BY_KIND: True, **by_kind, kind: merged}


def get_overlay(
    target: AppDef | Role, namespace: str, kind: str, *, flat_fallback: bool = True
) -> dict[str, Any]:
    """Returns a copy of the overlay in ``target.metadata[namespace][kind]``, or ``{}``.

    If ``metadata[namespace]`` is a string, it is loaded from there: a path or ``file://`` URI, or
    any URI that fsspec knows (needs ``torchx-specs[fsspec]``), of JSON or YAML (needs
    ``torchx-specs[yaml]``).

    If :func:`set_overlay` did not write it and ``kind`` is not a key of it, all of
    ``metadata[namespace]`` is taken for one flat overlay, as older programs wrote it, with a
    DeprecationWarning.

    Args:
        target: the role or app
        namespace: the scheduler (``kubernetes``)
        kind: type of the scheduler's structure (``V1Pod``)
        flat_fallback: False: a flat overlay is not this kind

    Raises:
        ValueError: the file cannot be read, or what is stored is no overlay
    """
    stored = _stored(target.metadata, namespace)
    if kind in stored:
        overlay = stored[kind]
        if overlay is None:
            return {}
        if isinstance(overlay, str):
            overlay = _load(overlay)
        if not isinstance(overlay, Mapping):
            raise OverlayTypeError(_not_a_dict(f"metadata['{namespace}']['{kind}']", overlay))
        return copy.deepcopy(dict(overlay))
    if not stored or _BY_KIND in stored or not flat_fallback:
        return {}
    _warn_flat(namespace, kind, stored)
    return copy.deepcopy(dict(stored))


def validate_overlay(
    overlay: Mapping[str, Any],
    *,
    blocklist: list[str] | tuple[str, ...] | None = None,
    forbidden_keys: set[str] | None = None,
    overlay_name: str = "overlay",
    suggestion: str = "",
) -> None:
    """Checks that an overlay does not touch what it must not.

    Operators count as the field they are for: ``PUT("env")`` is ``env``.

    >>> try:
    ...     validate_overlay(
    ...         {"env": {"FOO": "bar"}, "nodeSelector": {"gpu": "true"}},
    ...         blocklist=["env", "command"],
    ...         overlay_name="PodSpec",
    ...     )
    ... except ValueError as e:
    ...     "env" in str(e)
    True

    Args:
        overlay: as :func:`get_overlay` returned it
        blocklist: keys to be set through attributes of Role or AppDef
        forbidden_keys: keys that belong to another type of overlay
        overlay_name: name of the type, for messages
        suggestion: hint to append where ``forbidden_keys`` are found

    Raises:
        ValueError: the overlay has such keys
    """
    fields = list(dict.fromkeys(_op(key).field for key in overlay))
    misplaced = [field for field in fields if field in (forbidden_keys or ())]
    if misplaced:
        names = ", ".join(f"`{field}`" for field in misplaced)
        raise RequestError(
            f"{overlay_name} overlay contains misplaced keys: {names}. {suggestion}".rstrip()
        )
    blocked = [field for field in fields if field in (blocklist or ())]
    if blocked:
        names = ", ".join(f"`{overlay_name}.{field}`" for field in blocked)
        raise RequestError(
            f"disallowed overlay attributes {names} since they can be set directly on the role's"
            " attributes."
        )


@dataclass(frozen=True)
class OverlaySpec:
    """One kind of overlay that a scheduler reads, for its users to set without naming it again.

    Args:
        namespace: the scheduler (``kubernetes``)
        kind: type of the scheduler's structure (``V1Pod``)
        blocklist: keys to be set through attributes of Role or AppDef
    """

    namespace: str
    kind: str
    blocklist: tuple[str, ...] = ()

    def get(self, target: AppDef | Role) -> dict[str, Any]:
        """Returns the overlay of this kind, checked; a flat one is not taken.

        Raises:
            ValueError: it touches the blocklist
        """
        overlay = get_overlay(target, self.namespace, self.kind, flat_fallback=False)
        validate_overlay(overlay, blocklist=self.blocklist, overlay_name=self.kind)
        return overlay

    def set(self, target: AppDef | Role, overlay: Mapping[str, Any] | Any) -> None:
        """Checks and stores an overlay of this kind.

        Raises:
            ValueError: it touches the blocklist
        """
        plain = _plain(overlay, self.kind)
        validate_overlay(plain, blocklist=self.blocklist, overlay_name=self.kind)
        set_overlay(target, self.namespace, self.kind, plain)


def _merge(base: dict[str, Any], overlay: Mapping[str, Any], path: str) -> None:
    for key, value in overlay.items():
        kind, field, on = _op(key)
        where = f"{path}{field}"
        if kind == _DEL:
            base.pop(field, None)
        elif kind == _PUT:
            base[field] = _resolved(value, where)
        elif kind == _JOIN:
            base[field] = _joined(base.get(field), value, field=where, on=on)
        elif value is None or base.get(field) is None or isinstance(value, tuple):
            _check_list_or_none(base.get(field), value, where)
            base[field] = _resolved(value, where)
        else:
            _check_same_shape(base[field], value, where)
            if isinstance(value, Mapping):
                _merge(base[field], value, f"{where}.")
            elif isinstance(value, list):
                base[field] = _extended(base[field], _resolved(value, where))
            else:
                base[field] = value


def _extended(base: Any, items: list[Any]) -> list[Any]:
    if not isinstance(base, list):
        return [*base, *items]
    base.extend(items)
    return base


def _resolved(value: Any, where: str) -> Any:
    """Copies a value that meets nothing in the base: operators resolved, tuples as lists."""
    if isinstance(value, Mapping):
        fresh: dict[str, Any] = {}
        _merge(fresh, value, f"{where}.")
        return fresh
    if isinstance(value, (list, tuple)):
        return [_resolved(item, f"{where}[{i}]") for i, item in enumerate(value)]
    return copy.deepcopy(value)


def _joined(base: Any, items: Any, *, field: str, on: str) -> list[Any]:
    if base is None:
        base = []
    for owner, value in (("the base", base), ("the overlay", items)):
        if not isinstance(value, (list, tuple)):
            raise OverlayTypeError(
                f"JOIN on `{field}` needs a list in {owner}, got {type(value).__name__}"
            )
        for i, item in enumerate(value):
            if not isinstance(item, Mapping):
                raise OverlayTypeError(
                    f"JOIN on `{field}` needs a list of dicts, but in {owner} item {i} is a"
                    f" {type(item).__name__}"
                )
    result = [dict(item) for item in base]
    for item in items:
        match = next((r for r in result if on in item and on in r and r[on] == item[on]), None)
        if match is None:
            result.append(_resolved(item, f"{field}[]"))
            continue
        for key, value in item.items():
            if _op(key).kind:
                _merge(match, {key: value}, f"{field}[].")
            else:
                match[key] = _resolved(value, f"{field}[].{key}")
    return result


def _accumulate(base: dict[str, Any], overlay: Mapping[str, Any], path: str) -> None:
    """Merges an overlay into an earlier one, keeping operators; for one field the later wins."""
    for key, value in overlay.items():
        kind, field, _ = _op(key)
        where = f"{path}{field}"
        for other in [k for k in base if k != key and _op(k).field == field]:
            del base[other]
        old = base.get(key)
        if kind or key not in base or value is None or old is None or isinstance(value, tuple):
            if not kind:
                _check_list_or_none(old, value, where)
            base[key] = copy.deepcopy(value)
            continue
        _check_same_shape(old, value, where)
        if isinstance(value, Mapping):
            _accumulate(old, value, f"{where}.")
        elif isinstance(value, list):
            base[key] = type(old)([*old, *copy.deepcopy(value)])  # what replaces goes on replacing
        else:
            base[key] = value


def _check_list_or_none(base: Any, value: Any, where: str) -> None:
    if isinstance(value, tuple) and isinstance(base, Mapping):
        raise OverlayTypeError(_mismatch(where, base, value))


def _check_same_shape(base: Any, value: Any, where: str) -> None:
    for shape in (Mapping, (list, tuple)):
        if isinstance(base, shape) != isinstance(value, shape):
            raise OverlayTypeError(_mismatch(where, base, value))


def _mismatch(where: str, base: Any, value: Any) -> str:
    return (
        f"type mismatch for attr: `{where}`. {type(base).__name__} != {type(value).__name__}"
        " (PUT replaces whatever is there)"
    )


def _not_a_dict(where: str, value: Any) -> str:
    return f"{where} is not an overlay: expected a dict, got {type(value).__name__}"


def _plain(overlay: Any, where: str) -> dict[str, Any]:
    """Copies an overlay; dataclasses become dicts of their set fields, enums their values."""
    plain = _plain_value(overlay)
    if not isinstance(plain, dict):
        raise OverlayTypeError(_not_a_dict(where, overlay))
    return plain


def _plain_value(value: Any) -> Any:
    import dataclasses
    from enum import Enum

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        set_fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        return {name: _plain_value(v) for name, v in set_fields if v is not None}
    if isinstance(value, Mapping):
        return {key: _plain_value(v) for key, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain_value(v) for v in value)
    if isinstance(value, list):
        return [_plain_value(v) for v in value]
    if isinstance(value, Enum):
        return value.value
    return copy.deepcopy(value)


def _stored(metadata: Mapping[str, Any], namespace: str) -> Mapping[str, Any]:
    """Returns what the metadata has for a namespace, loaded if it is kept elsewhere."""
    value = metadata.get(namespace)
    if value is None or value == "":
        return {}
    if isinstance(value, str):
        return _load(value)
    if not isinstance(value, Mapping):
        raise OverlayTypeError(_not_a_dict(f"metadata['{namespace}']", value))
    return value


def _load(uri: str) -> Mapping[str, Any]:
    from torchx_specs.formats.documents import parse_document

    data = parse_document(_read(uri), uri)
    if not isinstance(data, Mapping):
        raise RequestError(f"overlay file {uri} must contain a mapping, got {type(data).__name__}")
    return data


def _read(uri: str) -> str:
    scheme, separator, rest = uri.partition("://")
    try:
        if not separator or scheme == "file":
            import os
            from urllib.parse import unquote

            path = unquote(rest.removeprefix("localhost")) if separator else os.path.expanduser(uri)
            with open(path, encoding="utf-8") as local:
                return local.read()
        try:
            import fsspec
        except ImportError:
            raise RequestError(
                f"overlay file {uri}: {scheme}:// needs fsspec: pip install 'torchx-specs[fsspec]'"
            ) from None
        with fsspec.open(uri, "rt", encoding="utf-8") as remote:
            text: str = remote.read()
            return text
    except RequestError:
        raise
    except FileNotFoundError:
        raise RequestError(f"overlay file {uri}: no such file") from None
    except UnicodeDecodeError as e:
        raise RequestError(f"overlay file {uri}: not UTF-8 text ({e.reason})") from None
    except (OSError, ValueError, ImportError) as e:  # fsspec: unknown protocol, missing driver
        raise RequestError(f"overlay file {uri}: {e}") from None


def _warn_flat(namespace: str, kind: str, stored: Mapping[str, Any]) -> None:
    import warnings

    keys = ", ".join(str(key) for key in stored)
    warnings.warn(
        f"metadata['{namespace}'] has no overlay of kind '{kind}' (it has: {keys}), so all of it is"
        f" taken for one; write it as {{'{kind}': ...}} or by"
        f" set_overlay(target, '{namespace}', '{kind}', overlay)",
        DeprecationWarning,
        stacklevel=3,
    )
