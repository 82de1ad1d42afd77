"""Finds components: functions (or classes with ``build()``) that return an AppDef.

A component is addressed as

- ``utils.echo``: of a module that a plugin registers
  (:func:`torchx_specs.hookspecs.torchx_components`); only the module in question is imported
- ``path/to/file.py:trainer``: in a file
- ``package.module:trainer`` or ``package.module.trainer``: in an importable module
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx_runner.components.rules import Component as _Component
from torchx_runner.components.rules import is_candidate, make_component, rule_violations
from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.errors import (
    ComponentError,
    ComponentNotFoundException,
    ComponentValidationException,
    PluginError,
    TorchXError,
    nearest,
)
from torchx_specs.settings import ENV_TORCHX_PLUGINS_DISABLED

if TYPE_CHECKING:
    from torchx_runner.components.rules import Validators
    from torchx_specs.plugins.records import ComponentPlugin


class ComponentProblem(NamedTuple):
    """Why a registered module, or one of its components, cannot be had.

    Attributes:
        module: the module
        origin: the distribution that registers it
        message: what is wrong
    """

    module: str
    origin: str
    message: str

    def __str__(self) -> str:
        return f"components of {self.module} ({self.origin}): {self.message}"


class ComponentListing(NamedTuple):
    """All registered components.

    Attributes:
        components: the valid ones, by name
        problems: what is broken
    """

    components: dict[str, _Component]
    problems: list[ComponentProblem]


# -- looking up one


def get_component(name: str, validators: Validators = None) -> _Component:
    """Returns the component of that name.

    Args:
        name: see the top of this module
        validators: rules to check instead of the usual ones

    Raises:
        ComponentNotFoundException: there is none
        ComponentValidationException: it breaks the rules for components
        ComponentError: its module cannot be imported
        PluginError: two plugins give a component of that name
    """
    if not isinstance(name, str) or not name:
        raise ComponentNotFoundException(f"the name of a component must be a str, got {name!r}")
    if ":" in name:
        path, _, function = name.rpartition(":")
        [component] = CustomComponentsFinder(path, function).find(validators)
    else:
        found = _find_registered(name) or _find_dotted(name)
        if found is None:
            raise ComponentNotFoundException(_not_found(name))
        component = make_component(name, *found, validators)
    if component.validation_errors:
        raise ComponentValidationException(
            f"component {name} is not valid: {'; '.join(component.validation_errors)}"
        )
    return component


def component_groups() -> tuple[ComponentPlugin, ...]:
    """Returns the registered groups of components.

    Those of ``torchx-components`` are left out if a group of the older kind replaces them.
    """
    groups = tuple(group for group in plugin_manager().components() if group.module)
    if any(group.replaces_builtins for group in groups):
        groups = tuple(group for group in groups if not group.builtin)
    return groups


class _Location(NamedTuple):
    module: ModuleType
    attribute: str


def _prefix(group: ComponentPlugin) -> str:
    return "" if group.group.startswith("_") else group.group


def _find_registered(name: str) -> _Location | None:
    claims: list[tuple[ComponentPlugin, _Location]] = []
    broken: ComponentError | None = None
    for group in component_groups():
        prefix = _prefix(group)
        if prefix and not name.startswith(prefix + "."):
            continue
        try:
            found = _find_in(group, name[len(prefix) + 1 :] if prefix else name)
        except ComponentError as e:
            broken = broken or e
            continue
        if found is not None:
            claims.append((group, found))
    if not claims and broken is not None:
        raise broken
    return _preferred_claim(name, claims)


def _find_in(group: ComponentPlugin, relative_name: str) -> _Location | None:
    """Returns the component of a group, importing only the module it is in."""
    *path, attribute = relative_name.split(".")
    if not all(part.isidentifier() for part in (*path, attribute)):
        return None
    module_name = ".".join((group.module, *path))
    module = _import(module_name, f"{module_name} of {group.origin}", must_exist=group.module)
    if module is None:
        return None
    value = getattr(module, attribute, None)
    if not is_candidate(value):
        return None
    if value.__module__ != module.__name__ and rule_violations(value, module, attribute, None):
        return None  # something that the module only imports
    return _Location(module, attribute)


def _preferred_claim(
    name: str, claims: list[tuple[ComponentPlugin, _Location]]
) -> _Location | None:
    """Returns whose component a name means.

    A deliberate override wins; within one distribution, and among groups of the older kind, the
    last one does.

    Raises:
        PluginError: nothing decides
    """
    if not claims:
        return None
    for group, found in claims:
        if group.deliberate:
            return found
    last_of: dict[str, tuple[ComponentPlugin, _Location]] = {}
    for group, found in claims:
        last_of["" if group.replaces_builtins else str(group.origin)] = (group, found)
    by_value = {id(getattr(f.module, f.attribute)): (g, f) for g, f in last_of.values()}
    if len(by_value) == 1:
        return next(iter(by_value.values()))[1]
    groups = [group for group, _ in by_value.values()]
    raise PluginError(
        f"component '{name}' is given by {' and by '.join(str(g.origin) for g in groups)}:"
        " address it as package.module:function, or uninstall one, or block it with"
        f" {ENV_TORCHX_PLUGINS_DISABLED}={groups[0].origin.distribution or 'NAME'}, or mark the"
        " wanted one @hookimpl(tryfirst=True)"
    )


def _find_dotted(name: str) -> _Location | None:
    module_name, dot, function = name.rpartition(".")
    if not dot or not all(part.isidentifier() for part in name.split(".")):
        return None
    module = _import(module_name, module_name)
    if module is None or not hasattr(module, function):
        return None
    return _Location(module, function)


def _import(module_name: str, what: str, must_exist: str = "") -> ModuleType | None:
    """Imports a module; None if there is no such module.

    Args:
        module_name: its dotted name
        what: what messages call it
        must_exist: a part of the name that it is an error to lack

    Raises:
        ComponentError: it cannot be imported
    """
    try:
        return importlib.import_module(module_name)
    except BaseException as e:
        if isinstance(e, ModuleNotFoundError):
            missing = e.name or ""
            if _is_in(module_name, missing) and not (must_exist and _is_in(must_exist, missing)):
                return None
        from torchx_runner.components.files import raise_load_error

        raise_load_error(e, what)
        raise


def _is_in(name: str, ancestor: str) -> bool:
    """Returns True if a dotted name is ``ancestor`` or below it."""
    return f"{name}.".startswith(f"{ancestor}.")


def _not_found(name: str) -> str:
    if name.endswith(".py") or os.sep in name:
        return _no_function_named(name)
    names = list(list_components().components)
    module_name, _, function = name.rpartition(".")
    module = sys.modules.get(module_name)
    what = f"no component '{name}'"
    if module is not None:
        what += f", and module {module_name} has no function '{function}'"
        names += [f"{module_name}.{function}" for function in _function_names(module)]
    return (
        f"{what};{nearest(name, names)} 'torchx builtins' lists the registered ones;"
        " others are given as path/to/file.py:function or package.module:function"
    )


def _no_function_named(path: str) -> str:
    text = f"a component in a file is given as path/to/file.py:function, got '{path}'"
    try:
        with open(path, "rb") as fp:
            tree = ast.parse(fp.read())
    except (OSError, SyntaxError, ValueError):
        return text
    kinds = (ast.FunctionDef, ast.ClassDef)
    names = [n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")]
    return f"{text}; functions in it: {', '.join(names) or 'none'}"


# -- listing


def get_components(validators: Validators = None) -> dict[str, _Component]:
    """Returns all registered components by name; what is broken is left out with a warning."""
    listing = list_components(validators)
    if listing.problems:
        import logging

        for problem in listing.problems:
            logging.getLogger(__name__).warning("%s", problem)
    return listing.components


def list_components(validators: Validators = None) -> ComponentListing:
    """Returns all registered components, and what is broken among them; imports every registered
    module.
    """
    problems: list[ComponentProblem] = []
    claims: dict[str, list[tuple[ComponentPlugin, _Location]]] = {}
    components: dict[tuple[str, int], _Component] = {}
    for group in component_groups():
        finder = ModuleComponentsFinder(group.module, group.group)
        for component, found in finder._walk(validators):
            if not component.validation_errors:
                claims.setdefault(component.name, []).append((group, found))
                components[component.name, id(getattr(*found))] = component
        problems += (p._replace(origin=str(group.origin)) for p in finder.problems)
    listed: dict[str, _Component] = {}
    for name, claimed in claims.items():
        try:
            winner = _preferred_claim(name, claimed)
        except PluginError as e:
            group, found = claimed[0]
            problems.append(ComponentProblem(group.module, str(group.origin), str(e)))
            continue
        if winner is not None:
            listed[name] = components[name, id(getattr(*winner))]
    return ComponentListing(listed, problems)


class ComponentsFinder(ABC):
    """Finds components somewhere."""

    @abstractmethod
    def find(self, validators: Validators) -> list[_Component]:
        """Returns the components there are, invalid ones included."""


class ModuleComponentsFinder(ComponentsFinder):
    """Finds the components of a module and of the modules below it.

    Names are ``{group}.{module below the given one}.{function}``. Sub-modules that cannot be
    imported are noted in ``problems`` and left out; folders without ``__init__.py`` below the given
    module are not searched, and names that begin with ``_`` are no components.

    Args:
        module: the module, or its name
        group: prefix of the names; none if it is empty or begins with ``_``
    """

    def __init__(self, module: str | ModuleType, group: str) -> None:
        self.base_module = module
        self.group = group
        self.problems: list[ComponentProblem] = []

    def find(self, validators: Validators) -> list[_Component]:
        """Returns the components there are, invalid ones included."""
        return [component for component, _ in self._walk(validators)]

    def _walk(self, validators: Validators) -> Iterator[tuple[_Component, _Location]]:
        self.problems = []
        given = self.base_module
        base = self._try_import(given) if isinstance(given, str) else given
        if base is None:
            return
        group = "" if self.group.startswith("_") else self.group
        for module in self._modules(base):
            relative_name = module_relname(module, relative_to=base)
            for attribute in _function_names(module):
                name = ".".join(filter(None, (group, relative_name, attribute)))
                component = make_component(name, module, attribute, validators)
                defined_here = getattr(module, attribute).__module__ == module.__name__
                if defined_here or not component.validation_errors:
                    yield component, _Location(module, attribute)

    def _modules(self, module: ModuleType) -> Iterator[ModuleType]:
        import pkgutil

        yield module
        if not is_package(module) and not is_namespace_package(module):
            return
        for info in sorted(pkgutil.iter_modules(module.__path__), key=lambda info: info.name):
            if info.name == "__main__":
                continue
            below = self._try_import(f"{module.__name__}.{info.name}")
            if below is not None:
                yield from self._modules(below)

    def _try_import(self, name: str) -> ModuleType | None:
        try:
            return _import(name, name, must_exist=name)
        except TorchXError as e:
            self.problems.append(ComponentProblem(name, "", str(e)))
            return None


class CustomComponentsFinder(ComponentsFinder):
    """Finds one component in a file or an importable module.

    Args:
        filepath: path of the file, or dotted name of the module
        function_name: name of the function or class
    """

    def __init__(self, filepath: str, function_name: str) -> None:
        self._filepath = filepath
        self._function_name = function_name

    def find(self, validators: Validators) -> list[_Component]:
        """Returns the component, as the only one.

        Raises:
            ComponentNotFoundException: there is no such file, module or function
            ComponentError: it cannot be loaded
        """
        path, function = self._filepath, self._function_name
        if not path or not function.isidentifier():
            raise ComponentNotFoundException(
                "a component is given as path/to/file.py:function or package.module:function,"
                f" got '{path}:{function}'"
            )
        module = self._load()
        if not hasattr(module, function):
            names = _function_names(module)
            # What it imports may be a component too, but isn't what one looks for here.
            own = [name for name in names if getattr(module, name).__module__ == module.__name__]
            raise ComponentNotFoundException(
                f"{path} has no function '{function}';{nearest(function, names)}"
                f" functions in it: {', '.join(own) or 'none'}"
            )
        return [make_component(f"{path}:{function}", module, function, validators)]

    def _load(self) -> ModuleType:
        from torchx_runner.components.files import load_component_file

        path = self._filepath
        looks_dotted = all(part.isidentifier() for part in path.split("."))
        if looks_dotted and not path.endswith(".py") and not os.path.isfile(path):
            module = _import(path, path)
            if module is None:
                raise ComponentNotFoundException(
                    f"no module '{path}' on Python's path; a file is given as path/to/file.py"
                )
            if is_namespace_package(module):
                raise ComponentNotFoundException(f"{path} is a folder of modules, not a module")
            return module
        return load_component_file(path)


def _function_names(module: ModuleType) -> list[str]:
    """Returns what may be a component among what a module defines."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and is_candidate(value) and _may_return_app(module, value)
    ]


def _may_return_app(module: ModuleType, value: Any) -> bool:
    if isinstance(value, type):
        return value.__module__ == module.__name__ and callable(getattr(value, "build", None))
    return True


# -- modules


def is_package(module: ModuleType) -> bool:
    """Returns True for a folder with an ``__init__.py``."""
    return hasattr(module, "__path__") and getattr(module, "__file__", None) is not None


def is_namespace_package(module: ModuleType) -> bool:
    """Returns True for a folder without ``__init__.py``."""
    return hasattr(module, "__path__") and getattr(module, "__file__", None) is None


def module_relname(module: ModuleType, relative_to: ModuleType) -> str:
    """Returns the name of a module below another one, empty for that one itself.

    Raises:
        ValueError: it is not below
    """
    name, base = module.__name__, relative_to.__name__
    if not _is_in(name, base):
        raise ValueError(f"module {name} is not below {base}")
    return name[len(base) + 1 :]


def get_builtin_source(name: str, validators: Validators = None) -> str:
    """Returns the source of a component with the imports it needs, as a file to start one's own
    from.

    Raises:
        ComponentNotFoundException: there is no such component
    """
    from torchx_runner.components.source import source_of

    return source_of(get_component(name, validators).fn)
