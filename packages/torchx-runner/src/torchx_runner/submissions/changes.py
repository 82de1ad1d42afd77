"""Changes fields of an app document, and lists the differences between two documents.

An app document is an app as plain data (:mod:`torchx_specs.formats.serialize`). In an assignment,
the path of a field is ``name``, ``metadata.KEY``, ``ROLE.FIELD`` or ``ROLE.FIELD.KEY``. A path of a
role's field without the role, such as ``env.LR``, selects this field of every role.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from torchx_specs.components.parser import option_key
from torchx_specs.components.signature import ComponentSignature
from torchx_specs.errors import RequestError, nearest

_APP_FIELDS = ("name", "metadata")
_ROLE_FIELDS = (
    *("image", "entrypoint", "args", "env", "num_replicas", "min_replicas", "max_retries"),
    *("retry_policy", "resource", "port_map", "mounts", "metadata", "workspace"),
)
# Fields whose values are text, even if the text looks like a number.
_TEXT_FIELDS = ("name", "image", "entrypoint", "retry_policy")

# If two lists differ in length and one is longer than this, they are one difference as a whole:
# finding their common items takes quadratic time.
_MAX_ALIGNED = 1000

#: The value of a field that a document lacks.
ABSENT = object()


class Difference(NamedTuple):
    """One difference between two documents.

    Attributes:
        path: The path of the value, such as ``roles.trainer.args[1]``.
        before: The value in the first document, or :data:`ABSENT`.
        after: The value in the second document, or :data:`ABSENT`.
        preceding: If the value is an item of a list, the item before it in each list, or None. A
            secret may follow an option such as ``--password``.
    """

    path: str
    before: Any
    after: Any
    preceding: tuple[Any, Any] = (None, None)


def with_fields(document: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Return a copy of an app document in which some fields have new values.

    >>> app = {"name": "a", "roles": [{"name": "r", "env": {"A": "1"}, "num_replicas": 1}]}
    >>> with_fields(app, ["r.num_replicas=4", "env.B=2"])["roles"]
    [{'name': 'r', 'env': {'A': '1', 'B': '2'}, 'num_replicas': 4}]

    Args:
        document: The document.
        assignments: Texts of the form ``PATH=VALUE``. The value of a field that is not text may be
            JSON, such as ``args=["--lr", "0.1"]``.

    Raises:
        RequestError: An assignment has no path or no ``=``, or the path does not fit an app.
    """
    changed = copy.deepcopy(dict(document))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise RequestError(
                f"--set '{assignment:.200}': not of the form FIELD=VALUE, such as env.LR=0.1"
            )
        for target, keys in _targets(changed, path):
            _assign(target, keys, text, path)
    return changed


def _targets(document: dict[str, Any], path: str) -> list[tuple[dict[str, Any], list[str]]]:
    """Return the app or the roles that a path selects, each with the other parts of the path."""
    roles = [role for role in document.get("roles", ()) if isinstance(role, dict)]
    for role in roles:
        prefix = f"{role.get('name')}."
        if path.startswith(prefix):
            return [(role, _checked(path, path[len(prefix) :].split("."), _ROLE_FIELDS))]
    keys = path.split(".")
    if keys[0] in _APP_FIELDS:
        return [(document, keys)]
    names = [str(role.get("name")) for role in roles]
    return [(role, _checked(path, keys, (*_ROLE_FIELDS, *_APP_FIELDS, *names))) for role in roles]


def _checked(path: str, keys: list[str], known: Iterable[str]) -> list[str]:
    if keys[0] not in known:
        raise RequestError(
            f"--set {path:.200}: an app has no field or role '{keys[0]}';"
            f"{nearest(keys[0], known)} fields: {', '.join(dict.fromkeys(known))}"
        )
    return keys


