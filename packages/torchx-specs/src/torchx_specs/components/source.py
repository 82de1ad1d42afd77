"""Components in a source file, read without importing the file.

Importing a user's file may take seconds, for example if the file imports torch.
"""

from __future__ import annotations

import ast
import builtins
import copy
import enum
import functools
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchx_specs.components.signature import ComponentSignature

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef

# Importing these modules of the standard library has side effects.
_NOT_IMPORTED = frozenset({"antigravity", "this", "idlelib", "__main__"})


class ComponentSource:
    """The functions and classes of a module, from its syntax tree.

    Attributes:
        definitions: The definitions in module-level blocks, by name. Blocks such as ``if`` and
            ``try`` may define a name several times.
        names: The types that names of the module stand for.
    """

    def __init__(self, tree: ast.Module, folder: str = "") -> None:
        self.definitions: dict[str, list[Definition]] = {}
        self.names = SourceNames(folder)
        for node in _statements(tree):
            if isinstance(node, Definition):
                self.definitions.setdefault(node.name, []).append(node)
            self.names.add(node)

    def components(self) -> list[str]:
        """Return the public functions, and classes with ``build()``, that return an AppDef."""
        return [
            name
            for name, (*_, node) in self.definitions.items()
            if not name.startswith("_")
            and not isinstance(node, ast.AsyncFunctionDef)
            and (return_annotation(node) or "").rpartition(".")[2] == "AppDef"
        ]

    def signature(self, name: str) -> ComponentSignature | None:
        """Return the signature of a function or class; None if the module does not define it."""
        nodes = self.definitions.get(name)
        return read_definition(nodes[-1], self.names) if nodes else None


def read_source(path: str) -> ComponentSource:
    """Read a file; cache the result until the file's modification time or size changes.

    Raises:
        OSError: The file cannot be read.
        SyntaxError: The file is not valid Python.
        ValueError: The file contains NUL characters.
    """
    stat = os.stat(path)
    return _read_file(os.path.abspath(path), stat.st_mtime_ns, stat.st_size)


@functools.lru_cache(maxsize=32)
def _read_file(path: str, mtime_ns: int, size: int) -> ComponentSource:
    with open(path, "rb") as f:
        return ComponentSource(ast.parse(f.read(), path), os.path.dirname(path))


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module, also those in blocks such as ``if`` and ``try``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, (Definition, ast.expr)):
            yield from _statements(child)


def return_annotation(node: Definition) -> str | None:
    """Return the return annotation of a function or of a class's ``build`` as text.

    The text is empty if the annotation is missing. The result is None if a class has no ``build``
    of its own.
    """
    function = _methods(node).get("build") if isinstance(node, ast.ClassDef) else node
    return None if function is None else _text(function.returns)


def problem_of(node: Definition) -> str:
    """Return why a definition cannot be a component, before the rules for components are checked.

    The result is empty if there is no such reason.
    """
    from torchx_specs.components.signature import HAS_NO_BUILD, IS_ASYNC

    if isinstance(node, ast.AsyncFunctionDef):
        return IS_ASYNC.format(node.name)
    if isinstance(node, ast.ClassDef) and not node.bases and "build" not in _methods(node):
        return HAS_NO_BUILD.format(node.name)
    return ""


def as_function(node: Definition) -> Function:
    """Return a function with the constructor's parameters and ``build``'s annotation for a class.

    Functions are returned as they are.
    """
    if not isinstance(node, ast.ClassDef):
        return node
    methods = _methods(node)
    init, build = methods.get("__init__"), methods.get("build")
    args = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    if init is not None:
        args = copy.deepcopy(init.args)
        (args.posonlyargs or args.args)[:1] = []  # without `self`
    elif "dataclass" in (_last_name(getattr(d, "func", d)) for d in node.decorator_list):
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                arg = ast.arg(field.target.id, field.annotation)
                args.args.append(ast.copy_location(arg, field))
                args.defaults += [field.value] if field.value else []
    # If the class inherits build(), assume that it returns an AppDef.
    inherited = ast.Name("AppDef", ast.Load()) if node.bases else None
    returns = build.returns if build else inherited
    function = ast.FunctionDef(node.name, args, node.body, [], returns)
    return ast.copy_location(function, build or node)


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {method.name: method for method in node.body if isinstance(method, ast.FunctionDef)}


