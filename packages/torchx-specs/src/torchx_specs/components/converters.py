"""The types that a component's parameter may have, with a converter for each.

:data:`_TYPES` and :data:`_GENERIC_TYPES` are the only tables of types. The parser, the help and the
linter look up annotations with :func:`converter_for`. The linter does not import the component, but
resolves annotations in source code to the same types, and unknown names to subclasses of
:class:`UnresolvedType`.
"""

from __future__ import annotations

import collections.abc
import enum
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from torchx_specs.errors import nearest
from torchx_specs.text_values import FALSE_VALUES, TRUE_VALUES, parse_bool, split_list, split_pairs

#: The types that error messages list.
SUPPORTED_TYPES = (
    "str, int, float, bool, Literal, Enum, pathlib.Path, list[...], tuple[...], dict[str, ...],"
    " Optional and Union of these, Annotated[..., '-x']"
)


class UnsupportedTypeError(TypeError):
    """An annotation has no converter; the message is the annotation."""


class UnresolvedType:
    """Base class of placeholders for types whose definition the linter cannot see."""


class Converter:
    """Reads values of one type.

    :meth:`from_text` and :meth:`from_value` raise ValueError. The message of this error can follow
    the name of an option.

    Attributes:
        name: Name of the type in help and messages.
        choices: The valid values of an Enum or a Literal; empty for other types.
        is_flag: Whether the option can be given without a value, and negated (``--no-NAME``).
        is_repeatable: Whether the type holds several values, so that the option can be repeated.
        is_scalar: Whether a value can be an item of a list.
        takes_empty: Whether the empty string is a value of the type.
        rank: Position among the members of a union; lower ranks are tried first.
    """

    name: str = ""
    choices: tuple[str, ...] = ()
    is_flag: bool = False
    is_repeatable: bool = False
    is_scalar: bool = True
    takes_empty: bool = False
    rank: int = 5

    def from_text(self, text: str) -> Any:
        """Parse a value given as text on a command line or in a configuration file."""
        raise NotImplementedError

    def from_value(self, value: Any) -> Any:
        """Check a typed value from JSON or Python; parse a string like :meth:`from_text`."""
        if isinstance(value, str):
            return self.from_text(value)
        given = "null" if value is None else f"{value!r} ({type(value).__name__})"
        raise ValueError(f"expected {self.name}, got {given}")

    def join(self, first: Any, more: Any) -> Any:
        """Combine two values of a repeated option; ``first`` was given first."""
        raise NotImplementedError


class _ScalarConverter(Converter):
    """Reads a type that needs no arguments, such as ``str`` or ``int``.

    Args:
        name: Name of the type.
        rank: Position among the members of a union.
        parse: Function that parses text, and raises ValueError if the text is invalid.
        accepts: Types, besides ``str``, whose values are valid.
        convert: Function that converts such a value to the type.
    """

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
        self._parse = parse
        self._accepts = accepts
        self._convert = convert

    def from_text(self, text: str) -> Any:
        return self._parse(text)

    def from_value(self, value: Any) -> Any:
        if isinstance(value, self._accepts) and (self.is_flag or not isinstance(value, bool)):
            return self._convert(value)
        return super().from_value(value)


class _AnyConverter(Converter):
    """Accepts any value for a parameter of unknown type; text stays text."""

    name = "str"
    takes_empty = True
    rank = 10

    def from_text(self, text: str) -> str:
        return text

    def from_value(self, value: Any) -> Any:
        return value


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
    """Reads a Literal or an Enum: one of several choices, given by name or by value.

    Args:
        names: Pairs of a name and the choice with this name.
        values: Pairs of a value and the choice with this value.
    """

    rank = 0

    def __init__(self, names: list[tuple[str, Any]], values: list[tuple[Any, Any]]) -> None:
        self._values = values
        self._by_text: dict[str, Any] = {}
        # If choices have the same text, such as 1 and "1", the text means the string.
        for text, choice in sorted(names, key=lambda pair: not isinstance(pair[1], str)):
            self._by_text.setdefault(text, choice)
        for value, choice in values:
            self._by_text.setdefault(_choice_text(value), choice)
        self.choices = tuple(text for text, _ in names)
        self.name = "{" + ",".join(self.choices) + "}"
        self.takes_empty = "" in self._by_text

    def from_text(self, text: str) -> Any:
        if text in self._by_text:
            return self._by_text[text]
        for value, choice in self._values:
            if isinstance(value, bool) and text.lower() in (TRUE_VALUES if value else FALSE_VALUES):
                return choice
        hint = nearest(text, self._by_text)
        raise ValueError(
            f"'{text}' is not one of {', '.join(self.choices)}" + (f";{hint}" if hint else "")
        )

    def from_value(self, value: Any) -> Any:
        for known, choice in self._values:
            if type(known) is type(value) and known == value:
                return choice
        return super().from_value(value)