def _assign(record: dict[str, Any], keys: list[str], text: str, path: str) -> None:
    is_text = (keys[0] in _TEXT_FIELDS and len(keys) == 1) or (
        keys[0] in ("env", "args") and len(keys) > 1
    )
    value = text if is_text else _json_or_text(text)
    *above, last = keys
    target: Any = record
    for key in above:
        if isinstance(target, dict) and target.get(key) is None:
            target[key] = {}
        target = target[_key_in(target, key, path)]
    target[_key_in(target, last, path)] = value


def _key_in(target: Any, key: str, path: str) -> str | int:
    """Return the key of a part of a dict or list."""
    if isinstance(target, dict):
        return key
    if not isinstance(target, list):
        raise RequestError(f"--set {path:.200}: '{key}' is part of a value that has no parts")
    if not (key.isascii() and key.isdecimal() and len(key) < 9 and int(key) < len(target)):
        raise RequestError(
            f"--set {path:.200}: '{key}' is not the number of an item; the list has"
            f" {len(target)} items, the first of which is 0"
        )
    return int(key)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:
    """Yield the differences between two documents; roles are compared by their names.

    >>> [d.path for d in differences({"args": ["a", "b"]}, {"args": ["a", "c"], "x": 1})]
    ['args[1]', 'x']

    Args:
        before: The first document, or a value in it.
        after: The second document, or a value in it.
        path: The path of both values; empty for whole documents.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in {**before, **after}:
            below = f"{path}.{key}" if path else str(key)
            yield from differences(before.get(key, ABSENT), after.get(key, ABSENT), below)
    elif isinstance(before, list) and isinstance(after, list):
        names = _by_name(before), _by_name(after)
        if names[0] is not None and names[1] is not None:
            yield from differences(*names, path)
        else:
            yield from _list_differences(before, after, path)
    elif before != after or type(before) is not type(after):
        yield Difference(path, before, after)


def flattened(document: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values of a document by their paths, as :func:`differences` names them.

    >>> flattened({"env": {"A": "1"}, "args": ["x", "y"], "mounts": []})
    {'env.A': '1', 'args[0]': 'x', 'args[1]': 'y'}
    """
    values: dict[str, Any] = {}
    for key, value in document.items():
        below = f"{path}.{key}" if path else str(key)
        items = _by_name(value) if isinstance(value, list) else value
        if isinstance(items, Mapping):
            values.update(flattened(items, below))
        elif isinstance(value, list):
            for i, item in enumerate(value):
                is_record = isinstance(item, Mapping)
                where = f"{below}[{i}]"
                values.update(flattened(item, where) if is_record else {where: item})
        else:
            values[below] = value
    return values


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """Return the items by their names, or None if they are not records with distinct names."""
    named = {str(item["name"]): item for item in items if isinstance(item, dict) and "name" in item}
    return named if len(named) == len(items) else None