def read_definition(node: Definition, names: SourceNames) -> ComponentSignature:
    """Return the signature of a function or class.

    Args:
        node: The definition.
        names: The types that names of the module stand for.
    """
    from inspect import Parameter

    from torchx_specs.components.signature import make_signature

    function = as_function(node)
    args = function.args
    named = [*args.posonlyargs, *args.args]
    kinds: list[tuple[ast.arg | None, Any]]
    kinds = [(arg, Parameter.POSITIONAL_OR_KEYWORD) for arg in named]
    kinds += [(args.vararg, Parameter.VAR_POSITIONAL)]
    kinds += [(arg, Parameter.KEYWORD_ONLY) for arg in args.kwonlyargs]
    kinds += [(args.kwarg, Parameter.VAR_KEYWORD)]
    given = dict(zip(reversed(named), reversed(args.defaults), strict=False))
    given.update((a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True) if d)
    parameters = [
        (
            Parameter(
                arg.arg,
                kind,
                default=_default(given[arg]) if arg in given else Parameter.empty,
                annotation=names.resolve(arg.annotation) if arg.annotation else Parameter.empty,
            ),
            _text(arg.annotation),
        )
        for arg, kind in kinds
        if arg is not None
    ]
    documented = [node]
    if isinstance(node, ast.ClassDef):
        documented += [method for method in _methods(node).values() if method.name == "__init__"]
    texts = tuple(map(ast.get_docstring, documented))
    return make_signature(node.name, parameters, _text(function.returns), texts, problem_of(node))


def _default(node: ast.expr) -> Any:
    from torchx_specs.components.signature import SourceExpression

    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return SourceExpression(_text(node))