class _ListConverter(Converter):
    """Reads lists, and tuples of any length: ``a,b``."""

    is_scalar = False
    is_repeatable = True
    rank = 8

    def __init__(self, item: Converter, make: type = list, name: str = "list[{}]") -> None:
        self._item = item
        self._make = make
        self.name = name.format(item.name)

    def from_text(self, text: str) -> Any:
        return self._make(self._item.from_text(item) for item in split_list(text))

    def from_value(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return self._make(self._item.from_value(item) for item in value)
        return super().from_value(value)

    def join(self, first: Any, more: Any) -> Any:
        return self._make([*(first or ()), *(more or ())])


class _TupleConverter(Converter):
    """Reads tuples of a fixed length: ``a,b``."""

    is_scalar = False

    def __init__(self, items: tuple[Converter, ...]) -> None:
        self._items = items
        self.name = f"tuple[{', '.join(item.name for item in items)}]"

    def from_text(self, text: str) -> tuple[Any, ...]:
        texts = split_list(text)
        self._check_length(len(texts), text)
        return tuple(item.from_text(part) for item, part in zip(self._items, texts, strict=True))

    def from_value(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            self._check_length(len(value), value)
            return tuple(
                item.from_value(part) for item, part in zip(self._items, value, strict=True)
            )
        return super().from_value(value)

    def _check_length(self, length: int, given: Any) -> None:
        if length != len(self._items):
            raise ValueError(f"'{given}' has {length} items, expected {len(self._items)}")


class _DictConverter(Converter):
    """Reads dicts: ``k=v,k2=v2``."""

    is_scalar = False
    is_repeatable = True
    rank = 4

    def __init__(self, key: Converter, value: Converter) -> None:
        self._key = key
        self._value = value
        self.name = f"dict[{key.name}, {value.name}]"

    def from_text(self, text: str) -> dict[Any, Any]:
        return self._convert(split_pairs(text), self._key.from_text, self._value.from_text)

    def from_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return super().from_value(value)
        return self._convert(value.items(), self._key.from_value, self._value.from_value)

    @staticmethod
    def _convert(
        pairs: collections.abc.Iterable[tuple[Any, Any]],
        read_key: Callable[[Any], Any],
        read_value: Callable[[Any], Any],
    ) -> dict[Any, Any]:
        converted = {}
        for key, value in pairs:
            try:
                converted[read_key(key)] = read_value(value)
            except ValueError as e:
                raise ValueError(f"{key}: {e}") from None
        return converted

    def join(self, first: Any, more: Any) -> Any:
        return {**(first or {}), **(more or {})}


class _OptionalConverter(Converter):
    """Reads a type or None; an empty string is None unless the type accepts empty strings."""

    def __init__(self, inner: Converter) -> None:
        self.inner = inner
        self.name = inner.name
        self.choices = inner.choices
        self.is_flag = inner.is_flag
        self.is_repeatable = inner.is_repeatable
        self.is_scalar = inner.is_scalar
        self.takes_empty = True
        self.join = inner.join  # type: ignore[method-assign]

    def from_text(self, text: str) -> Any:
        return self._read(text, self.inner.from_text)

    def from_value(self, value: Any) -> Any:
        return None if value is None else self._read(value, self.inner.from_value)

    def _read(self, value: Any, read: Callable[[Any], Any]) -> Any:
        if value == "" and not self.inner.takes_empty:
            return None
        try:
            return read(value)
        except ValueError:
            if value == "None":
                return None
            raise


class _UnionConverter(Converter):
    """Reads one of several types: the most specific that fits, ``str`` last."""

    def __init__(self, members: tuple[Converter, ...]) -> None:
        self._members = sorted(members, key=lambda member: member.rank)
        self.name = " | ".join(member.name for member in members)
        self.is_scalar = all(member.is_scalar for member in members)
        self.takes_empty = any(member.takes_empty for member in members)

    def from_text(self, text: str) -> Any:
        for member in self._members:
            try:
                return member.from_text(text)
            except ValueError:
                continue
        raise ValueError(f"'{text}' is not {self.name}")

    def from_value(self, value: Any) -> Any:
        if isinstance(value, str):
            # a JSON string such as "1" must not become a number if the union has str
            if self._members[-1].name == "str":
                return value
            return self.from_text(value)
        for member in self._members:
            try:
                return member.from_value(value)
            except ValueError:
                continue
        return super().from_value(value)


def optional(converter: Converter) -> Converter:
    """Return a converter that also accepts None."""
    if isinstance(converter, (_OptionalConverter, _AnyConverter)):
        return converter
    return _OptionalConverter(converter)


def converter_for(annotation: Any) -> Converter:
    """Return the converter for a resolved annotation (not a string).

    Raises:
        UnsupportedTypeError: The annotation has no converter.
    """
    try:
        simple = _TYPES.get(annotation)
    except TypeError:  # an annotation that is not hashable, such as a Literal of a list
        simple = None
    if simple is not None:
        return simple
    origin = typing.get_origin(annotation)
    build = _GENERIC_TYPES.get(origin)
    if build is not None:
        return build(annotation, typing.get_args(annotation))
    if isinstance(annotation, type) and origin is None:
        if annotation in _GENERIC_TYPES:  # a generic type without arguments, such as `list`
            return _GENERIC_TYPES[annotation](annotation, ())
        if issubclass(annotation, UnresolvedType):
            return _AnyConverter()
        if issubclass(annotation, enum.Enum) and len(annotation.__members__):
            members = [(member.value, member) for member in annotation]
            values = [*members, *((member, member) for member in annotation)]
            return _ChoiceConverter(list(annotation.__members__.items()), values)
        pathlib = sys.modules.get("pathlib")  # a class of pathlib implies that pathlib is imported
        if pathlib is not None and issubclass(annotation, pathlib.PurePath):
            return _path(annotation)
    if hasattr(annotation, "__supertype__"):  # NewType
        return converter_for(annotation.__supertype__)
    if type(annotation).__name__ == "TypeAliasType":  # `type X = ...` of Python 3.12
        return converter_for(annotation.__value__)
    raise UnsupportedTypeError(type_name(annotation))


def is_supported_generic(generic: Any) -> bool:
    """Return True for a supported generic type, such as ``list``, ``Dict`` or ``Optional``."""
    origin = typing.get_origin(generic) or generic
    return origin is typing.Optional or origin in _GENERIC_TYPES


def type_name(annotation: Any) -> str:
    """Return an annotation as it is written in source code."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__.rpartition("<locals>.")[2]
    return str(annotation).replace("typing.", "")


def _choice_text(value: Any) -> str:
    return str(value.name if isinstance(value, enum.Enum) else value)


def _scalar(argument: Any, whole: Any) -> Converter:
    item = converter_for(argument)
    if not item.is_scalar:
        raise UnsupportedTypeError(type_name(whole))
    return item


def _list(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    if len(arguments) > 1:
        raise UnsupportedTypeError(type_name(whole))
    return _ListConverter(_scalar(arguments[0] if arguments else str, whole))


def _tuple(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    if whole in (tuple, typing.Tuple):  # noqa: UP006 - typing.Tuple is another object
        arguments = (str, ...)
    if len(arguments) == 2 and arguments[1] is ...:
        return _ListConverter(_scalar(arguments[0], whole), tuple, "tuple[{}, ...]")
    if arguments in ((), ((),)):  # tuple[()], in two forms that depend on the Python version
        raise UnsupportedTypeError(type_name(whole))
    return _TupleConverter(tuple(_scalar(argument, whole) for argument in arguments))


def _dict(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    if len(arguments) not in (0, 2):
        raise UnsupportedTypeError(type_name(whole))
    key, value = arguments or (str, str)
    values = converter_for(value)
    inner = values.inner if isinstance(values, _OptionalConverter) else values
    if not (values.is_scalar or isinstance(inner, (_ListConverter, _TupleConverter))):
        raise UnsupportedTypeError(type_name(whole))
    return _DictConverter(_scalar(key, whole), values)


def _union(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    members = tuple(converter_for(a) for a in arguments if a is not type(None))
    if not members:
        raise UnsupportedTypeError(type_name(whole))
    converter = members[0] if len(members) == 1 else _UnionConverter(members)
    return converter if len(members) == len(arguments) else optional(converter)


def _literal(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    values = tuple(value for value in arguments if value is not None)
    if not values:
        return _TYPES[None]
    names = [(_choice_text(value), value) for value in values]
    choice = _ChoiceConverter(names, [(value, value) for value in values])
    return choice if len(values) == len(arguments) else optional(choice)


def _annotated(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    return converter_for(arguments[0])


#: Types without arguments. converter_for also supports enums, path classes, NewTypes and aliases.
_TYPES: dict[Any, Converter] = {
    str: _ScalarConverter("str", 9, str),
    int: _ScalarConverter("int", 1, _number(int, "an"), int, int),
    float: _ScalarConverter("float", 2, _number(float, "a"), (int, float), float),
    bool: _ScalarConverter("bool", 3, parse_bool, bool),
    type(None): _ScalarConverter("None", 0, _none, type(None)),
    None: _ScalarConverter("None", 0, _none, type(None)),
    Any: _AnyConverter(),
    object: _AnyConverter(),
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
    typing.Annotated: _annotated,
}
