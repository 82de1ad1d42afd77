"""Overlays patch a scheduler's request with fields that ``AppDef`` and ``Role`` do not have.

Users attach scheduler-specific fields to a role or an app with :func:`set_overlay`. The overlays of
several calls are merged: dicts are merged key by key, and lists are concatenated.

>>> from torchx_specs import Role
>>> from torchx_specs.overlays import DEL, PUT, get_overlay, set_overlay
>>> role = Role(name="trainer", image="my-image", entrypoint="train.py")
>>> set_overlay(role, "kubernetes", "V1Pod", {
...     "spec": {"nodeSelector": {"accelerator": "a100"}},
... })
>>> set_overlay(role, "kubernetes", "V1Pod", {
...     "spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
... })
>>> get_overlay(role, "kubernetes", "V1Pod")
{'spec': {'nodeSelector': {'accelerator': 'a100'}, 'tolerations': [{'key': 'gpu', 'operator': 'Exists'}]}}

The operators :func:`PUT`, :func:`JOIN` and :func:`DEL`, used as keys, replace, join or delete a
field instead:

>>> set_overlay(role, "kubernetes", "V1Pod", {
...     "spec": {PUT("containers"): [{"name": "only"}], DEL("hostNetwork"): None},
... })

A missing key leaves the field unchanged, ``"field": None`` sets it to null, and ``DEL("field")``
removes it. A tuple replaces a list, like ``PUT`` with a list.

Authors of schedulers read, check and apply an overlay::

    overlay = get_overlay(role, "my_scheduler", "JobSpec")
    validate_overlay(overlay, blocklist=["command", "env"], overlay_name="JobSpec")
    apply_overlay(request, overlay)
"""  # noqa: E501 - results as the examples print them

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_specs.errors import RequestError

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef, Role

_PUT = "__put__:"
_JOIN = "__join__:"
_DEL = "__del__:"
#: If ``metadata[namespace]`` has this key, the other keys are kinds, not fields of a flat overlay.
_BY_KIND = "__torchx_overlays__"


class OverlayTypeError(RequestError, TypeError):
    """A field has different types in an overlay and its base; the message has the field's path."""


def PUT(key: str) -> str:  # noqa: N802 - the documented name
    """Return an overlay key that replaces the field ``key`` instead of merging with it.

    >>> base = {"containers": [{"name": "old1"}, {"name": "old2"}]}
    >>> apply_overlay(base, {PUT("containers"): [{"name": "only"}]})
    >>> base
    {'containers': [{'name': 'only'}]}
    """
    return _PUT + key


def JOIN(key: str, *, on: str) -> str:  # noqa: N802 - the documented name
    """Return an overlay key that merges the items of the list ``key`` by their field ``on``.

    Items with the same value for ``on`` are merged; the overlay's fields replace those of the base.
    Other items are appended. The items may contain operators.

    >>> base = {"containers": [{"name": "main", "image": "v1", "cpu": "1"}]}
    >>> apply_overlay(base, {JOIN("containers", on="name"): [
    ...     {"name": "main", "memory": "1Gi"},
    ...     {"name": "sidecar", "image": "proxy"},
    ... ]})
    >>> base
    {'containers': [{'name': 'main', 'image': 'v1', 'cpu': '1', 'memory': '1Gi'}, {'name': 'sidecar', 'image': 'proxy'}]}

    Raises:
        ValueError: ``on`` contains a colon.
        TypeError: Raised by :func:`apply_overlay`: an item of the base or the overlay is not a
            dict.
    """  # noqa: E501 - a result as it is printed
    if ":" in on:
        raise RequestError(f"JOIN('{key}', on='{on}'): the field to join on cannot contain a colon")
    return f"{_JOIN}{key}:{on}"


def DEL(key: str) -> str:  # noqa: N802 - the documented name
    """Return an overlay key that removes the field ``key``; the value is ignored (use None).

    A field set to None is sent as null. A removed field is not sent, and the server uses the
    field's default.

    >>> base = {"keep": 1, "remove_me": "old"}
    >>> apply_overlay(base, {DEL("remove_me"): None})
    >>> base
    {'keep': 1}
    """
    return _DEL + key


class _Key(NamedTuple):
    """A parsed overlay key: the operator (or ""), the field, and for JOIN the field to join on."""

    operator: str
    field: str
    on: str = ""


