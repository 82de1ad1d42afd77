"""Checks the rules for components, and makes components from functions and classes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from torchx_specs.components.signature import return_violation, signature_of

if TYPE_CHECKING:
    from torchx_specs.file_linter import ComponentFunctionValidator
    from torchx_specs.model.app import AppDef

#: Validators in place of the rules; None means the rules.
Validators = Sequence["ComponentFunctionValidator"] | None


class Component:
    """A component: a function, or a class with ``build()``, that returns an AppDef.

    Args:
        name: The name by which the component was found.
        description: A short description; None means the first paragraph of the docstring.
        fn_name: Name of the function or class.
        fn: The function that returns the AppDef.
        validation_errors: A message for each rule that the component breaks.
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
        """The given description, else the first paragraph of the docstring or a tip to write it."""
        if self._description is None:
            from torchx_specs.file_linter import get_fn_docstring

            self._description = get_fn_docstring(self.fn)[0] if callable(self.fn) else ""
        return self._description

    def __repr__(self) -> str:
        return f"Component({self.name!r}, fn={self.fn!r}, errors={self.validation_errors!r})"


def is_candidate(value: object) -> bool:
    """Return True for functions and classes, decorated or not."""
    return isinstance(value, (FunctionType, type)) or hasattr(value, "__wrapped__")


def make_component(
    name: str, module: ModuleType, attribute: str, validators: Validators
) -> Component:
    """Return the component for an attribute of a module, even if it breaks rules.

    Args:
        name: Name of the component.
        module: The module.
        attribute: Name of the function or class in the module.
        validators: Rules to check instead of the default ones.
    """
    value: Any = getattr(module, attribute)
    errors = rule_violations(value, module, attribute, validators)
    if isinstance(value, type) and not errors:
        value = _function_of_class(value)
    return Component(name, None, attribute, value, errors)


def _function_of_class(cls: Any) -> Callable[..., AppDef]:
    """Return a function that creates an instance of a class and calls ``build()`` on it."""

    def component(*args: Any, **kwargs: Any) -> AppDef:
        app: AppDef = cls(*args, **kwargs).build()
        return app

    function: Any = component
    function.__name__, function.__qualname__ = cls.__name__, cls.__qualname__
    function.__module__, function.__doc__ = cls.__module__, cls.__doc__ or cls.__init__.__doc__
    function.__wrapped__ = cls
    function.__signature__ = inspect.signature(cls)
    return component


def rule_violations(
    value: Any, module: ModuleType, attribute: str, validators: Validators
) -> list[str]:
    """Return a message for each rule for components that a value breaks.

    With the default rules, the source is read only if the signature breaks a rule.
    """
    if not isinstance(value, type) and not callable(value):
        return [f"{attribute} is a {type(value).__name__}, not a function"]
    quick = _quick_violations(value) if validators is None else []
    if validators is None and not quick:
        return []
    file = getattr(module, "__file__", None)
    if file is None or not os.path.isfile(file):
        return quick
    from torchx_specs.file_linter import validate

    messages = validate(file, attribute, validators)
    if len(messages) == 1 and messages[0].line == 0 and quick:
        return quick  # the file does not define the attribute: it is generated or imported
    return [f"{_relative_path(file)}:{m.line}: {m.description}" for m in messages]


def _relative_path(file: str) -> str:
    below = os.getcwd() + os.sep
    return file[len(below) :] if file.startswith(below) else file


def _quick_violations(value: Any) -> list[str]:
    """Return a message for each rule that the signature of a function or class breaks."""
    signature = signature_of(value)
    if signature.problem:
        return [signature.problem]
    violations = [text for _, text in signature.violations()]
    violations.append(return_violation(signature.name, signature.returns))
    return [text for text in violations if text]
