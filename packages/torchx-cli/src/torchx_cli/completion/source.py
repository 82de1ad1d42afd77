"""Reads components from source files, without importing them.

Importing a user's file may take seconds, for example if the file imports torch.
"""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.util
import os
from collections.abc import Iterator
from typing import NamedTuple

_MAX_BYTES = 1 << 20


class Parameter(NamedTuple):
    """A parameter of a component.

    Attributes:
        name: The name.
        options: The option strings, such as ``--name``.
        is_flag: Whether the option may be given without a value, as for a bool.
        repeats: Whether the option may be given several times.
        choices: The valid values; empty if the values are not limited.
        takes_files: Whether a value may be the path of a file.
        is_varargs: Whether this is ``*args``.
    """

    name: str
    options: tuple[str, ...] = ()
    is_flag: bool = False
    repeats: bool = False
    choices: tuple[str, ...] = ()
    takes_files: bool = True
    is_varargs: bool = False


class Source:
    """The syntax tree of a module.

    Args:
        path: The file.

    Raises:
        OSError: The file cannot be read.
        SyntaxError: The file is not valid Python.
        ValueError: The file contains NUL characters.
    """

    def __init__(self, path: str) -> None:
        self._folder = os.path.dirname(os.path.abspath(path))
        with open(path, "rb") as fp:
            self._tree = ast.parse(fp.read(_MAX_BYTES))
        self._named = {
            node.name: node
            for node in self._tree.body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }

    def components(self) -> Iterator[str]:
        """Yield the names of functions, and of classes with ``build()``, that return an AppDef."""
        for name, node in self._named.items():
            function = _method(node, "build") if isinstance(node, ast.ClassDef) else node
            if not name.startswith("_") and function is not None and _returns_app(function):
                yield name

    def parameters(self, component: str) -> Iterator[Parameter]:
        """Yield the parameters of a component; nothing if the module does not define it."""
        node = self._named.get(component)
        function = _method(node, "__init__") if isinstance(node, ast.ClassDef) else node
        if not isinstance(function, ast.FunctionDef):
            return
        args = function.args
        named = [*args.posonlyargs, *args.args]
        for arg in [*named[isinstance(node, ast.ClassDef) :], *args.kwonlyargs]:
            yield self._parameter(arg)
        if args.vararg is not None:
            yield Parameter(args.vararg.arg, is_varargs=True)

    def _parameter(self, arg: ast.arg) -> Parameter:
        options = [f"--{arg.arg}", *([f"-{arg.arg}"] if len(arg.arg) == 1 else [])]
        kind, repeats = arg.annotation, False
        choices: tuple[str, ...] = ()
        while kind is not None:
            kind = self._resolved(kind)
            outer, inner = _subscript(kind)
            if outer == "Annotated":
                texts = [item.value for item in inner[1:] if isinstance(item, ast.Constant)]
                options += [text for text in texts if isinstance(text, str) and text[:1] == "-"]
                kind = inner[0]
            elif outer in ("Optional", "Union") and inner:
                kind = next((item for item in inner if not _is_none(item)), None)
            elif outer.lower() in ("list", "tuple", "dict", "sequence", "iterable", "mapping"):
                repeats, kind = True, inner[0] if inner else None
            else:
                choices = self._choices(kind)
                break
        name = _last_name(kind)
        takes_files = not choices and name not in ("int", "float", "bool")
        return Parameter(
            arg.arg, tuple(options), name == "bool" and not repeats, repeats, choices, takes_files
        )

    def _resolved(self, kind: ast.expr) -> ast.expr:
        """Return an annotation without quotes, without ``| None``, and with its alias replaced."""
        if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
            kind = ast.parse(kind.value, mode="eval").body
        if isinstance(kind, ast.BinOp):
            kind = self._resolved(kind.right if _is_none(kind.left) else kind.left)
        if isinstance(kind, ast.Name):
            for node in self._tree.body:
                if isinstance(node, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == kind.id for t in node.targets
                ):
                    return node.value
        return kind

    def _choices(self, kind: ast.expr) -> tuple[str, ...]:
        """Return the values of a Literal or the names of an Enum's members, otherwise nothing."""
        outer, inner = _subscript(kind)
        if outer == "Literal":
            return tuple(str(item.value) for item in inner if isinstance(item, ast.Constant))
        if not isinstance(kind, ast.Name):
            return ()
        node = self._named.get(kind.id)
        if isinstance(node, ast.ClassDef):
            return _members(node)
        return self._imported_choices(kind.id)

    def _imported_choices(self, name: str) -> tuple[str, ...]:
        """Return the names of the members of an Enum that the module imports from a source file."""
        for node in self._tree.body:
            if not isinstance(node, ast.ImportFrom) or node.level or not node.module:
                continue
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    path = os.path.join(self._folder, *node.module.split(".")) + ".py"
                    found = path if os.path.isfile(path) else module_file(node.module)
                    if found is None:
                        return ()
                    other = Source(found)._named.get(alias.name)
                    return _members(other) if isinstance(other, ast.ClassDef) else ()
        return ()


def _method(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    found = (n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == name)
    return next(found, None)


def _returns_app(function: ast.FunctionDef | ast.ClassDef) -> bool:
    returns = getattr(function, "returns", None)
    if isinstance(returns, ast.Constant):
        return str(returns.value).rpartition(".")[2] == "AppDef"
    return _last_name(returns) == "AppDef"


def _last_name(node: ast.AST | None) -> str:
    return getattr(node, "id", None) or getattr(node, "attr", None) or ""


def _subscript(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """Return the name and the items of a subscript: ``Literal`` and its values for ``Literal[…]``.

    If ``node`` is not a subscript, the name is empty and there are no items.
    """
    if not isinstance(node, ast.Subscript):
        return "", []
    items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return _last_name(node.value), list(items)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _members(node: ast.ClassDef) -> tuple[str, ...]:
    """Return the names of the members of an Enum; nothing for another class."""
    if not any(_last_name(base).endswith(("Enum", "Flag")) for base in node.bases):
        return ()
    return tuple(
        target.id
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name) and not target.id.startswith("_")
    )


def module_file(name: str) -> str | None:
    """Return the file of a module without importing any package; None if there is no source."""
    spec = _spec(name)
    found = None if spec is None else spec.origin
    return found if found is not None and found.endswith(".py") else None


def module_files(name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the file of a module and of all modules below it."""
    spec = _spec(name)
    if spec is not None and spec.origin and spec.origin.endswith(".py"):
        yield name, spec.origin
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield from _files_below(name, folder)


def _files_below(name: str, folder: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(os.listdir(folder)):
        path = os.path.join(folder, entry)
        if entry.endswith(".py") and entry not in ("__init__.py", "__main__.py"):
            yield f"{name}.{entry[:-3]}", path
        elif entry.isidentifier() and os.path.isfile(os.path.join(path, "__init__.py")):
            yield f"{name}.{entry}", os.path.join(path, "__init__.py")
            yield from _files_below(f"{name}.{entry}", path)


def _spec(name: str) -> importlib.machinery.ModuleSpec | None:
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        full = f"{spec.name}.{part}"
        spec = importlib.machinery.PathFinder.find_spec(full, spec.submodule_search_locations)
    return spec
