"""The three kinds of patches that the API accepts."""

from __future__ import annotations

import copy
from typing import Any

from k8s_double.errors import ApiError, bad_request

# Maps the name of a list to the key by which a strategic merge patch identifies the list's items.
# Other lists are replaced.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "conditions": "type",
    "ownerReferences": "uid",
    "tolerations": "key",
    "imagePullSecrets": "name",
}


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merge_patch(found.get(key), value)
    return found


def strategic_patch(target: Any, patch: Any) -> Any:
    """Apply a strategic merge patch, which merges lists whose items have a key.

    ``$patch: delete`` in an item removes the item; ``$patch: replace`` replaces an object.
    """
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    found = dict(target) if isinstance(target, dict) else {}
    if patch.get("$patch") == "replace":
        return {k: copy.deepcopy(v) for k, v in patch.items() if k != "$patch"}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        if value is None:
            found.pop(key, None)
        elif isinstance(value, list) and key in _MERGE_KEYS:
            found[key] = _merged_list(found.get(key) or [], value, _MERGE_KEYS[key])
        else:
            found[key] = strategic_patch(found.get(key), value)
    return found


def _merged_list(items: list[Any], patch: list[Any], key: str) -> list[Any]:
    found = [copy.deepcopy(item) for item in items]
    for change in patch:
        if not isinstance(change, dict):
            found.append(change)
            continue
        at = next((i for i, item in enumerate(found) if item.get(key) == change.get(key)), None)
        if change.get("$patch") == "delete":
            if at is not None:
                del found[at]
        elif at is None:
            found.append(copy.deepcopy(change))
        else:
            found[at] = strategic_patch(found[at], change)
    return found


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON patch (RFC 6902).

    Raises:
        ApiError: 400 for an invalid patch, 422 if it cannot be applied.
    """
    if not isinstance(operations, list):
        raise bad_request("error decoding patch: json: cannot unmarshal object into a list")
    found = copy.deepcopy(target)
    for operation in operations:
        found = _operated(found, operation)
    return found


def _operated(document: Any, operation: dict[str, Any]) -> Any:
    kind, path = operation.get("op"), operation.get("path", "")
    words = [w.replace("~1", "/").replace("~0", "~") for w in path.split("/")[1:]]
    if kind in ("move", "copy"):
        source = [w.replace("~1", "/").replace("~0", "~") for w in operation["from"].split("/")[1:]]
        value = copy.deepcopy(_at(document, source, operation))
        if kind == "move":
            document = _operated(document, {"op": "remove", "path": operation["from"]})
        return _operated(document, {"op": "add", "path": path, "value": value})
    if kind == "test":
        if _at(document, words, operation) != operation.get("value"):
            raise _refused(f"testing value {path} failed")
        return document
    if not words:
        return copy.deepcopy(operation.get("value"))
    parent, last = _at(document, words[:-1], operation), words[-1]
    if isinstance(parent, list):
        _list_operation(parent, last, operation)
    elif isinstance(parent, dict):
        if kind == "add":
            parent[last] = operation.get("value")
        elif last not in parent:
            raise _refused(f"{kind} operation does not apply: doc is missing key: {path}")
        elif kind == "replace":
            parent[last] = operation.get("value")
        elif kind == "remove":
            del parent[last]
        else:
            raise bad_request(f"Unexpected kind: {kind}")
    else:
        raise _refused(f"{kind} operation does not apply: doc is missing path: {path}")
    return document


def _list_operation(items: list[Any], last: str, operation: dict[str, Any]) -> None:
    kind = operation["op"]
    try:
        at = len(items) if last == "-" else int(last)
        if kind == "add":
            if at > len(items):
                raise IndexError(at)
            items.insert(at, operation.get("value"))
        elif kind == "replace":
            items[at] = operation.get("value")
        else:
            del items[at]
    except (ValueError, IndexError):
        raise _refused(f"{kind} operation does not apply: {operation['path']}") from None


def _at(document: Any, words: list[str], operation: dict[str, Any]) -> Any:
    for word in words:
        try:
            document = document[int(word)] if isinstance(document, list) else document[word]
        except (KeyError, IndexError, ValueError, TypeError):
            what = operation.get("path")
            raise _refused(
                f"{operation.get('op')} operation does not apply: doc is missing path: {what}"
            ) from None
    return document


def _refused(message: str) -> ApiError:
    return ApiError(
        422, "Invalid", f"the server rejected our request due to an error in our request: {message}"
    )
