"""The parameters of a component, each with the converter for its type."""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from torchx_specs.components.converters import (
    SUPPORTED_TYPES,
    Converter,
    UnsupportedTypeError,
    converter_for,
    optional,
    type_name,
)
from torchx_specs.errors import ComponentTypeError

REQUIRED: Any = inspect.Parameter.empty


class ComponentParameter(NamedTuple):
    """One parameter of a component."""

    name: str
    converter: Converter | None
    """Reads values of the parameter; None if the type is not supported."""
    type_name: str
    """The type, as help shows it."""
    default: Any
    """The default, or ``REQUIRED``."""
    aliases: tuple[str, ...]
    """Further option strings, from ``Annotated[T, "-x"]``."""
    keyword_only: bool

    @property
    def is_required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is REQUIRED

    @property
    def is_flag(self) -> bool:
        """Whether the option can be given without a value, and negated (``--no-NAME``)."""
        return self.converter is not None and self.converter.is_flag

    @property
    def unsupported(self) -> str:
        """The error message for a parameter whose type is not supported."""
        return f"type '{self.type_name}' is not supported; supported types: {SUPPORTED_TYPES}"

    def read(self, value: Any, typed: bool = False) -> Any:
        """Return a value of the parameter's type, as :meth:`.Converter.read` does.

        If the parameter's type is not supported, a typed value is not checked, and text is refused.
        """
        if self.converter is not None:
            return self.converter.read(value, typed)
        if typed and not isinstance(value, str):
            return value
        raise ValueError(self.unsupported)


class ComponentSignature(NamedTuple):
    """The parameters of a component."""

    component: Callable[..., Any]
    parameters: tuple[ComponentParameter, ...]
    """The parameters except ``*args``, in the order of the signature."""
    varargs: ComponentParameter | None
    """``*args``, or None."""

    @property
    def name(self) -> str:
        """The name of the component's function or class."""
        return component_name(self.component)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, ``*args`` last."""
        varargs = () if self.varargs is None else (self.varargs,)
        return tuple(parameter.name for parameter in (*self.parameters, *varargs))


def component_name(fn: Callable[..., Any]) -> str:
    """Return the name of a component for messages."""
    name = getattr(fn, "__name__", None) or getattr(getattr(fn, "func", None), "__name__", None)
    return name or type(fn).__name__


def read_signature(fn: Callable[..., Any]) -> ComponentSignature:
    """Return the signature of a component: a function, or a class with a method ``build()``.

    Annotations may be strings. A parameter without an annotation gets the type of its default, or
    Any if the default is missing, None or of an unsupported type.

    Raises:
        ComponentTypeError: The signature cannot be read, contains ``**kwargs``, or has an
            annotation that cannot be resolved.
    """
    name = component_name(fn)
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError) as e:
        raise ComponentTypeError(f"{name} cannot be a component: {e}") from None
    names = _global_names(fn)
    named: list[ComponentParameter] = []
    varargs = None
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            raise ComponentTypeError(
                f"{name} cannot be a component: **{parameter.name} accepts any name,"
                " which a command line cannot check; name the parameters"
            )
        read = _read_parameter(parameter, _resolved_annotation(parameter, names, name))
        if parameter.kind is parameter.VAR_POSITIONAL:
            varargs = read
        else:
            named.append(read)
    return ComponentSignature(fn, tuple(named), varargs)


def _read_parameter(parameter: inspect.Parameter, hint: Any) -> ComponentParameter:
    try:
        converter: Converter | None
        if hint is REQUIRED:
            converter = _converter_of_default(parameter.default)
        else:
            converter = converter_for(hint)
            if parameter.default is None:  # `x: int = None` means Optional[int]
                converter = optional(converter)
        shown = converter.name
    except UnsupportedTypeError as e:
        converter, shown = None, str(e)
    return ComponentParameter(
        name=parameter.name,
        converter=converter,
        type_name=shown,
        default=parameter.default,
        aliases=_aliases(hint),
        keyword_only=parameter.kind is parameter.KEYWORD_ONLY,
    )


def _converter_of_default(default: Any) -> Converter:
    if default is not REQUIRED and default is not None:
        with contextlib.suppress(UnsupportedTypeError):
            return converter_for(type(default))
    return converter_for(Any)


def _aliases(hint: Any) -> tuple[str, ...]:
    if typing.get_origin(hint) is not typing.Annotated:
        return ()
    return tuple(
        item
        for item in typing.get_args(hint)[1:]
        if isinstance(item, str) and item.startswith("-") and item.strip("-")
    )


def _resolved_annotation(parameter: inspect.Parameter, names: dict[str, Any], owner: str) -> Any:
    # Resolve only this annotation: the function's return type may be imported only under
    # TYPE_CHECKING.
    annotation = parameter.annotation
    if annotation is REQUIRED:
        return REQUIRED
    # get_type_hints accepts any object with __annotations__, although its type stub does not
    holder: Any = types.SimpleNamespace(__annotations__={parameter.name: annotation})
    try:
        return typing.get_type_hints(holder, names, None, include_extras=True)[parameter.name]
    except Exception as e:
        # With `from __future__ import annotations`, an annotation that is written as a string has
        # quotes inside the string.
        shown = annotation if isinstance(annotation, str) else type_name(annotation)
        shown = shown.strip("'\"")
        raise ComponentTypeError(
            f"{owner}: the annotation '{shown}' of parameter '{parameter.name}' cannot be"
            f" resolved: {e}"
        ) from None


def _global_names(fn: Callable[..., Any]) -> dict[str, Any]:
    target: Any = None
    inner: Any = fn
    while inner is not target:
        target = inner
        inner = inspect.unwrap(target)
        inner = getattr(inner, "func", inner)  # the function of a functools.partial
    if inspect.isclass(target):
        module = sys.modules.get(target.__module__)
        target, owner = target.__init__, vars(module) if module else {}
        return getattr(inspect.unwrap(target), "__globals__", owner)
    if not hasattr(target, "__globals__"):  # a bound method, or an object with __call__
        target = getattr(target, "__func__", None) or type(target).__call__
    return getattr(target, "__globals__", {})
