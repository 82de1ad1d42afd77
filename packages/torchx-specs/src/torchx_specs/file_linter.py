"""Checks that a function in a file can be a component, by reading the file: it is not imported."""

from __future__ import annotations

import abc
import ast
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

_RULE = "TorchxFunctionValidator"
_FILE = "TorchXValidator"

_TIP = """improve this help string by adding a docstring
to your component (see: https://meta-pytorch.org/torchx/latest/component_best_practices.html)"""


@dataclass
class LinterMessage:
    """What is wrong with a component, and where.

    Args:
        name: kind of check that found it
        description: what is wrong
        line: counted from 1; 0 if it is about the file
        char: column, counted from 0
        severity: ``error`` makes the component invalid
    """

    name: str
    description: str
    line: int
    char: int
    severity: str = "error"


class ComponentFunctionValidator(abc.ABC):
    """One rule that components have to follow.

    >>> class HasDocstring(ComponentFunctionValidator):
    ...     def validate(self, app_specs_func_def):
    ...         if ast.get_docstring(app_specs_func_def):
    ...             return []
    ...         return [self._gen_linter_message("has no docstring", app_specs_func_def)]
    """

    @abc.abstractmethod
    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Returns what is wrong with a function.

        Args:
            app_specs_func_def: the function; for a component that is a class, the function that it
                amounts to: the parameters of its constructor, the rest of its ``build``
        """
        raise NotImplementedError

    def _gen_linter_message(self, description: str, node: Any) -> LinterMessage:
        return LinterMessage(
            name=_RULE,
            description=description,
            line=getattr(node, "lineno", 0),
            char=getattr(node, "col_offset", 0),
        )


class ArgTypeValidator(ComponentFunctionValidator):
    """Every parameter has an annotation, of a type whose values can be read from text.

    A name that is not known (an Enum, an alias) is taken for one that can.
    """

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        function = app_specs_func_def
        arguments = function.args
        messages = [
            message
            for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            if (message := self._check(argument, function.name))
        ]
        if arguments.vararg and (message := self._check(arguments.vararg, function.name)):
            messages.append(message)
        if arguments.kwarg:
            messages.append(
                self._gen_linter_message(
                    f"Function {function.name} takes **{arguments.kwarg.arg}:"
                    " a component has to name its parameters",
                    arguments.kwarg,
                )
            )
        return messages

    def _check(self, argument: ast.arg, function: str) -> LinterMessage | None:
        if argument.annotation is None:
            return self._gen_linter_message(
                f"Missing type annotation for argument '{argument.arg}' in function '{function}'",
                argument,
            )
        try:
            _check_type(argument.annotation)
        except _UnsupportedError as e:
            from torchx_specs.components.converters import SUPPORTED_TYPES

            return self._gen_linter_message(
                f"Unsupported type '{e}' of argument '{argument.arg}' in function '{function}';"
                f" supported types: {SUPPORTED_TYPES}",
                argument.annotation,
            )
        return None


class ReturnTypeValidator(ComponentFunctionValidator):
    """The function says that it returns an AppDef.

    Args:
        supported_return_type: last part of the name of the type
    """

    def __init__(self, supported_return_type: str = "AppDef") -> None:
        self._supported = supported_return_type

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        function = app_specs_func_def
        if function.returns is None:
            return [
                self._gen_linter_message(
                    f"Function: {function.name} missing return annotation or has unknown"
                    f" annotations. Supported return annotation: {self._supported}",
                    function,
                )
            ]
        returned = _parsed_string(function.returns)
        if returned is not None and _last_name(returned) == self._supported:
            return []
        return [
            self._gen_linter_message(
                f"Function: {function.name} has incorrect return annotation"
                f" '{_source(function.returns)}', supported annotation: {self._supported}",
                function.returns,
            )
        ]


def validate(
    path: str | os.PathLike[str],
    component_function: str,
    validators: Sequence[ComponentFunctionValidator] | None = None,
) -> list[LinterMessage]:
    """Checks that a function in a file follows the rules for components.

    1. Every parameter is annotated with a type whose values can be read from text.
    2. The return annotation is ``AppDef``.

    A docstring is not required; help for the component is made from it. A class with a ``build``
    method can be a component too; its constructor has the parameters.

    Args:
        path: Python source file
        component_function: name of the function or class; it has to be defined in the file
        validators: rules to check instead of these two

    Returns:
        what is wrong, in the order of the file; empty if nothing is
    """
    filename = os.fspath(path)
    try:
        tree = _parsed_file(filename, *_version_of(filename))
    except OSError as e:
        return [LinterMessage(_FILE, f"cannot read {filename}: {e.strerror or e}", 0, 0)]
    except SyntaxError as e:
        return [LinterMessage(_FILE, e.msg, e.lineno or 0, e.offset or 0)]
    except ValueError as e:  # bytes that are no text
        return [LinterMessage(_FILE, f"cannot read {filename}: {e}", 0, 0)]
    definitions = [node for node in _definitions(tree.body) if node.name == component_function]
    if not definitions:
        return [LinterMessage(_FILE, f"Function {component_function} not found", 0, 0)]
    if validators is None:
        validators = [ArgTypeValidator(), ReturnTypeValidator("AppDef")]
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
    """Returns what the docstring of a component says of it, and of each of its parameters.

    Without a docstring, the description is the component's name and a TIP on how to improve it.
    Parameters that are not documented have a single blank.

    Args:
        fn: function with a Google style docstring, or without one

    Returns:
        description, and text by name of parameter
    """
    import inspect

    from torchx_specs.components import docstrings

    name = getattr(fn, "__name__", type(fn).__name__)
    doc = docstrings.parse(fn.__doc__)
    texts = doc.params
    if inspect.isclass(fn):
        texts = {**docstrings.parse(fn.__init__.__doc__).params, **texts}
    try:
        parameters = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        parameters = []
    params = {parameter: texts.get(parameter) or " " for parameter in parameters}
    if not (fn.__doc__ or "").strip():
        tip = f"{name} TIP: {_TIP}"
        return tip, params
    return "\n".join(part for part in (doc.short, doc.long) if part), params


class _UnsupportedError(Exception):
    """The text is the annotation at fault."""


# Types in annotations, by the last part of their names: an alias of a module (`t.List`) is as good.
_SCALARS = frozenset({"str", "int", "float", "bool", "Path", "PurePath", "Any", "None"})
_LISTS = frozenset({"list", "List", "Sequence", "Iterable", "Collection"})
_DICTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping"})
_TUPLES = frozenset({"tuple", "Tuple"})
_UNIONS = frozenset({"Union", "Optional"})
# Any other name may be an Enum, a NewType or an alias; these are known to be none.
_UNREADABLE = frozenset(
    {"bytes", "bytearray", "memoryview", "complex", "set", "frozenset", "type", "range", "slice"}
    | {"Set", "FrozenSet", "AbstractSet", "Type", "Callable", "Iterator", "Generator", "Awaitable"}
    | {"Coroutine", "Deque", "DefaultDict", "Counter", "AppDef", "Role", "Resource"}
)


def _check_type(node: ast.expr) -> bool:
    """Returns whether values of the annotation can be items of a list.

    Raises:
        _UnsupportedError: values cannot be read at all
    """
    parsed = _parsed_string(node)
    if parsed is None:
        raise _UnsupportedError(_source(node))
    if isinstance(parsed, ast.Constant) and parsed.value is None:
        return True
    if isinstance(parsed, ast.BinOp) and isinstance(parsed.op, ast.BitOr):
        return _are_items([parsed.left, parsed.right])
    if isinstance(parsed, ast.Subscript):
        return _check_generic(parsed)
    name = _last_name(parsed)
    if name is None or name in _UNREADABLE or name in _UNIONS:
        raise _UnsupportedError(_source(node))
    return name not in _LISTS | _DICTS | _TUPLES


def _check_generic(node: ast.Subscript) -> bool:
    name = _last_name(node.value)
    inner = node.slice
    arguments = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        return True
    if name == "Annotated":
        return _check_type(arguments[0])
    if name in _UNIONS:
        return _are_items(arguments)
    if name in _LISTS and len(arguments) == 1:
        _check_items(arguments, node)
        return False
    if name in _TUPLES and arguments:
        ellipsis = isinstance(arguments[-1], ast.Constant) and arguments[-1].value is ...
        _check_items(arguments[:1] if ellipsis and len(arguments) == 2 else arguments, node)
        return False
    if name in _DICTS and len(arguments) == 2:
        _check_items(arguments[:1], node)
        if not _check_type(arguments[1]) and not _is_list(arguments[1]):
            raise _UnsupportedError(_source(node))
        return False
    raise _UnsupportedError(_source(node))


def _are_items(nodes: list[ast.expr]) -> bool:
    checked = [_check_type(node) for node in nodes]  # all of them, whatever the first one is
    return all(checked)


def _check_items(arguments: list[ast.expr], whole: ast.expr) -> None:
    if not _are_items(arguments):
        raise _UnsupportedError(_source(whole))


def _is_list(node: ast.expr) -> bool:
    """Returns whether the annotation is a list or a tuple, or None beside one."""
    parsed = _parsed_string(node)
    if isinstance(parsed, ast.BinOp):
        sides = [s for s in (parsed.left, parsed.right) if not _is_none(s)]
        return len(sides) == 1 and _is_list(sides[0])
    if isinstance(parsed, ast.Subscript):
        if _last_name(parsed.value) == "Optional":
            return _is_list(parsed.slice)
        parsed = parsed.value
    return parsed is not None and _last_name(parsed) in _LISTS | _TUPLES


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _parsed_string(node: ast.expr) -> ast.expr | None:
    """Returns the expression that a string annotation holds, other expressions as they are."""
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


def _definitions(body: Sequence[ast.stmt]) -> Iterator[_Definition]:
    """Yields what a module defines, also below ``if`` and ``try``; not what functions define."""
    for node in body:
        if isinstance(node, _Definition):
            yield node
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from _definitions(getattr(node, block, None) or [])
        for handler in getattr(node, "handlers", None) or []:
            yield from _definitions(handler.body)


def _as_function(definition: _Definition) -> ast.FunctionDef | LinterMessage:
    if isinstance(definition, ast.FunctionDef):
        return definition
    where = (definition.lineno, definition.col_offset)
    if isinstance(definition, ast.AsyncFunctionDef):
        return LinterMessage(
            _RULE, f"Function {definition.name} is async; a component must be a plain def", *where
        )
    methods = {node.name: node for node in definition.body if isinstance(node, ast.FunctionDef)}
    build = methods.get("build")
    if build is None and not definition.bases:
        return LinterMessage(
            _RULE, f"Class {definition.name} has no build method that returns an AppDef", *where
        )
    return ast.FunctionDef(
        name=definition.name,
        args=_constructor_arguments(definition, methods.get("__init__")),
        body=definition.body,
        decorator_list=[],
        # an inherited build is checked where it is written
        returns=build.returns if build else ast.Name("AppDef", ast.Load()),
        type_comment=None,
        lineno=build.lineno if build else definition.lineno,
        col_offset=build.col_offset if build else definition.col_offset,
    )


def _constructor_arguments(definition: ast.ClassDef, init: ast.FunctionDef | None) -> ast.arguments:
    arguments = ast.arguments(
        posonlyargs=[], args=[], vararg=None, kwonlyargs=[], kw_defaults=[], kwarg=None, defaults=[]
    )
    if init is not None:
        source = init.args
        arguments.posonlyargs, arguments.args = source.posonlyargs, source.args
        if arguments.posonlyargs:
            arguments.posonlyargs = arguments.posonlyargs[1:]
        else:
            arguments.args = arguments.args[1:]
        arguments.vararg, arguments.kwarg = source.vararg, source.kwarg
        arguments.kwonlyargs, arguments.kw_defaults = source.kwonlyargs, source.kw_defaults
        arguments.defaults = source.defaults
    elif any(_is_dataclass(decorator) for decorator in definition.decorator_list):
        arguments.args = [
            ast.copy_location(ast.arg(node.target.id, node.annotation), node)
            for node in definition.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ]
    return arguments


def _is_dataclass(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return _last_name(called) == "dataclass"


def _version_of(filename: str) -> tuple[int, int]:
    stat = os.stat(filename)
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=32)
def _parsed_file(filename: str, mtime_ns: int, size: int) -> ast.Module:
    """Parses a file once for all of its components; the other arguments tell its versions apart."""
    with open(filename, "rb") as f:
        return ast.parse(f.read(), filename)


if TYPE_CHECKING:

    class TorchXArgumentHelpFormatter(
        argparse.RawDescriptionHelpFormatter,
        argparse.ArgumentDefaultsHelpFormatter,
        argparse.MetavarTypeHelpFormatter,
    ): ...


def __getattr__(name: str) -> Any:
    if name != "TorchXArgumentHelpFormatter":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import argparse

    class TorchXArgumentHelpFormatter(
        argparse.RawDescriptionHelpFormatter,
        argparse.ArgumentDefaultsHelpFormatter,
        argparse.MetavarTypeHelpFormatter,
    ):
        """Formats argparse help as components have it: description raw, defaults, types."""

    TorchXArgumentHelpFormatter.__qualname__ = name
    globals()[name] = TorchXArgumentHelpFormatter
    return TorchXArgumentHelpFormatter
