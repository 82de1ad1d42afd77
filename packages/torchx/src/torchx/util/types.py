"""Helper functions that clients of older TorchX releases import from ``torchx.util.types``."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from torchx_specs.components import converters
from torchx_specs.redaction import masked_text
from torchx_specs.text_values import split_list, split_pairs

_T = TypeVar("_T")


def to_list(arg: str) -> list[str]:
    """Split ``a,b``; see :func:`torchx_specs.text_values.split_list`."""
    return split_list(arg)


def to_dict(arg: str) -> dict[str, str]:
    """Split ``k=v,k2=v2``; see :func:`torchx_specs.text_values.split_pairs`.

    Unlike for ``split_pairs``, a value that is empty or contains ``=`` must be quoted.

    Raises:
        ValueError: The text does not have this form.
    """
    pairs = split_pairs(arg)
    unquoted = re.sub(r"'[^']*'|\"[^\"]*\"", "x", arg)
    blank = bool(arg) and not pairs
    if blank or unquoted.count("=") != len(pairs) or re.search(r"=\s*([,;][^,;]*=|$)", unquoted):
        raise ValueError(
            f"{masked_text(arg)!r} is not of the form key=value,key2=value2 (quote a value that is"
            " empty or contains '=')"
        )
    return dict(pairs)


def decode(encoded_value: Any, annotation: Any) -> Any:
    """Convert text to a value of a type; a value that is not text is returned unchanged.

    Empty text becomes None, unless it is a value of the type, as for ``str``. The text ``None``
    becomes None, too, unless it is a value of the type.

    Raises:
        ValueError: The text is not a value of the type, or the type is not supported.
    """
    if not isinstance(encoded_value, str):
        return encoded_value
    try:
        return converters.optional(converters.converter_for(annotation)).read(encoded_value)
    except converters.UnsupportedTypeError as e:
        raise ValueError(f"unsupported argument annotation `{e}`") from None


def decode_from_string(encoded_value: str, annotation: Any) -> dict[Any, Any] | list[Any] | None:
    """Convert text to a list or dict; empty text becomes None.

    Raises:
        ValueError: The text is not a value of the type, or the type is neither a list nor a dict.
    """
    if typing.get_origin(annotation) not in (list, dict) and annotation not in (list, dict):
        raise ValueError(f"unsupported argument annotation `{annotation}`, expected dict or list")
    decoded: dict[Any, Any] | list[Any] | None = decode(encoded_value, annotation)
    return decoded


def is_bool(param_type: Any) -> bool:
    """Return True for the type ``bool``."""
    return param_type is bool


def is_primitive(param_type: Any) -> bool:
    """Return True for ``int``, ``str`` and ``float``."""
    return param_type in (int, str, float)


def decode_optional(param_type: Any) -> Any:
    """Return ``T`` for ``Optional[T]``, ``T | None`` and ``None | T``, else the type itself."""
    members = typing.get_args(param_type)
    if typing.get_origin(param_type) in (typing.Union, types.UnionType) and len(members) == 2:
        others = [member for member in members if member is not type(None)]
        return others[0] if len(others) == 1 else param_type
    return param_type


def get_argparse_param_type(parameter: inspect.Parameter) -> Callable[[str], object]:
    """Return ``int``, ``str`` or ``float`` if that is the parameter's type, else ``str``.

    The type of ``Annotated[int, "-x"]`` is ``int``.
    """
    annotation: Any = parameter.annotation
    if typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    return annotation if is_primitive(annotation) else str


def none_throws(optional: _T | None, message: str = "Unexpected `None`") -> _T:
    """Return ``optional`` unless it is None.

    Raises:
        AssertionError: ``optional`` is None.
    """
    if optional is None:
        raise AssertionError(message)
    return optional


def get_type_name(tp: Any) -> str:
    """Return the name of a type, such as ``int`` or ``list[str]``."""
    if typing.get_origin(tp) is not None or typing.get_args(tp):
        return str(tp).replace("typing.", "")
    return str(getattr(tp, "__name__", tp))