def _parse_key(key: Any) -> _Key:
    if isinstance(key, str):
        for operator in (_PUT, _DEL):
            if key.startswith(operator):
                return _Key(operator, key[len(operator) :])
        if key.startswith(_JOIN):
            field, _, on = key[len(_JOIN) :].rpartition(":")
            if not field or not on:
                raise RequestError(f"malformed overlay key '{key}': use JOIN(key, on=field)")
            return _Key(_JOIN, field, on)
    return _Key("", key)


def apply_overlay(
    base: dict[str, Any], overlay: Mapping[str, Any], *, _resolve: bool = True
) -> None:
    """Merge ``overlay`` into ``base`` in place; the result shares no data with ``overlay``.

    Dicts are merged recursively, lists are appended, a tuple replaces a list, and any other value
    replaces the value in ``base``. A key made by :func:`PUT` replaces a field, :func:`JOIN` merges
    list items by a field, and :func:`DEL` removes a field.

    >>> base = {"spec": {"cpu": "500m"}, "tags": ["prod"], "replicas": 1}
    >>> apply_overlay(base, {"spec": {"memory": "1Gi"}, "tags": ["gpu"], "replicas": 3})
    >>> base
    {'spec': {'cpu': '500m', 'memory': '1Gi'}, 'tags': ['prod', 'gpu'], 'replicas': 3}

    The argument ``_resolve`` is internal: False keeps operators in the result, for
    :func:`set_overlay`.

    Raises:
        TypeError: A field is a dict or list in ``base`` or ``overlay``, and of another type in the
            other. The message has the field's path. ``base`` is then only partly merged.
    """
    _merge(base, overlay, "", _resolve)


def set_overlay(
    target: AppDef | Role, namespace: str, kind: str, overlay: Mapping[str, Any] | Any
) -> None:
    """Store an overlay in ``target.metadata[namespace][kind]``.

    Overlays of the same namespace and kind are merged: dicts key by key, and lists are
    concatenated. If several operators apply to a field, the last one wins; the items of several
    ``JOIN`` are joined. A flat overlay (see :func:`get_overlay`) is merged as well.

    Args:
        target: The role or app.
        namespace: Name of the scheduler (``kubernetes``).
        kind: Type of the scheduler's structure (``V1Pod``).
        overlay: Fields of that structure, as a dict or a dataclass. Fields of a dataclass that are
            None are left out. If ``metadata[namespace]`` is not a dict, the overlay replaces this
            value, with a warning.

    Raises:
        TypeError: A field is a dict or list in one overlay and of another type in the other.
        ValueError: The file of the earlier overlay cannot be read, or a key is malformed.
    """
    metadata: dict[str, Any] = target.metadata
    stored = metadata.get(namespace) or {}
    if not isinstance(stored, Mapping):
        _warn(
            f"set_overlay() replaces metadata['{namespace}'], which is not a dict but a"
            f" {type(stored).__name__}"
        )
        stored = {}
    by_kind = _by_kind(stored, namespace, kind)
    merged = _overlay_of(by_kind, namespace, kind)
    apply_overlay(merged, _plain(overlay, kind), _resolve=False)
    metadata[namespace] = {_BY_KIND: True, **by_kind, kind: merged}


def get_overlay(
    target: AppDef | Role, namespace: str, kind: str, *, flat_fallback: bool = True
) -> dict[str, Any]:
    """Return a copy of the overlay in ``target.metadata[namespace][kind]``, or ``{}``.

    If ``metadata[namespace]`` or ``metadata[namespace][kind]`` is a string, the overlay is in a
    file: a path, a ``file://`` URI, or any URI that fsspec supports (needs
    ``torchx-specs[fsspec]``). The file is JSON or YAML (needs ``torchx-specs[yaml]``), and has at
    most 16 MiB.

    Programs written before kinds existed use a flat overlay: ``metadata[namespace]`` contains the
    fields of one kind directly. A flat overlay is returned for any kind, with a warning on the
    logger ``torchx.specs.overlays``. A dict of several dicts is not a flat overlay: its keys are
    kinds. A dict with one dict, whose key begins with a capital letter, is not flat either. With
    ``flat_fallback=False``, a flat overlay is ignored. :func:`set_overlay` describes the arguments.

    Raises:
        ValueError: The file cannot be read, or the value for the kind is not an overlay.
    """
    stored = target.metadata.get(namespace)
    if isinstance(stored, str) and stored:
        stored = _load(stored)
    if not isinstance(stored, Mapping):
        return {}
    by_kind = _by_kind(stored, namespace, kind) if flat_fallback else stored
    return _overlay_of(by_kind, namespace, kind)


