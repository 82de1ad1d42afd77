"""The types that a component's parameter may have, with a converter for each.

:data:`_TYPES` and :data:`_GENERIC_TYPES` are the only tables of types. Signatures look up
annotations with :func:`converter_for`. If a signature is read from source code, its annotations are
resolved to the same types, and unknown names to subclasses of :class:`UnresolvedType`.
"""

from __future__ import annotations

import collections.abc
import copy
import enum
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torchx_specs.errors import nearest
from torchx_specs.text_values import FALSE_VALUES, TRUE_VALUES, parse_bool, split_list, split_pairs

#: The supported types, as error messages list them.
SUPPORTED_TYPES = (
    "str, int, float, bool, Literal, Enum, pathlib.Path, list[...], tuple[...], dict[str, ...],"
    " Optional and Union of these, Annotated[..., '-x']"
)


class UnsupportedTypeError(TypeError):
    """An annotation has no converter.

    Args:
        culprit: The part of the annotation without a converter; this is the message.
        problem: The problem in the linter's words (default: derived from ``culprit``).
    """

    def __init__(self, culprit: str, problem: str = "") -> None:
        super().__init__(culprit)
        generic, bracket, _ = culprit.partition("[")
        self.problem = problem or (
            f"Unsupported container type '{generic.rpartition('.')[2]}'"
            if bracket
            else f"Unsupported argument type '{culprit}'"
        )


class UnresolvedType:
    """Base class of placeholders for types whose definition is not in the source that was read."""


class Converter:
    """Reads values of one type.

    Attributes:
        name: Name of the type in help and messages.
        is_flag: Whether the option can be given without a value, and negated (``--no-NAME``).
        is_repeatable: Whether the type holds several values, so that the option can be repeated.
        is_scalar: Whether a value can be an item of a list.
        takes_empty: Whether the empty string is a value of the type.
        takes_none: Whether None is valid, too: as ``None`` or, unless ``takes_empty``, empty text.
        takes_text: Whether a value, or an item of it, may be any text, such as the path of a file.
        choices: The valid texts of a value or of an item; empty if they are not limited.
        rank: Position among the members of a union; lower ranks are tried first.
    """

    name: str = ""
    is_flag: bool = False
    is_repeatable: bool = False
    is_scalar: bool = True
    takes_empty: bool = False
    takes_none: bool = False
    takes_text: bool = False
    choices: tuple[str, ...] = ()
    rank: int = 5

    def read(self, value: Any, typed: bool = False) -> Any:
        """Convert a text or, if ``typed``, a value from JSON or Python to this type.

        A typed value that is a string is parsed unless the type includes strings. An invalid value
        raises a ValueError; callers put the name of the option before its message.
        """
        if self.takes_none and (value is None or (value == "" and not self.takes_empty)):
            return None
        try:
            return self._read(value, typed)
        except ValueError:
            if self.takes_none and value == "None":
                return None
            raise

    def _read(self, value: Any, typed: bool) -> Any:
        raise NotImplementedError

    def join(self, first: Any, more: Any) -> Any:
        """Combine two values of a repeated option; ``first`` was given first."""
        raise NotImplementedError

    def _describe_items(self, items: Iterable[Converter]) -> None:
        for item in items:
            self.takes_text |= item.takes_text
            self.choices += item.choices

    def _mismatch(self, value: Any) -> ValueError:
        given = "null" if value is None else f"{value!r} ({type(value).__name__})"
        return ValueError(f"expected {self.name}, got {given}")