class SourceNames:
    """The types that the names of a module stand for; each is looked up when it is first needed.

    Without a module, all names are those of ``builtins``, ``typing`` and ``pathlib``.

    Args:
        folder: The folder of the module, in which it may import other files.
        known: The types of some names.
    """

    def __init__(self, folder: str = "", known: Mapping[str, Any] | None = None) -> None:
        self._folder = folder
        self._nodes: dict[str, tuple[Any, ast.alias | None]] = {}
        self._found = dict(known or {})

    def add(self, node: ast.stmt) -> None:
        """Add the names that a statement imports or defines."""
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                name = alias.name if isinstance(node, ast.ImportFrom) else _top_level(alias.name)
                self._nodes[alias.asname or name] = node, alias
        elif isinstance(node, ast.ClassDef):
            self._nodes[node.name] = node, None
        elif getattr(node, "value", None) is not None:  # assignments and `type X = ...`
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            for target in (*targets, getattr(node, "name", None)):
                if isinstance(target, ast.Name):
                    self._nodes[target.id] = node, None

    def find(self, name: str) -> Any:
        """Return the type, module or object that a name stands for; None if it is unknown.

        Raises:
            KeyError: The module neither imports nor defines the name.
        """
        if name not in self._found:
            node, alias = self._nodes[name]
            self._found[name] = None  # the definition may contain the name
            if alias is None:
                self._found[name] = self._defined(node)
            elif isinstance(node, ast.ImportFrom):
                self._found[name] = self._imported(node, alias.name)
            else:
                module = alias.name if alias.asname else _top_level(alias.name)
                self._found[name] = _standard_module(module)
        return self._found[name]

    def _imported(self, node: ast.ImportFrom, name: str) -> Any:
        if node.level or not node.module:
            return None
        module = _standard_module(node.module)
        if module is not None:
            return getattr(module, name, None)
        path = os.path.join(self._folder, *node.module.split(".")) + ".py"
        found = path if os.path.isfile(path) else module_file(node.module)
        try:
            return None if found is None else read_source(found).names.find(name)
        except (OSError, SyntaxError, ValueError, KeyError):
            return None

    def _defined(self, node: Any) -> Any:
        if isinstance(node, ast.ClassDef):
            if not (node.bases or node.keywords):
                return _stand_in(node.name, object)
            bases = [self.resolve(base) for base in node.bases]
            is_enum = any(isinstance(base, type) and issubclass(base, enum.Enum) for base in bases)
            return enum.Enum(node.name, _members(node)) if is_enum else None
        value = node.value
        if isinstance(value, ast.Call):
            if _last_name(value.func) != "NewType" or len(value.args) != 2:
                return None
            value = value.args[1]
        return self.resolve(value)

    def resolve(self, node: ast.expr) -> Any:
        """Return the type that an annotation means, without running code of the module.

        Unknown names and other expressions become types of their own.
        """
        try:
            return self._resolved(_parsed_string(node))
        except (TypeError, ValueError, SyntaxError):
            return _stand_in(_text(node), object)

    def _resolved(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and (node.value is None or node.value is ...):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return typing.Union[self.resolve(node.left), self.resolve(node.right)]  # noqa: UP007
        if isinstance(node, ast.Subscript):
            generic, inner = self.resolve(node.value), node.slice
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if generic is typing.Literal:
                return typing.Literal[tuple(map(self._literal, items))]
            if generic is typing.Annotated:
                arguments = (self.resolve(items[0]), *map(self._literal, items[1:]))
                return typing.Annotated[arguments]
            arguments = tuple(map(self.resolve, items))
            try:
                return generic[arguments if len(arguments) != 1 else arguments[0]]
            except Exception:  # a wrong number of arguments, or an unknown type
                return types.GenericAlias(generic, arguments)
        if isinstance(node, ast.List):  # the parameters of a Callable
            return list(map(self.resolve, node.elts))
        if not _last_name(node):
            raise TypeError("not an annotation")
        return self._named_type(node)

    def _literal(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError):
            found = self.resolve(node)
            return found if isinstance(found, enum.Enum) else _text(node).rpartition(".")[2]

    def _named_type(self, node: ast.expr) -> Any:
        """Return the type that a dotted name stands for."""
        root, *attributes = _text(node).split(".")
        last = attributes[-1] if attributes else root
        try:
            found = self.find(root)
        except KeyError:  # the file does not import this name
            if last in ("Path", "PurePath"):
                return getattr(importlib.import_module("pathlib"), last)
            if hasattr(builtins, last) or last in typing.__all__:
                return getattr(builtins, last, None) or getattr(typing, last)
            found = None
        for attribute in attributes:
            found = getattr(found, attribute, None)
        if found is not None:
            return found
        from torchx_specs.components.converters import UnresolvedType

        return _stand_in(
            _text(node), object if last in ("AppDef", "Role", "Resource") else UnresolvedType
        )


def _members(node: ast.ClassDef) -> list[tuple[str, object]]:
    """Return the names of an Enum's members, each with a value of its own."""
    return [
        (target.id, object())
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and not (target.id[0] == target.id[-1] == "_")
    ]


def _top_level(module: str) -> str:
    return module.partition(".")[0]


def _standard_module(name: str) -> Any:
    """Import a module of the standard library; return None for any other name."""
    if name == "typing_extensions":
        return typing
    if _top_level(name) in sys.stdlib_module_names and _top_level(name) not in _NOT_IMPORTED:
        try:
            return importlib.import_module(name)
        except ImportError:  # the submodule does not exist, or this Python lacks the module
            pass
    return None


def _stand_in(name: str, base: type) -> type:
    return type(name, (base,), {"__module__": "builtins"})


def _parsed_string(node: ast.expr) -> ast.expr:
    """Return the expression inside a string annotation; other expressions are returned as is."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ast.parse(node.value.strip(), mode="eval").body
    return node


def _last_name(node: ast.expr) -> str:
    """Return the last name of a dotted name; an empty text for other expressions."""
    return getattr(node, "id", None) or getattr(node, "attr", None) or ""


def _text(node: ast.expr | None) -> str:
    """Return the source of an annotation without quotes; an empty text for None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):  # much faster than ast.unparse
        return node.id
    return "" if node is None else ast.unparse(node)


def module_file(name: str) -> str | None:
    """Return the file of a module without importing any package; None if there is no source."""
    spec = module_spec(name)
    found = None if spec is None else spec.origin
    return found if found is not None and found.endswith(".py") else None


def module_spec(name: str) -> importlib.machinery.ModuleSpec | None:
    """Find a module without importing any package; return None if it does not exist."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        full = f"{spec.name}.{part}"
        spec = importlib.machinery.PathFinder.find_spec(full, spec.submodule_search_locations)
    return spec
