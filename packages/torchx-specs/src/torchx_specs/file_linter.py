"""Check that a function in a file can be a component, without importing the file."""

from __future__ import annotations

import abc
import ast
import builtins
import copy
import functools
import importlib
import inspect
import os
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_specs.components import converters

_RULE = "TorchxFunctionValidator"
_FILE = "TorchXValidator"
_CONTAINERS = frozenset({"dict", "list", "tuple"})

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

    def __init__(self, names: Mapping[str, Any] | None = None) -> None:
        self._names = names or {}

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Return a message for each parameter without a supported type, and for ``**kwargs``."""
        function = app_specs_func_def
        parameters = function.args
        named = [*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs]
        if parameters.vararg:
            named.append(parameters.vararg)
        messages = [self._check(parameter, function.name) for parameter in named]
        if parameters.kwarg:
            taken = f"Function {function.name} takes **{parameters.kwarg.arg}"
            text = f"{taken}: a component has to name its parameters"
            messages.append(self._gen_linter_message(text, parameters.kwarg))
        return [message for message in messages if message]

    def _check(self, parameter: ast.arg, function: str) -> LinterMessage | None:
        name, annotation = parameter.arg, parameter.annotation
        if annotation is None:
            text = f"Missing type annotation for argument '{name}' in function '{function}'"
            return self._gen_linter_message(text, parameter)
        culprit = self._unsupported(annotation)
        if culprit is None:
            return None
        where = f"argument '{name}: {_source(annotation)}' in function '{function}'"
        text = f"{self._problem(annotation)} for {where}"
        if f"{culprit}'" not in text:
            text += f": '{culprit}' is not supported"
        text += f"; supported types: {converters.SUPPORTED_TYPES}"
        return self._gen_linter_message(text, annotation)

    def _unsupported(self, annotation: ast.expr) -> str | None:
        """Return the part of an annotation that is not supported; None if all is supported."""
        try:
            converters.converter_for(_resolved(annotation, self._names))
        except converters.UnsupportedTypeError as e:
            return str(e)
        return None

    def _problem(self, annotation: ast.expr) -> str:
        """Return the message for an unsupported annotation, in the same words as older releases."""
        node = _parsed_string(annotation)
        if isinstance(node, ast.BinOp):
            sides = (node.left, node.right)
            return self._problem(next(filter(self._unsupported, sides), node.left))
        if not isinstance(node, ast.Subscript):
            return f"Unsupported argument type '{_source(annotation)}'"
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        name, text = str(_last_name(node.value)), _source(node)
        kind = name.lower()
        if kind in ("optional", "annotated"):
            return self._problem(items[0])
        if kind not in _CONTAINERS:
            return f"Unsupported container type '{name}'"
        if kind == "dict" and len(items) != 2:
            return (
                f"Malformed dict type '{text}', expected exactly two type parameters (dict[K, V])"
            )
        if kind == "tuple" and len(items) == 1:
            return f"Unsupported tuple type '{text}': expected at least two items (tuple[T1, T2])"
        parts = ("key", "value") if kind == "dict" else ("element",) * len(items)
        for part, item in zip(parts, items, strict=True):
            generic = getattr(item, "value", None)
            nested = generic is not None and (_last_name(generic) or "").lower() in _CONTAINERS
            if nested or self._unsupported(item):
                return f"Non-primitive {part} type '{_source(item)}'"
        return f"Unsupported argument type '{text}'"


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
        if function.returns is None:
            text = (
                f"Function: {function.name} missing return annotation or has unknown"
                f" annotations. Supported return annotation: {self._supported}"
            )
            return [self._gen_linter_message(text, function)]
        returned = _parsed_string(function.returns)
        if returned is not None and _last_name(returned) == self._supported:
            return []
        text = (
            f"Function: {function.name} has incorrect return annotation, supported annotation:"
            f" {self._supported}, not '{_source(function.returns)}'"
        )
        return [self._gen_linter_message(text, function.returns)]


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
        stat = os.stat(filename)
        tree = _parsed_file(filename, stat.st_mtime_ns, stat.st_size)
    except SyntaxError as e:
        return [LinterMessage(_FILE, e.msg, e.lineno or 0, e.offset or 0)]
    except (OSError, ValueError) as e:  # ValueError: the file is not text
        reason = getattr(e, "strerror", None) or e
        return [LinterMessage(_FILE, f"cannot read {filename}: {reason}", 0, 0)]
    definitions = [node for node in _definitions(tree) if node.name == component_function]
    if not definitions:
        return [LinterMessage(_FILE, f"Function {component_function} not found", 0, 0)]
    if validators is None:
        validators = [ArgTypeValidator(_names_in(tree)), ReturnTypeValidator("AppDef")]
    messages: list[LinterMessage] = []
    for definition in definitions:
        function = _as_function(definition)
        if isinstance(function, LinterMessage):
            messages.append(function)
            continue
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
    from torchx_specs.components.docstrings import component_docstring

    doc = component_docstring(fn)
    try:
        parameters = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        parameters = []
    params = {parameter: doc.params.get(parameter) or " " for parameter in parameters}
    if not (fn.__doc__ or "").strip():
        return f"{getattr(fn, '__name__', type(fn).__name__)} TIP: {_TIP}", params
    return "\n".join(part for part in (doc.short, doc.long) if part), params


# Importing these modules of the standard library has side effects.
_NOT_IMPORTED = frozenset({"antigravity", "this", "idlelib", "__main__"})


def _names_in(tree: ast.Module) -> dict[str, Any]:
    """Map each name that a file imports or defines to a type or module; None if unknown."""
    names: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                module = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or module] = _standard_module(module)
        elif isinstance(node, ast.ImportFrom):
            source = None if node.level or not node.module else _standard_module(node.module)
            for alias in node.names:
                names[alias.asname or alias.name] = getattr(source, alias.name, None)
        elif isinstance(node, ast.ClassDef):
            plain = not (node.bases or node.keywords)
            names[node.name] = _stand_in(node.name, object) if plain else None
    return names


def _standard_module(name: str) -> Any:
    """Import a module of the standard library; return None for any other name."""
    if name == "typing_extensions":
        return typing
    top_level = name.partition(".")[0]
    if top_level in sys.stdlib_module_names and top_level not in _NOT_IMPORTED:
        try:
            return importlib.import_module(name)
        except ImportError:  # the submodule does not exist, or this Python lacks the module
            pass
    return None


def _resolved(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the type that an annotation means, without running code of the file."""
    parsed = _parsed_string(node)
    if isinstance(parsed, ast.Constant) and (parsed.value is None or parsed.value is ...):
        return parsed.value
    if isinstance(parsed, ast.BinOp) and isinstance(parsed.op, ast.BitOr):
        return typing.Union[_resolved(parsed.left, names), _resolved(parsed.right, names)]  # noqa: UP007
    if isinstance(parsed, ast.Subscript):
        generic = _resolved(parsed.value, names)
        inner = parsed.slice
        arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if generic in (tuple, typing.Tuple) and len(arguments) == 1:  # noqa: UP006
            raise converters.UnsupportedTypeError(_source(node))
        if generic is typing.Literal:
            return typing.Literal[tuple(map(_literal_value, arguments))]
        if generic is typing.Annotated:
            return _resolved(arguments[0], names)
        if converters.is_supported_generic(generic):
            resolved = tuple(_resolved(argument, names) for argument in arguments)
            try:
                return generic[resolved if len(resolved) != 1 else resolved[0]]
            except TypeError:
                pass
    elif parsed is not None and _last_name(parsed):
        return _named_type(parsed, names)
    raise converters.UnsupportedTypeError(_source(node))