def warn_of_flat_overlay(namespace: str, kind: str, stored: Mapping[str, Any]) -> None:
    """Log a warning that ``metadata[namespace]`` is a flat overlay, used for ``kind``."""
    keys = ", ".join(str(key) for key in stored)
    _warn(
        f"metadata['{namespace}'] has no overlay of kind '{kind}' (keys: {keys}) and is used as a"
        f" flat overlay; write it as {{'{kind}': ...}}, or call"
        f" set_overlay(target, '{namespace}', '{kind}', overlay)"
    )


def validate_overlay(
    overlay: Mapping[str, Any],
    *,
    blocklist: list[str] | tuple[str, ...] | None = None,
    forbidden_keys: set[str] | None = None,
    overlay_name: str = "overlay",
    suggestion: str = "",
) -> None:
    """Check that an overlay does not set fields of ``blocklist`` or ``forbidden_keys``.

    Operators are ignored: ``PUT("env")`` counts as ``env``.

    >>> validate_overlay({"env": {}}, blocklist=["env"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    torchx_specs.errors.RequestError: disallowed overlay attributes `overlay.env` since ...

    Args:
        overlay: The overlay.
        blocklist: Keys to refuse, because attributes of Role or AppDef set them.
        forbidden_keys: Keys to refuse, because they belong to another kind of overlay.
        overlay_name: The kind of the overlay, for error messages.
        suggestion: Hint to append to the error message for ``forbidden_keys``.

    Raises:
        ValueError: The overlay has such keys.
    """
    keys = list(dict.fromkeys(_parse_key(key).field for key in overlay))
    misplaced = [key for key in keys if key in (forbidden_keys or ())]
    if misplaced:
        names = ", ".join(f"`{key}`" for key in misplaced)
        raise RequestError(
            f"{overlay_name} overlay contains misplaced keys: {names}. {suggestion}".rstrip()
        )
    blocked = [key for key in keys if key in (blocklist or ())]
    if blocked:
        names = ", ".join(f"`{overlay_name}.{key}`" for key in blocked)
        raise RequestError(
            f"disallowed overlay attributes {names} since they can be set directly on the role's"
            " attributes."
        )


@dataclass(frozen=True)
class OverlaySpec:
    """A kind of overlay that a scheduler reads.

    Both methods raise a ValueError if an overlay has keys of the blocklist.

    Args:
        namespace: Name of the scheduler (``kubernetes``).
        kind: Type of the scheduler's structure (``V1Pod``).
        blocklist: Keys to refuse, because attributes of Role or AppDef set them.
    """

    namespace: str
    kind: str
    blocklist: tuple[str, ...] = ()

    def get(self, target: AppDef | Role) -> dict[str, Any]:
        """Return the checked overlay of this kind; flat overlays are ignored."""
        overlay = get_overlay(target, self.namespace, self.kind, flat_fallback=False)
        validate_overlay(overlay, blocklist=self.blocklist, overlay_name=self.kind)
        return overlay

    def set(self, target: AppDef | Role, overlay: Mapping[str, Any] | Any) -> None:
        """Check and store an overlay of this kind."""
        plain = _plain(overlay, self.kind)
        validate_overlay(plain, blocklist=self.blocklist, overlay_name=self.kind)
        set_overlay(target, self.namespace, self.kind, plain)


def _merge(base: dict[str, Any], overlay: Mapping[str, Any], path: str, resolve: bool) -> None:
    """Merge an overlay into ``base``; without ``resolve``, keep the last operator of each field."""
    for key, value in overlay.items():
        operator, field, on = _parse_key(key)
        where = f"{path}{field}"
        name = field if resolve else key
        old = base.get(name, base.get(field))
        if not resolve:
            for other in [k for k in base if k != key and _parse_key(k).field == field]:
                del base[other]
        if operator == _DEL and resolve:
            base.pop(field, None)
        elif operator == _JOIN and (resolve or isinstance(old, list)):
            base[name] = _joined([] if old is None else old, value, where, on, resolve)
        elif operator or old is None or value is None:
            base[name] = _copied(value, where, resolve)
        else:
            _check_same_shape(old, value, where)
            if isinstance(value, Mapping):
                _merge(old, value, f"{where}.", resolve)
                continue
            new = _copied(value, where, resolve)
            if isinstance(value, list) and isinstance(old, list):
                old.extend(new)
            elif isinstance(value, list):
                base[name] = [*old, *new] if resolve else (*old, *new)
            else:
                base[name] = new


