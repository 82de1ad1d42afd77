"""Helper functions that older programs import from ``torchx.util.types``."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from torchx_specs.components import converters
from torchx_specs.text_values import split_list, split_pairs

_T = TypeVar("_T")


def to_list(arg: str) -> list[str]:
    """Splits ``a,b``; quotes protect a comma, and one comma at the end does not count.

    >>> to_list("a,b")
    ['a', 'b']
    """
    return split_list(arg)


def to_dict(arg: str) -> dict[str, str]:
    """Splits ``k=v,k2=v2``; either ``,`` or ``;`` separates pairs, the last before the next ``=``.

    >>> to_dict("FOO=a,b,BAR=c")
    {'FOO': 'a,b', 'BAR': 'c'}

    Raises:
        ValueError: no ``=``, or nothing before one
    """
    return dict(split_pairs(arg))


def decode(encoded_value: Any, annotation: Any) -> Any:
    """Reads text as a value of a type; what is no text is returned as it is.

    Empty text is None, except for ``str``.

    Raises:
        ValueError: the text is no such value, or the type is not supported
    """
    if not isinstance(encoded_value, str):
        return encoded_value
    try:
        return converters.optional(converters.converter_for(annotation)).from_text(encoded_value)
    except converters.UnsupportedTypeError as e:
        raise ValueError(f"unsupported argument annotation `{e}`") from None


def decode_from_string(encoded_value: str, annotation: Any) -> dict[Any, Any] | list[Any] | None:
    """Reads text as a list or dict; empty text is None.

    Raises:
        ValueError: the text is no such value, or the type is neither a list nor a dict
    """
    if typing.get_origin(annotation) not in (list, dict) and annotation not in (list, dict):
        raise ValueError(f"unsupported argument annotation `{annotation}`, expected dict or list")
    decoded: dict[Any, Any] | list[Any] | None = decode(encoded_value, annotation)
    return decoded


def is_bool(param_type: Any) -> bool:
    """Returns True for the type ``bool``."""
    return param_type is bool


def is_primitive(param_type: Any) -> bool:
    """Returns True for ``int``, ``str`` and ``float``."""
    return param_type in (int, str, float)


def decode_optional(param_type: Any) -> Any:
    """Returns ``T`` for ``Optional[T]``, ``T | None`` and ``None | T``, else the type itself."""
    if typing.get_origin(param_type) not in (typing.Union, types.UnionType):
        return param_type
    members = typing.get_args(param_type)
    others = [member for member in members if member is not type(None)]
    return others[0] if len(others) == 1 and len(members) == 2 else param_type


def get_argparse_param_type(parameter: inspect.Parameter) -> Callable[[str], object]:
    """Returns ``int``, ``str`` or ``float`` if that is the parameter's type, else ``str``."""
    annotation: Callable[[str], object] = parameter.annotation
    return annotation if is_primitive(annotation) else str


def none_throws(optional: _T | None, message: str = "Unexpected `None`") -> _T:
    """Returns what is not None.

    Raises:
        AssertionError: it is None
    """
    if optional is None:
        raise AssertionError(message)
    return optional
