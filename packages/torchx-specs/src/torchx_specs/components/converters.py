"""How each type that a component's parameter may have is read from text, and checked.

One table: :data:`_SIMPLE` has the types without arguments, :data:`_GENERIC` the ones with.
:func:`converter_for` looks an annotation up in both.
"""

from __future__ import annotations

import collections.abc
import enum
import os
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torchx_specs.errors import nearest
from torchx_specs.text_values import FALSE_VALUES, TRUE_VALUES, parse_bool, split_list, split_pairs

#: What messages say can be used.
SUPPORTED_TYPES = (
    "str, int, float, bool, Literal, Enum, pathlib.Path, list[...], tuple[...], dict[str, ...],"
    " Optional and Union of these, Annotated[..., '-x']"
)


class UnsupportedTypeError(TypeError):
    """There is no converter for this annotation; the text is the annotation."""


class Converter:
    """Reads values of one type.

    Both methods raise ValueError with a reason that can follow the name of the option.
    """

    #: How help and messages call the type.
    name: str = ""
    #: The values there are, if that is a short list.
    choices: tuple[str, ...] = ()
    #: Whether the option can stand without a value, and be negated.
    is_flag: bool = False
    #: Whether the type holds several values, so that its option can be repeated.
    is_repeatable: bool = False
    #: Whether it can be an item of a list.
    is_scalar: bool = True
    #: Whether an empty string is a value of the type.
    takes_empty: bool = False
    #: Members of a union are tried in this order.
    rank: ClassVar[int] = 5

    def from_text(self, text: str) -> Any:
        """Reads a value from one word of a command line or from a configuration file."""
        raise NotImplementedError

    def from_value(self, value: Any) -> Any:
        """Checks a value that has a type already (from JSON, or given in Python); text is read."""
        if isinstance(value, str):
            return self.from_text(value)
        raise self._wrong_type(value)

    def join(self, first: Any, more: Any) -> Any:
        """Joins the values of a repeated option."""
        raise NotImplementedError

    def _wrong_type(self, value: Any) -> ValueError:
        given = "null" if value is None else f"{value!r} ({type(value).__name__})"
        return ValueError(f"expected {self.name}, got {given}")


class StrConverter(Converter):
    name = "str"
    takes_empty = True
    rank = 9

    def from_text(self, text: str) -> str:
        return text


class AnyConverter(Converter):
    """For parameters that say nothing about their type: text stays text, the rest stays itself."""

    name = "str"
    takes_empty = True
    rank = 10

    def from_text(self, text: str) -> str:
        return text

    def from_value(self, value: Any) -> Any:
        return value