class _ScalarConverter(Converter):
    """Reads a type such as ``int``; ``convert`` converts values whose type is in ``accepts``."""

    def __init__(
        self,
        name: str,
        rank: int,
        parse: Callable[[str], Any],
        accepts: type | tuple[type, ...] = (),
        convert: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.name = name
        self.rank = rank
        self.is_flag = name == "bool"
        self.takes_empty = name == "str"
        self.takes_text = name in ("str", "Path")
        self._parse = parse
        self._accepts = accepts
        self._takes_bool = accepts in (bool, object)
        self._convert = convert

    def _read(self, value: Any, typed: bool) -> Any:
        if isinstance(value, str):
            return self._parse(value)
        # True and False are instances of int, but are not valid numbers.
        if isinstance(value, self._accepts) and (self._takes_bool or not isinstance(value, bool)):
            return self._convert(value)
        raise self._mismatch(value)


def _number(number_type: type[int] | type[float], article: str) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return number_type(text)
        except ValueError:
            raise ValueError(f"'{text}' is not {article} {number_type.__name__}") from None

    return parse


def _none(text: str) -> None:
    if text not in ("", "None"):
        raise ValueError(f"'{text}' is not None")


def _path(path_type: type) -> Converter:
    def parse(text: str) -> Any:
        if not text:
            raise ValueError("a path cannot be empty")
        return path_type(text)

    return _ScalarConverter("Path", 7, parse, os.PathLike, path_type)


class _ChoiceConverter(Converter):
    """Reads a Literal or an Enum: one of several choices, given by name or by value."""

    rank = 0

    def __init__(self, names: list[tuple[str, Any]]) -> None:
        self._values = [(getattr(choice, "value", choice), choice) for _, choice in names]
        # If choices have the same text, such as 1 and "1", the text means the string.
        by_text = sorted(names, key=lambda pair: not isinstance(pair[1], str))
        by_text += [(str(value), choice) for value, choice in self._values]
        self._by_text = dict(reversed(by_text))
        self.choices = tuple(text for text, _ in names)
        self.name = "{" + ",".join(self.choices) + "}"
        self.takes_empty = "" in self._by_text

    def _read(self, value: Any, typed: bool) -> Any:
        if typed:
            for known, choice in self._values:
                if value is choice or (type(known) is type(value) and known == value):
                    return choice
        if not isinstance(value, str):
            raise self._mismatch(value)
        if value in self._by_text:
            return self._by_text[value]
        for known, choice in self._values:
            texts = TRUE_VALUES if known else FALSE_VALUES
            if isinstance(known, bool) and value.lower() in texts:
                return choice
        hint = nearest(value, self._by_text)
        raise ValueError(f"'{value}' is not one of {', '.join(self.choices)};{hint}".rstrip(";"))


class _SequenceConverter(Converter):
    """Reads a list or a tuple: ``a,b``. A tuple of fixed length has a converter for each item."""

    is_scalar = False

    def __init__(
        self, name: str, items: list[Converter], make: type = tuple, fixed: bool = False
    ) -> None:
        self.name = name.format(", ".join(item.name for item in items))
        self.is_repeatable = not fixed
        self.rank = 5 if fixed else 8
        self._describe_items(items)
        self._items = items
        self._make = make

    def _read(self, value: Any, typed: bool) -> Any:
        if isinstance(value, str):
            parts, typed = split_list(value), False
        elif isinstance(value, (list, tuple)):
            parts = list(value)
        else:
            raise self._mismatch(value)
        items = self._items * len(parts) if self.is_repeatable else self._items
        if len(parts) != len(items):
            raise ValueError(f"'{value}' has {len(parts)} items, expected {len(items)}")
        return self._make(item.read(part, typed) for item, part in zip(items, parts, strict=True))

    def join(self, first: Any, more: Any) -> Any:
        return self._make([*(first or ()), *(more or ())])


class _DictConverter(Converter):
    """Reads dicts: ``k=v,k2=v2``."""

    is_scalar = False
    is_repeatable = True
    rank = 4

    def __init__(self, key: Converter, value: Converter) -> None:
        self._key = key
        self._value = value
        self.name = f"dict[{key.name}, {value.name}]"
        self._describe_items([key])

    def _read(self, value: Any, typed: bool) -> dict[Any, Any]:
        pairs: Iterable[tuple[Any, Any]]
        if isinstance(value, str):
            pairs, typed = split_pairs(value), False
        elif isinstance(value, Mapping):
            pairs = value.items()
        else:
            raise self._mismatch(value)
        read = {}
        for key, item in pairs:
            try:
                read[self._key.read(key, typed)] = self._value.read(item, typed)
            except ValueError as e:
                raise ValueError(f"{key}: {e}") from None
        return read

    def join(self, first: Any, more: Any) -> Any:
        return {**(first or {}), **(more or {})}


class _UnionConverter(Converter):
    """Reads one of several types: the most specific that fits, ``str`` last."""

    def __init__(self, members: tuple[Converter, ...]) -> None:
        self._members = sorted(members, key=lambda member: member.rank)
        self.name = " | ".join(member.name for member in members)
        self.is_scalar = all(member.is_scalar for member in members)
        self.takes_empty = any(member.takes_empty for member in members)
        self._describe_items(members)

    def _read(self, value: Any, typed: bool) -> Any:
        is_text = isinstance(value, str)
        # a JSON string such as "1" must not become a number if the union has str
        if typed and is_text and self._members[-1].name == "str":
            return value
        for member in self._members:
            try:
                return member.read(value, typed=not is_text)
            except ValueError:
                continue
        raise ValueError(f"'{value}' is not {self.name}") if is_text else self._mismatch(value)


def optional(converter: Converter) -> Converter:
    """Return a converter that also accepts None."""
    converter = copy.copy(converter)
    converter.takes_none = True
    return converter


def converter_for(annotation: Any) -> Converter:
    """Return the converter for a resolved annotation (not a string).

    Raises:
        UnsupportedTypeError: The annotation has no converter.
    """
    try:
        if annotation in _TYPES:
            return _TYPES[annotation]
    except TypeError:  # an annotation that is not hashable, such as a Literal of a list
        pass
    origin = typing.get_origin(annotation)
    # Dict[str] cannot be created; in source code, it is an alias whose origin is typing.Dict
    origin = typing.get_origin(origin) or origin
    if origin in _GENERIC_TYPES:
        return _GENERIC_TYPES[origin](annotation, typing.get_args(annotation))
    if isinstance(annotation, type) and origin is None:
        if annotation in _GENERIC_TYPES:  # a generic type without arguments, such as `list`
            return _GENERIC_TYPES[annotation](annotation, ())
        if issubclass(annotation, UnresolvedType):
            return _ANY
        if issubclass(annotation, enum.Enum) and len(annotation.__members__):
            return _ChoiceConverter(list(annotation.__members__.items()))
        pathlib = sys.modules.get("pathlib")  # a class of pathlib implies that pathlib is imported
        if pathlib is not None and issubclass(annotation, pathlib.PurePath):
            return _path(annotation)
    if hasattr(annotation, "__supertype__"):  # NewType
        return converter_for(annotation.__supertype__)
    if type(annotation).__name__ == "TypeAliasType":  # `type X = ...` of Python 3.12
        return converter_for(annotation.__value__)
    raise UnsupportedTypeError(type_name(annotation))


def type_name(annotation: Any) -> str:
    """Return an annotation as it is written in source code."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__.rpartition("<locals>.")[2]
    return str(annotation).replace("typing.", "")


def _require(is_supported: bool, whole: Any, problem: str = "") -> None:
    if not is_supported:
        raise UnsupportedTypeError(type_name(whole), problem)


def _item(argument: Any, whole: Any, part: str = "element", lists: bool = False) -> Converter:
    """Return the converter of an item, which must be a scalar or, if ``lists``, a list of them."""
    problem = f"Non-primitive {part} type '{type_name(argument)}'"
    try:
        item = converter_for(argument)
    except UnsupportedTypeError as e:
        raise UnsupportedTypeError(str(e), problem) from None
    _require(item.is_scalar or (lists and isinstance(item, _SequenceConverter)), whole, problem)
    return item


def _list(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    _require(len(arguments) < 2, whole)
    items = [_item(argument, whole) for argument in arguments or (str,)]
    return _SequenceConverter("list[{}]", items, list)


def _tuple(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    if whole in (tuple, typing.Tuple):  # noqa: UP006 - typing.Tuple is another object
        arguments = (str, ...)
    if len(arguments) == 2 and arguments[1] is ...:
        return _SequenceConverter("tuple[{}, ...]", [_item(arguments[0], whole)])
    problem = f"Unsupported tuple type '{type_name(whole)}': expected at least two items"
    _require(len(arguments) > 1, whole, f"{problem} (tuple[T1, T2])")
    items = [_item(argument, whole) for argument in arguments]
    return _SequenceConverter("tuple[{}]", items, fixed=True)


def _dict(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    problem = f"Malformed dict type '{type_name(whole)}', expected exactly two type parameters"
    _require(len(arguments) in (0, 2), whole, f"{problem} (dict[K, V])")
    key, value = arguments or (str, str)
    keys = _item(key, whole, "key")
    return _DictConverter(keys, _item(value, whole, "value", lists=True))


def _union(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    members = tuple(converter_for(a) for a in arguments if a is not type(None))
    _require(bool(members), whole)
    converter = members[0] if len(members) == 1 else _UnionConverter(members)
    return converter if len(members) == len(arguments) else optional(converter)


def _literal(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    values = tuple(value for value in arguments if value is not None)
    if not values:
        return _TYPES[None]
    choice = _ChoiceConverter([(str(getattr(value, "name", value)), value) for value in values])
    return choice if len(values) == len(arguments) else optional(choice)


_ANY = _ScalarConverter("str", 10, str, object)  # returns any value unchanged

#: Types without arguments. converter_for also supports enums, path classes, NewTypes and aliases.
_TYPES: dict[Any, Converter] = {
    str: _ScalarConverter("str", 9, str),
    int: _ScalarConverter("int", 1, _number(int, "an"), int, int),
    float: _ScalarConverter("float", 2, _number(float, "a"), (int, float), float),
    bool: _ScalarConverter("bool", 3, parse_bool, bool),
    type(None): _ScalarConverter("None", 0, _none, type(None)),
    None: _ScalarConverter("None", 0, _none, type(None)),
    Any: _ANY,
    object: _ANY,
}

#: Functions that make the converter of a type with arguments, by the type's origin.
_GENERIC_TYPES: dict[Any, Callable[[Any, tuple[Any, ...]], Converter]] = {
    list: _list,
    collections.abc.Sequence: _list,
    collections.abc.Iterable: _list,
    collections.abc.Collection: _list,
    tuple: _tuple,
    dict: _dict,
    collections.abc.Mapping: _dict,
    collections.abc.MutableMapping: _dict,
    typing.Union: _union,
    types.UnionType: _union,
    typing.Literal: _literal,
    typing.Annotated: lambda whole, arguments: converter_for(arguments[0]),
}
