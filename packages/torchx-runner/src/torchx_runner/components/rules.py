"""What a component has to be, and how one is made of a function or class."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torchx_specs.components import read_signature
from torchx_specs.components.converters import SUPPORTED_TYPES
from torchx_specs.errors import TorchXError
from torchx_specs.model.app import AppDef

if TYPE_CHECKING:
    from torchx_specs.file_linter import ComponentFunctionValidator

    Validators = Sequence[ComponentFunctionValidator] | None


class Component:
    """A component.

    Args:
        name: what it was asked for by
        description: what it does; read from its docstring when it is first asked for, if None
        fn_name: name of the function (or class)
        fn: returns the AppDef
        validation_errors: which rules for components it breaks
    """

    def __init__(
        self,
        name: str,
        description: str | None,
        fn_name: str,
        fn: Callable[..., AppDef],
        validation_errors: list[str],
    ) -> None:
        self.name = name
        self._description = description
        self.fn_name = fn_name
        self.fn = fn
        self.validation_errors = validation_errors

    @property
    def description(self) -> str:
        """What it does."""
        if self._description is None:
            from torchx_specs.file_linter import get_fn_docstring

            self._description = get_fn_docstring(self.fn)[0] if callable(self.fn) else ""
        return self._description

    def __repr__(self) -> str:
        return f"Component({self.name!r}, fn={self.fn!r}, errors={self.validation_errors!r})"


def is_candidate(value: object) -> bool:
    """Returns True for functions and classes, decorated or not."""
    return isinstance(value, (FunctionType, type)) or hasattr(value, "__wrapped__")


def make_component(
    name: str, module: ModuleType, attribute: str, validators: Validators
) -> Component:
    """Returns a component made of what a module has under a name, valid or not.

    Args:
        name: name of the component
        module: where it is
        attribute: its name there
        validators: rules to check instead of the usual ones
    """
    value: Any = getattr(module, attribute)
    errors = rule_violations(value, module, attribute, validators)
    if isinstance(value, type) and not errors:
        value = _function_of_class(value)
    return Component(name, None, attribute, value, errors)


def _function_of_class(cls: Any) -> Callable[..., AppDef]:
    """Returns the function that a class component amounts to, with the signature of its
    constructor.
    """

    def component(*args: Any, **kwargs: Any) -> AppDef:
        app: AppDef = cls(*args, **kwargs).build()
        return app

    made: Any = component
    made.__name__, made.__qualname__ = cls.__name__, cls.__qualname__
    made.__module__, made.__doc__ = cls.__module__, cls.__doc__ or cls.__init__.__doc__
    made.__wrapped__ = cls
    made.__signature__ = inspect.signature(cls)
    return component


def rule_violations(
    value: Any, module: ModuleType, attribute: str, validators: Validators
) -> list[str]:
    """Returns which rules for components a value breaks.

    By the usual rules the source is read only if the function itself leaves a doubt.
    """
    if not isinstance(value, type) and not callable(value):
        return [f"{attribute} is a {type(value).__name__}, not a function"]
    doubts = _quick_violations(value) if validators is None else []
    if validators is None and not doubts:
        return []
    file = getattr(module, "__file__", None)
    if file is None or not os.path.isfile(file):
        return doubts
    from torchx_specs.file_linter import validate

    messages = validate(file, attribute, validators)
    if len(messages) == 1 and messages[0].line == 0 and doubts:
        return doubts  # the file has no such definition: it is made, or imported
    return [f"{_relative_path(file)}:{m.line}: {m.description}" for m in messages]


def _relative_path(file: str) -> str:
    below = os.getcwd() + os.sep
    return file[len(below) :] if file.startswith(below) else file


def _quick_violations(value: Any) -> list[str]:
    """Returns why a function may be no component, without reading its source; nothing if it
    certainly is one.
    """
    name = getattr(value, "__name__", str(value))
    if isinstance(value, type):
        constructor: Any = value.__init__  # type: ignore[misc]
        returning, taking = getattr(value, "build", None), constructor
        if not callable(returning):
            return [f"class {name} has no method build() that returns an AppDef"]
    else:
        returning = taking = value
    doubts = []
    if inspect.iscoroutinefunction(value):
        doubts.append(f"{name} is async; a component must be a plain def")
    if not _is_appdef(getattr(returning, "__annotations__", {}).get("return")):
        doubts.append(f"{name} needs the return annotation AppDef")
    try:
        signature = read_signature(value)
    except TorchXError as e:
        return [*doubts, str(e)]
    annotations = getattr(taking, "__annotations__", {})
    for parameter in (*signature.parameters, *filter(None, [signature.varargs])):
        if parameter.name not in annotations:
            doubts.append(f"{name}: parameter '{parameter.name}' has no type annotation")
        elif parameter.converter is None:
            doubts.append(
                f"{name}: parameter '{parameter.name}' has the unsupported type"
                f" {parameter.type_name}; supported types: {SUPPORTED_TYPES}"
            )
    return doubts


def _is_appdef(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.strip("'\" ").rpartition(".")[2] == AppDef.__name__
    return isinstance(annotation, type) and issubclass(annotation, AppDef)
