"""Reads and changes the arguments of a component call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from torchx_specs.components.parser import option_key
from torchx_specs.components.signature import ComponentSignature
from torchx_specs.errors import RequestError, nearest


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