def _list_differences(before: list[Any], after: list[Any], path: str) -> Iterator[Difference]:
    if len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            where = f"{path}[{index}]"
            preceding = _preceding(before, index, after, index)
            for found in differences(one, other, where):
                yield found._replace(preceding=preceding) if found.path == where else found
        return
    if max(len(before), len(after)) > _MAX_ALIGNED:
        yield Difference(path, before, after)
        return
    texts = [[json.dumps(item, sort_keys=True, default=str) for item in x] for x in (before, after)]
    matcher = SequenceMatcher(a=texts[0], b=texts[1], autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind != "equal":
            where = f"{path}[{i}]" if j - i <= 1 else f"{path}[{i}:{j}]"
            preceding = _preceding(before, i, after, k)
            yield Difference(where, before[i:j] or ABSENT, after[k:m] or ABSENT, preceding)


def _preceding(before: list[Any], i: int, after: list[Any], k: int) -> tuple[Any, Any]:
    return before[i - 1] if i else None, after[k - 1] if k else None


class ArgumentChange(NamedTuple):
    """A new value of an argument; the value of a flag is None."""

    option: str
    value: str | None


def read_changes(words: Sequence[str]) -> Iterator[ArgumentChange]:
    """Yield the changes that words such as ``--lr 0.5``, ``--lr=0.5`` and ``--resume`` describe.

    Raises:
        RequestError: A word is not an option, and follows none.
    """
    rest = list(words)
    while rest:
        option, equals, value = rest.pop(0).partition("=")
        if not _is_option(option):
            raise RequestError(
                f"'{option}' is not the name of an argument: give changes as --NAME VALUE"
            )
        if equals:
            yield ArgumentChange(option, value)
        else:
            yield ArgumentChange(option, rest.pop(0) if rest and not _is_option(rest[0]) else None)


def changed_arguments(
    arguments: Sequence[str],
    changes: Iterable[ArgumentChange],
    signature: ComponentSignature,
    add: bool = False,
) -> list[str]:
    """Return the arguments of a component call with new values.

    A change sets the component's parameter of this name. If the component has none, the change
    replaces the option of the component's program, whose arguments follow ``--``.

    Args:
        arguments: The arguments of the call.
        changes: The changes.
        signature: The component's parameters.
        add: Whether an option that the program's arguments lack is added at the end.

    Raises:
        RequestError: The program's arguments lack the option, or have it several times.
    """
    split = arguments.index("--") if "--" in arguments else len(arguments)
    own, program = [*arguments[:split]], [*arguments[split + 1 :]]
    parameters = {
        option_key(option): {*map(option_key, (*parameter.options, *parameter.negations))}
        for parameter in signature.parameters
        for option in (*parameter.options, *parameter.negations)
    }
    for change in changes:
        key = option_key(change.option)
        if key in parameters:
            _set(own, parameters[key], change)
            continue
        count = sum(option_key(word.partition("=")[0]) == key for word in program)
        if count == 1:
            _set(program, {key}, change)
        elif count or not add:
            names = [word.partition("=")[0] for word in program if _is_option(word)]
            remedy = f"{nearest(change.option, [*names, *parameters])} --add adds it;"
            raise RequestError(
                f"{change.option} is {'several times' if count else 'not'} among the arguments;"
                f"{'' if count else remedy} --edit opens the call in $EDITOR"
            )
        else:
            program += [change.option] if change.value is None else [change.option, change.value]
    return [*own, "--", *program] if split < len(arguments) or program else own


def named_arguments(arguments: Sequence[str]) -> dict[str, str]:
    """Return the arguments of a call: of an option by its name, of other words by their position.

    >>> named_arguments(["--script", "t.py", "--", "--lr=0.3", "--amp", "--lr", "1", "data"])
    {'--script': 't.py', '--lr': '0.3', '--amp': '', '--lr (2)': '1', '1': 'data'}
    """
    found: dict[str, str] = {}
    words = [word for word in arguments if word != "--"]
    place = 0
    while words:
        word = words.pop(0)
        if not _is_option(word):
            place += 1
            found[str(place)] = word
            continue
        name, equals, value = word.partition("=")
        if not equals and words and not _is_option(words[0]):
            value = words.pop(0)
        number = 1 + sum(key == name or key.startswith(f"{name} (") for key in found)
        found[name if number == 1 else f"{name} ({number})"] = value
    return found


def _set(words: list[str], keys: set[str], change: ArgumentChange) -> None:
    """Replace the value of an option, or add the option at the end."""
    value = [] if change.value is None else [change.value]
    for position, word in enumerate(words):
        name, equals, _ = word.partition("=")
        if option_key(name) in keys:
            if equals:
                words[position : position + 1] = ["=".join([name, *value])]
            else:
                has_value = position + 1 < len(words) and not _is_option(words[position + 1])
                option = name if value else change.option  # --debug may become --no-debug
                words[position : position + 1 + has_value] = [option, *value]
            return
    words += [change.option, *value]


def _is_option(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit() and word not in ("-", "--")