def _literal_value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:  # a member of an Enum
        return _source(node)


def _named_type(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the type that a dotted name stands for."""
    root, *attributes = _source(node).split(".")
    last = attributes[-1] if attributes else root
    if root in names:
        found = names[root]
        for attribute in attributes:
            found = getattr(found, attribute, None)
        if found is not None:
            return found
    elif last in ("Path", "PurePath"):  # the file does not import this name: assume pathlib
        return getattr(importlib.import_module("pathlib"), last)
    elif hasattr(builtins, last):
        return getattr(builtins, last)
    elif last in typing.__all__:
        return getattr(typing, last)
    base = object if last in ("AppDef", "Role", "Resource") else converters.UnresolvedType
    return _stand_in(last, base)


def _stand_in(name: str, base: type) -> type:
    return type(name, (base,), {"__module__": "builtins"})


def _parsed_string(node: ast.expr) -> ast.expr | None:
    """Return the expression inside a string annotation; other expressions are returned as is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return ast.parse(node.value.strip(), mode="eval").body
        except SyntaxError:
            return None
    return node


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _source(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return ast.unparse(node)


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(node: ast.AST) -> Iterator[_Definition]:
    """Yield the functions and classes of a module, also those below ``if`` and ``try``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            yield child
        elif not isinstance(child, ast.expr):
            yield from _definitions(child)


def _as_function(definition: _Definition) -> ast.FunctionDef | LinterMessage:
    if isinstance(definition, ast.FunctionDef):
        return definition
    where = (definition.lineno, definition.col_offset)
    if isinstance(definition, ast.AsyncFunctionDef):
        text = f"Function {definition.name} is async; a component must be a plain def"
        return LinterMessage(_RULE, text, *where)
    methods = {node.name: node for node in definition.body if isinstance(node, ast.FunctionDef)}
    build = methods.get("build")
    if build is None and not definition.bases:
        text = f"Class {definition.name} has no build method that returns an AppDef"
        return LinterMessage(_RULE, text, *where)
    init = methods.get("__init__")
    decorators = [_last_name(getattr(node, "func", node)) for node in definition.decorator_list]
    args = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    if init is not None:
        args = copy.deepcopy(init.args)
        (args.posonlyargs or args.args)[:1] = []  # without `self`
    elif "dataclass" in decorators:
        args.args = [
            ast.copy_location(ast.arg(node.target.id, node.annotation), node)
            for node in definition.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ]
    # If the class inherits build(), assume that it returns an AppDef.
    returns = build.returns if build else ast.Name("AppDef", ast.Load())
    function = ast.FunctionDef(definition.name, args, definition.body, [], returns)
    return ast.copy_location(function, build or definition)


@functools.lru_cache(maxsize=32)
def _parsed_file(filename: str, mtime_ns: int, size: int) -> ast.Module:
    """Parse a file; cache the result until the file's modification time or size changes."""
    with open(filename, "rb") as f:
        return ast.parse(f.read(), filename)