def _copied(value: Any, where: str, resolve: bool) -> Any:
    """Copy a value; if ``resolve`` is True, apply operators, and convert tuples to lists."""
    if resolve and isinstance(value, Mapping):
        fresh: dict[str, Any] = {}
        _merge(fresh, value, f"{where}.", resolve)
        return fresh
    if resolve and isinstance(value, (list, tuple)):
        return [_copied(item, f"{where}[{i}]", resolve) for i, item in enumerate(value)]
    return copy.deepcopy(value)


def _joined(base: Any, items: Any, field: str, on: str, resolve: bool) -> list[Any]:
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
        same = (known for known in result if on in known and on in item and known[on] == item[on])
        match = next(same, None)
        if match is None:
            result.append(_copied(item, f"{field}[]", resolve))
            continue
        for key, value in item.items():
            if not _parse_key(key).operator:
                match[key] = None  # The overlay's field replaces the base's field.
            _merge(match, {key: value}, f"{field}[].", resolve)
    return result


def _check_same_shape(base: Any, value: Any, where: str) -> None:
    # A tuple replaces values of all types except dicts.
    shapes = (Mapping,) if isinstance(value, tuple) else (Mapping, (list, tuple))
    if any(isinstance(base, shape) != isinstance(value, shape) for shape in shapes):
        raise OverlayTypeError(
            f"type mismatch for attr: `{where}`. {type(base).__name__} != {type(value).__name__}"
            " (PUT replaces whatever is there)"
        )


def _plain(overlay: Any, where: str) -> dict[str, Any]:
    plain = _plain_value(overlay)
    if not isinstance(plain, dict):
        found = type(overlay).__name__
        raise OverlayTypeError(f"{where} is not an overlay: expected a dict, got {found}")
    return plain


def _plain_value(value: Any) -> Any:
    """Copy a value; convert dataclasses to dicts without None values, and enums to values."""
    if is_dataclass(value) and not isinstance(value, type):
        set_fields = ((f.name, getattr(value, f.name)) for f in fields(value))
        return {name: _plain_value(v) for name, v in set_fields if v is not None}
    if isinstance(value, Mapping):
        return {key: _plain_value(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_plain_value(v) for v in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value.value if isinstance(value, Enum) else copy.deepcopy(value)


def _by_kind(stored: Mapping[str, Any], namespace: str, kind: str) -> Mapping[str, Any]:
    """Return a namespace's overlays by kind; use a flat overlay, with a warning, for ``kind``."""
    several = len(stored) > 1 or next(iter(stored), "")[:1].isupper()
    by_kind = several and all(isinstance(value, Mapping) for value in stored.values())
    if not stored or kind in stored or _BY_KIND in stored or by_kind:
        return stored
    warn_of_flat_overlay(namespace, kind, stored)
    return {kind: stored}


def _overlay_of(by_kind: Mapping[str, Any], namespace: str, kind: str) -> dict[str, Any]:
    """Return a copy of the overlay of a kind; a string is the path or URI of a file to load."""
    overlay = by_kind.get(kind) or {}
    if isinstance(overlay, str):
        overlay = _load(overlay)
    return _plain(overlay, f"metadata['{namespace}']['{kind}']")


def _load(uri: str) -> Mapping[str, Any]:
    from torchx_specs.formats.documents import parse_document, read_text_file

    scheme, separator, rest = uri.partition("://")
    if not separator:
        text = read_text_file(uri)
    elif scheme == "file":
        from urllib.parse import unquote

        text = read_text_file(unquote(rest.removeprefix("localhost")))
    else:
        text = _read_remote(uri, scheme)
    data = parse_document(text, uri)
    if not isinstance(data, Mapping):
        raise RequestError(f"overlay file {uri} must contain a mapping, got {type(data).__name__}")
    return data


def _read_remote(uri: str, scheme: str) -> str:
    from torchx_specs.formats.documents import decode

    try:
        import fsspec
    except ImportError:
        raise RequestError(
            f"overlay file {uri}: {scheme}:// needs fsspec: pip install 'torchx-specs[fsspec]'"
        ) from None
    try:
        with fsspec.open(uri, "rb") as remote:
            return decode(remote.read(), f"overlay file {uri}")
    except RequestError:
        raise
    except (OSError, ValueError, ImportError) as e:  # also: unknown protocol, missing library
        raise RequestError(f"overlay file {uri}: {e}") from None


def _warn(message: str) -> None:
    import logging

    # Programs configure the logger by this name, which is the documented address of the module.
    logging.getLogger("torchx.specs.overlays").warning(message)
