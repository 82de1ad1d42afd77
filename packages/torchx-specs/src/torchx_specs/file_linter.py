"""Check that a function in a file can be a component, without importing the file."""

from __future__ import annotations

import abc
import ast
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_specs.components.signature import return_violation, signature_of
from torchx_specs.components.source import (
    SourceNames,
    as_function,
    problem_of,
    read_definition,
    read_source,
    return_annotation,
)

_RULE = "TorchxFunctionValidator"
_FILE = "TorchXValidator"

_TIP = """improve this help string by adding a docstring
to your component (see: https://meta-pytorch.org/torchx/latest/component_best_practices.html)"""


@dataclass
class LinterMessage:
    """A violation of the rules for components.

    Args:
        name: Name of the check that found the violation.
        description: Description of the violation.
        line: Line, counted from 1; 0 if the message is about the file.
        char: Column, counted from 0.
        severity: ``error`` means that the component is invalid.
    """

    name: str
    description: str
    line: int
    char: int
    severity: str = "error"


class ComponentFunctionValidator(abc.ABC):
    """Base class of a rule that components have to follow.

    >>> class HasDocstring(ComponentFunctionValidator):
    ...     def validate(self, app_specs_func_def):
    ...         if ast.get_docstring(app_specs_func_def):
    ...             return []
    ...         return [self._gen_linter_message("has no docstring", app_specs_func_def)]
    """

    @abc.abstractmethod
    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Return the violations in a function.

        Args:
            app_specs_func_def: The function. For a component that is a class, a function with the
                parameters of the class's constructor and the return annotation of its ``build``.
        """

    def _gen_linter_message(self, description: str, node: Any) -> LinterMessage:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        return LinterMessage(_RULE, description, line, column)


class ArgTypeValidator(ComponentFunctionValidator):
    """The rule that every parameter has an annotation of a supported type.

    Args:
        names: Maps names that the file defines or imports to types. Other names are looked up in
            ``builtins`` and ``typing``. Unknown names are accepted, because they may be Enums
            or aliases of supported types.
    """

    def __init__(self, names: SourceNames | Mapping[str, Any] | None = None) -> None:
        self._names = names if isinstance(names, SourceNames) else SourceNames(known=names)

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Return a message for each parameter without a supported type, and for ``**kwargs``."""
        function = app_specs_func_def
        nodes = {node.arg: node for node in ast.walk(function.args) if isinstance(node, ast.arg)}
        kwarg = function.args.kwarg
        messages = []
        for name, text in read_definition(function, self._names).violations():
            node = nodes[name]
            where = node.annotation if node is not kwarg and node.annotation else node
            messages.append(self._gen_linter_message(text, where))
        return messages


class ReturnTypeValidator(ComponentFunctionValidator):
    """The rule that the return annotation is ``AppDef``.

    Args:
        supported_return_type: Name of the required type, without its module.
    """

    def __init__(self, supported_return_type: str = "AppDef") -> None:
        self._supported = supported_return_type

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Return a message unless the return annotation is the required type."""
        function = app_specs_func_def
        text = return_violation(function.name, return_annotation(function) or "", self._supported)
        return [self._gen_linter_message(text, function.returns or function)] if text else []


def validate(
    path: str | os.PathLike[str],
    component_function: str,
    validators: Sequence[ComponentFunctionValidator] | None = None,
) -> list[LinterMessage]:
    """Check that a function in a file follows the rules for components.

    1. Every parameter is annotated with a supported type.
    2. The return annotation is ``AppDef``.

    A component can also be a class with a ``build`` method; rule 1 is then about the parameters of
    its constructor. A docstring is recommended, because it becomes the component's help.

    Args:
        path: Python source file.
        component_function: Name of the function or class, which the file has to define.
        validators: Rules to check instead of these two.

    Returns:
        The violations, sorted by line.
    """
    filename = os.fspath(path)
    try:
        source = read_source(filename)
    except SyntaxError as e:
        return [LinterMessage(_FILE, e.msg, e.lineno or 0, e.offset or 0)]
    except (OSError, ValueError) as e:  # ValueError: the file is not text
        reason = getattr(e, "strerror", None) or e
        return [LinterMessage(_FILE, f"cannot read {filename}: {reason}", 0, 0)]
    definitions = source.definitions.get(component_function)
    if definitions is None:
        return [LinterMessage(_FILE, f"Function {component_function} not found", 0, 0)]
    if validators is None:
        validators = [ArgTypeValidator(source.names), ReturnTypeValidator("AppDef")]
    messages: list[LinterMessage] = []
    for definition in definitions:
        problem = problem_of(definition)
        if problem:
            where = (definition.lineno, definition.col_offset)
            messages.append(LinterMessage(_RULE, problem, *where))
            continue
        function: Any = as_function(definition)
        for validator in validators:
            messages.extend(validator.validate(function))
    return sorted(messages, key=lambda message: (message.line, message.char))


def get_fn_docstring(fn: Callable[..., object]) -> tuple[str, dict[str, str]]:
    """Return the descriptions of a component and of its parameters, from its docstring.

    Without a docstring, the description is the component's name and a tip to write a docstring. The
    description of an undocumented parameter is a single blank.

    Args:
        fn: A function or a class, with or without a docstring.

    Returns:
        The description of the component, and a dict from parameter names to descriptions.
    """
    signature = signature_of(fn)
    doc = signature.doc
    names = (*signature.names, *filter(None, [signature.varkw]))
    params = {name: doc.params.get(name) or " " for name in names}
    if not (fn.__doc__ or "").strip():
        return f"{signature.name} TIP: {_TIP}", params
    return "\n".join(part for part in (doc.short, doc.long) if part), params