class IntConverter(Converter):
    name = "int"
    rank = 1

    def from_text(self, text: str) -> int:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"'{text}' is not an int") from None

    def from_value(self, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return super().from_value(value)


class FloatConverter(Converter):
    name = "float"
    rank = 2

    def from_text(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"'{text}' is not a float") from None

    def from_value(self, value: Any) -> Any:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        return super().from_value(value)


class BoolConverter(Converter):
    name = "bool"
    is_flag = True
    rank = 3

    def from_text(self, text: str) -> bool:
        return parse_bool(text)

    def from_value(self, value: Any) -> Any:
        return value if isinstance(value, bool) else super().from_value(value)


class NoneConverter(Converter):
    name = "None"
    rank = 0

    def from_text(self, text: str) -> None:
        if text not in ("", "None"):
            raise ValueError(f"'{text}' is not None")

    def from_value(self, value: Any) -> Any:
        return None if value is None else super().from_value(value)


class PathConverter(Converter):
    name = "Path"
    rank = 7

    def __init__(self, path_type: type) -> None:
        self._type = path_type

    def from_text(self, text: str) -> Any:
        if not text:
            raise ValueError("a path cannot be empty")
        return self._type(text)

    def from_value(self, value: Any) -> Any:
        return self._type(value) if isinstance(value, os.PathLike) else super().from_value(value)


class ChoiceConverter(Converter):
    """For Literal: one of some values, each of them written as ``str()`` shows it."""

    rank = 0

    def __init__(self, values: tuple[Any, ...]) -> None:
        self._values = values
        self._by_text: dict[str, Any] = {}
        # a string is meant before whatever else is written the same way
        for value in sorted(values, key=lambda v: not isinstance(v, str)):
            self._by_text.setdefault(str(_enum_name(value)), value)
        self.choices = tuple(str(_enum_name(value)) for value in values)
        self.name = "{" + ",".join(self.choices) + "}"
        self.takes_empty = "" in self._by_text

    def from_text(self, text: str) -> Any:
        if text in self._by_text:
            return self._by_text[text]
        for value in self._values:
            if isinstance(value, bool) and text.lower() in (TRUE_VALUES if value else FALSE_VALUES):
                return value
        raise not_a_choice(text, self.choices)

    def from_value(self, value: Any) -> Any:
        for known in self._values:
            if type(known) is type(value) and known == value:
                return known
        return super().from_value(value)


class EnumConverter(Converter):
    """For Enum: a member, by its name or by its value."""

    rank = 0

    def __init__(self, enum_type: type[enum.Enum]) -> None:
        self._type = enum_type
        self.choices = tuple(enum_type.__members__)
        self.name = "{" + ",".join(self.choices) + "}"
        self.takes_empty = any(member.value == "" for member in enum_type)

    def from_text(self, text: str) -> Any:
        member = self._type.__members__.get(text)
        if member is not None:
            return member
        for member in self._type:
            if str(member.value) == text:
                return member
        values = tuple(str(member.value) for member in self._type)
        raise not_a_choice(text, self.choices, values)

    def from_value(self, value: Any) -> Any:
        if isinstance(value, self._type):
            return value
        for member in self._type:
            if type(member.value) is type(value) and member.value == value:
                return member
        return super().from_value(value)


class ListConverter(Converter):
    """For lists, and for tuples of any length: ``a,b``."""

    is_scalar = False
    is_repeatable = True
    rank = 8

    def __init__(self, item: Converter, make: type = list, name: str = "list[{}]") -> None:
        self.item = item
        self._make = make
        self.name = name.format(item.name)

    def from_text(self, text: str) -> Any:
        return self._make(self.item.from_text(word) for word in split_list(text))

    def from_value(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return self._make(self.item.from_value(item) for item in value)
        return super().from_value(value)

    def join(self, first: Any, more: Any) -> Any:
        return self._make([*(first or ()), *(more or ())])


class TupleConverter(Converter):
    """For tuples of a given length: ``a,b``."""

    is_scalar = False
    rank = 5

    def __init__(self, items: tuple[Converter, ...]) -> None:
        self._items = items
        self.name = f"tuple[{', '.join(item.name for item in items)}]"

    def from_text(self, text: str) -> tuple[Any, ...]:
        words = split_list(text)
        self._check_length(len(words), text)
        return tuple(item.from_text(word) for item, word in zip(self._items, words, strict=True))

    def from_value(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            self._check_length(len(value), value)
            return tuple(
                item.from_value(element) for item, element in zip(self._items, value, strict=True)
            )
        return super().from_value(value)

    def _check_length(self, length: int, given: Any) -> None:
        if length != len(self._items):
            raise ValueError(f"'{given}' has {length} items, expected {len(self._items)}")


class DictConverter(Converter):
    """For dicts: ``k=v,k2=v2``."""

    is_scalar = False
    is_repeatable = True
    rank = 4

    def __init__(self, key: Converter, value: Converter) -> None:
        self._key = key
        self._value = value
        self.name = f"dict[{key.name}, {value.name}]"

    def from_text(self, text: str) -> dict[Any, Any]:
        pairs = {}
        for key, value in split_pairs(text):
            try:
                pairs[self._key.from_text(key)] = self._value.from_text(value)
            except ValueError as e:
                raise ValueError(f"{key}: {e}") from None
        return pairs

    def from_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return super().from_value(value)
        pairs = {}
        for key, item in value.items():
            try:
                pairs[self._key.from_value(key)] = self._value.from_value(item)
            except ValueError as e:
                raise ValueError(f"{key}: {e}") from None
        return pairs

    def join(self, first: Any, more: Any) -> Any:
        return {**(first or {}), **(more or {})}


class OptionalConverter(Converter):
    """For a type or None: an empty string is None, unless it is a value of the type."""

    def __init__(self, inner: Converter) -> None:
        self.inner = inner
        self.name = inner.name
        self.choices = inner.choices
        self.is_flag = inner.is_flag
        self.is_repeatable = inner.is_repeatable
        self.is_scalar = inner.is_scalar
        self.takes_empty = True

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

    def join(self, first: Any, more: Any) -> Any:
        return self.inner.join(first, more)


class UnionConverter(Converter):
    """For one of several types: the most specific that fits, ``str`` last."""

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
            # text that has the type str already is not to become a number
            if any(isinstance(member, StrConverter) for member in self._members):
                return value
            return self.from_text(value)
        for member in self._members:
            try:
                return member.from_value(value)
            except ValueError:
                continue
        raise self._wrong_type(value)


def not_a_choice(text: str, choices: tuple[str, ...], also: tuple[str, ...] = ()) -> ValueError:
    """Returns the error for a word that is none of ``choices``."""
    hint = nearest(text, dict.fromkeys((*choices, *also)))
    return ValueError(f"'{text}' is not one of {', '.join(choices)}" + (f";{hint}" if hint else ""))


def optional(converter: Converter) -> Converter:
    """Returns a converter that also takes None."""
    if isinstance(converter, (OptionalConverter, AnyConverter)):
        return converter
    return OptionalConverter(converter)


def converter_for(annotation: Any) -> Converter:
    """Returns how to read values of an annotation, which has to be resolved (no strings).

    Raises:
        UnsupportedTypeError: values of that type cannot be read
    """
    try:
        simple = _SIMPLE.get(annotation)
    except TypeError:  # not hashable: Literal of a list, Annotated with one
        simple = None
    if simple is not None:
        return simple
    origin = typing.get_origin(annotation)
    build = _GENERIC.get(origin)
    if build is not None:
        return build(annotation, typing.get_args(annotation))
    if isinstance(annotation, type) and origin is None:
        if annotation in _BARE:
            return converter_for(_BARE[annotation])
        if issubclass(annotation, enum.Enum) and len(annotation.__members__):
            return EnumConverter(annotation)
        if issubclass(annotation, os.PathLike):
            return _path_converter(annotation)
    if hasattr(annotation, "__supertype__"):  # NewType
        return converter_for(annotation.__supertype__)
    if type(annotation).__name__ == "TypeAliasType":  # `type X = ...` of Python 3.12
        return converter_for(annotation.__value__)
    raise UnsupportedTypeError(type_name(annotation))


def type_name(annotation: Any) -> str:
    """Returns an annotation as its author would write it."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__.rpartition("<locals>.")[2]
    return str(annotation).replace("typing.", "")


def _path_converter(annotation: type) -> Converter:
    pathlib = sys.modules.get("pathlib")  # whoever names its classes has imported it
    if pathlib is None or not issubclass(annotation, pathlib.PurePath):
        raise UnsupportedTypeError(type_name(annotation))
    return PathConverter(annotation)


def _enum_name(value: Any) -> Any:
    return value.name if isinstance(value, enum.Enum) else value


def _scalar(argument: Any, whole: Any) -> Converter:
    item = converter_for(argument)
    if not item.is_scalar:
        raise UnsupportedTypeError(type_name(whole))
    return item


def _list(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    return ListConverter(_scalar(arguments[0] if arguments else str, whole))


def _tuple(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    if not arguments:
        arguments = (str, ...)
    if len(arguments) == 2 and arguments[1] is ...:
        return ListConverter(_scalar(arguments[0], whole), tuple, "tuple[{}, ...]")
    if arguments == ((),):  # tuple[()] of Python 3.10
        raise UnsupportedTypeError(type_name(whole))
    return TupleConverter(tuple(_scalar(argument, whole) for argument in arguments))


def _dict(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    key, value = arguments or (str, str)
    values = converter_for(value)
    inner = values.inner if isinstance(values, OptionalConverter) else values
    if not (values.is_scalar or isinstance(inner, (ListConverter, TupleConverter))):
        raise UnsupportedTypeError(type_name(whole))
    return DictConverter(_scalar(key, whole), values)


def _union(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    members = tuple(converter_for(a) for a in arguments if a is not type(None))
    converter = members[0] if len(members) == 1 else UnionConverter(members)
    return converter if len(members) == len(arguments) else optional(converter)


def _literal(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    values = tuple(value for value in arguments if value is not None)
    if not values:
        return NoneConverter()
    choice = ChoiceConverter(values)
    return choice if len(values) == len(arguments) else optional(choice)


def _annotated(whole: Any, arguments: tuple[Any, ...]) -> Converter:
    return converter_for(arguments[0])


_SIMPLE: dict[Any, Converter] = {
    str: StrConverter(),
    int: IntConverter(),
    float: FloatConverter(),
    bool: BoolConverter(),
    type(None): NoneConverter(),
    None: NoneConverter(),
    Any: AnyConverter(),
    object: AnyConverter(),
}

_GENERIC: dict[Any, Callable[[Any, tuple[Any, ...]], Converter]] = {
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

_BARE: dict[Any, Any] = {list: list[str], tuple: tuple[str, ...], dict: dict[str, str]}
