"""The signature of a component, from an imported function or class, or from source text.

:func:`read_signature` reads a function or class; :class:`.ComponentSource` reads a file without
importing it. Help, parser, linter, completion and sweeps use only the record of this module.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_specs.components.converters import (
    SUPPORTED_TYPES,
    Converter,
    UnsupportedTypeError,
    converter_for,
    optional,
    type_name,
)
from torchx_specs.errors import ComponentTypeError

if TYPE_CHECKING:
    from torchx_specs.components.docstrings import Docstring

REQUIRED: Any = inspect.Parameter.empty

IS_ASYNC = "Function {} is async; a component must be a plain def"
HAS_NO_BUILD = "Class {} has no build method that returns an AppDef"


class SourceExpression(str):
    """The source of a default that is not a literal, in a signature that was read from source."""


class ComponentParameter(NamedTuple):
    """One parameter of a component.

    Attributes:
        name: The name.
        converter: Reads values of the parameter; None if the type is not supported.
        type_name: The type, as help shows it.
        default: The default, or ``REQUIRED``; from source, maybe a :class:`SourceExpression`.
        aliases: Further option strings, from ``Annotated[T, "-x"]``.
        keyword_only: Whether the parameter is passed by name.
        annotation: The annotation as text; empty if it is missing.
        problem: Why the type is not supported, in the linter's words; empty if it is supported.
    """

    name: str
    converter: Converter | None
    type_name: str
    default: Any
    aliases: tuple[str, ...]
    keyword_only: bool
    annotation: str
    problem: str

    @property
    def is_required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is REQUIRED

    @property
    def is_flag(self) -> bool:
        """Whether the option can be given without a value, and negated (``--no-NAME``)."""
        return self.converter is not None and self.converter.is_flag

    @property
    def options(self) -> tuple[str, ...]:
        """The option strings, short ones first, without the negation of a flag."""
        short = (f"-{self.name}",) if len(self.name) == 1 else ()
        return tuple(dict.fromkeys((*short, *sorted(self.aliases, key=len), f"--{self.name}")))

    @property
    def negations(self) -> tuple[str, ...]:
        """The option string that negates a flag; nothing for other parameters."""
        return (f"--no-{self.name.replace('_', '-')}",) if self.is_flag else ()

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
    """The signature and the documentation of a component.

    Attributes:
        name: The name of the component's function or class.
        parameters: The parameters except ``*args`` and ``**kwargs``, in the order of the signature.
        varargs: ``*args``, or None.
        varkw: The name of ``**kwargs``; empty if there is none.
        returns: The return annotation (for a class, that of ``build()``) as text; empty if it is
            missing.
        texts: The docstring; for a class, that of its constructor, too.
        problem: Why the function or class cannot be called with arguments from a command line;
            empty if it can. :meth:`violations` yields what is wrong with single parameters.
        component: The function or class; None if the signature was read from source.
    """

    name: str
    parameters: tuple[ComponentParameter, ...]
    varargs: ComponentParameter | None
    varkw: str
    returns: str
    texts: tuple[str | None, ...]
    problem: str
    component: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, ``*args`` last."""
        return tuple(parameter.name for parameter in self._all)

    @property
    def returns_app(self) -> bool:
        """Whether the return annotation is ``AppDef``."""
        return not return_violation(self.name, self.returns)

    @property
    def doc(self) -> Docstring:
        """The parsed docstring; a class may document parameters in its ``__init__``."""
        from torchx_specs.components.docstrings import parse  # compiles regular expressions

        doc, *more = map(parse, self.texts)
        for constructor in more:
            doc.params.update({**constructor.params, **doc.params})
        return doc

    @property
    def _all(self) -> tuple[ComponentParameter, ...]:
        return self.parameters if self.varargs is None else (*self.parameters, self.varargs)

    def violations(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each parameter that breaks the rules for components, and a message.

        Each parameter needs an annotation of a supported type; ``**kwargs`` is not allowed.
        """
        where = f"in function '{self.name}'"
        for name, converter, shown, *_, annotation, problem in self._all:
            if not annotation:
                yield name, f"Missing type annotation for argument '{name}' {where}"
            elif converter is None:
                text = f"{problem} for argument '{name}: {annotation}' {where}"
                if f"{shown}'" not in text:
                    text += f": '{shown}' is not supported"
                yield name, f"{text}; supported types: {SUPPORTED_TYPES}"
        if self.varkw:
            taken = f"Function {self.name} takes **{self.varkw}"
            yield self.varkw, f"{taken}: a component has to name its parameters"


def return_violation(name: str, returns: str, required: str = "AppDef") -> str:
    """Return a message if the return annotation of the function ``name`` is not ``required``.

    The module before the type's name does not matter. The message is empty if the rule is kept.
    """
    if returns.rpartition(".")[2] == required:
        return ""
    if not returns:
        return (
            f"Function: {name} missing return annotation or has unknown annotations."
            f" Supported return annotation: {required}"
        )
    return (
        f"Function: {name} has incorrect return annotation, supported annotation:"
        f" {required}, not '{returns}'"
    )


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
            annotation that cannot be resolved; or the function is async, or the class has no
            ``build()``.
    """
    signature = signature_of(fn)
    if signature.varkw:
        raise ComponentTypeError(
            f"{signature.name} cannot be a component: **{signature.varkw} accepts any name,"
            " which a command line cannot check; name the parameters"
        )
    if signature.problem:
        raise ComponentTypeError(signature.problem)
    return signature


def signature_of(fn: Callable[..., Any]) -> ComponentSignature:
    """Return the signature of a function or class that may break the rules for components."""
    name, problem = component_name(fn), ""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as e:
        signature, problem = inspect.Signature(), f"{name} cannot be a component: {e}"
    target: Any = inspect.unwrap(fn)
    returns = signature.return_annotation
    texts: tuple[str | None, ...] = (fn.__doc__,)
    if inspect.isclass(target):
        build = getattr(target, "build", None)
        returns = getattr(build, "__annotations__", {}).get("return", REQUIRED)
        texts = (fn.__doc__, target.__init__.__doc__)
        problem = problem if callable(build) else HAS_NO_BUILD.format(name)
    elif inspect.iscoroutinefunction(target):
        problem = IS_ASYNC.format(name)
    if any(base.__name__ == "AppDef" for base in getattr(returns, "__mro__", ())):
        returns = "AppDef"  # or a subclass
    names = _global_names(fn)
    parameters = []
    for parameter in signature.parameters.values():
        hint, text = parameter.annotation, _annotation_text(parameter.annotation)
        try:
            hint = _resolved_annotation(parameter, names)
        except Exception as e:
            problem = problem or (
                f"{name}: the annotation '{text}' of parameter '{parameter.name}' cannot be"
                f" resolved: {e}"
            )
        parameters.append((parameter.replace(annotation=hint), text))
    return make_signature(name, parameters, _annotation_text(returns), texts, problem, fn)


def make_signature(
    name: str,
    parameters: Iterable[tuple[inspect.Parameter, str]],
    returns: str,
    texts: tuple[str | None, ...],
    problem: str,
    component: Callable[..., Any] | None = None,
) -> ComponentSignature:
    """Return a signature with the converters of its parameters.

    Args:
        name: The name of the function or class.
        parameters: The parameters with resolved annotations, each with its annotation as text.
        returns: The return annotation as text.
        texts: The docstrings.
        problem: Why it cannot be a component.
        component: The function or class, unless it is not imported.
    """
    named: list[ComponentParameter] = []
    varargs, varkw = None, ""
    for parameter, text in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            varkw = parameter.name
        elif parameter.kind is parameter.VAR_POSITIONAL:
            varargs = _read_parameter(parameter, text)
        else:
            named.append(_read_parameter(parameter, text))
    return ComponentSignature(
        name, tuple(named), varargs, varkw, returns, texts, problem, component
    )


def _read_parameter(parameter: inspect.Parameter, text: str) -> ComponentParameter:
    hint, problem = parameter.annotation, ""
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
        converter, shown, problem = None, str(e), e.problem
    return ComponentParameter(
        name=parameter.name,
        converter=converter,
        type_name=shown,
        default=parameter.default,
        aliases=_aliases(hint),
        keyword_only=parameter.kind is parameter.KEYWORD_ONLY,
        annotation=text,
        problem=problem,
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


def _annotation_text(annotation: Any) -> str:
    if annotation is REQUIRED:
        return ""
    # With `from __future__ import annotations`, an annotation that is written as a string has
    # quotes inside the string.
    text = annotation if isinstance(annotation, str) else type_name(annotation)
    return text.strip("'\" ")


def _resolved_annotation(parameter: inspect.Parameter, names: dict[str, Any]) -> Any:
    # Resolve only this annotation: the function's return type may be imported only under
    # TYPE_CHECKING.
    if parameter.annotation is REQUIRED:
        return REQUIRED
    # get_type_hints accepts any object with __annotations__, although its type stub does not
    holder: Any = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    return typing.get_type_hints(holder, names, None, include_extras=True)[parameter.name]


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
