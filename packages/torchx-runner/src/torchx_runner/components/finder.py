"""Finds components: functions (or classes with ``build()``) that return an AppDef.

The name of a component is one of

- ``utils.echo``: a component in a module that a plugin registers
  (:func:`torchx_specs.hookspecs.torchx_components`); only this module is imported
- ``path/to/file.py:trainer``: a component in a file
- ``package.module:trainer`` or ``package.module.trainer``: a component in an importable module
"""

from __future__ import annotations

import importlib
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from torchx_kit.plugin import COMPONENTS
from torchx_runner.components.groups import component_groups, name_prefix
from torchx_runner.components.rules import Component as _Component
from torchx_runner.components.rules import (
    Validators,
    is_candidate,
    make_component,
    rule_violations,
)
from torchx_specs.components.signature import signature_of
from torchx_specs.errors import (
    ComponentError,
    ComponentNotFoundException,
    ComponentValidationException,
    PluginError,
    TorchXError,
    nearest,
)
from torchx_specs.plugins.records import ComponentPlugin
from torchx_specs.settings import ENV_TORCHX_PLUGINS_DISABLED


class ComponentProblem(NamedTuple):
    """A problem with a registered module or with one of its components.

    Attributes:
        module: Name of the module.
        origin: The distribution that registers the module.
        message: Description of the problem.
    """

    module: str
    origin: str
    message: str

    def __str__(self) -> str:
        return f"components of {self.module} ({self.origin}): {self.message}"


class ComponentListing(NamedTuple):
    """All registered components.

    Attributes:
        components: The valid components, by name.
        problems: Modules that cannot be imported, invalid components, and names that several
            distributions register.
    """

    components: dict[str, _Component]
    problems: list[ComponentProblem]


# -- looking up one component


def get_component(name: str, validators: Validators = None) -> _Component:
    """Find a component by name, and check the rules for components.

    Args:
        name: The name, in one of the forms at the top of this module.
        validators: Rules to check instead of the default ones.

    Raises:
        ComponentNotFoundException: No component has the name.
        ComponentValidationException: The component breaks the rules for components.
        ComponentError: The module of the component cannot be imported.
        PluginError: Several distributions register a component of that name.
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


def is_registered(name: str) -> bool:
    """Return whether a plugin registers a component of this name.

    Raises:
        ComponentError: A module that may define the component cannot be imported.
        PluginError: Several distributions register a component of that name.
    """
    return _find_registered(name) is not None


class _Location(NamedTuple):
    module: ModuleType
    attribute: str


def _find_registered(name: str) -> _Location | None:
    claims: list[tuple[ComponentPlugin, _Location]] = []
    broken: ComponentError | None = None
    for group in component_groups():
        prefix = name_prefix(group.group)
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
    return _preferred_claim(name, claims) if claims else None


def _find_in(group: ComponentPlugin, relative_name: str) -> _Location | None:
    """Return the component of this name in a group, or None; import only the component's module."""
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
        return None  # a function that the module imports for its own use
    return _Location(module, attribute)


def _preferred_claim(name: str, claims: list[tuple[ComponentPlugin, _Location]]) -> _Location:
    """Return the component that a name refers to, of the groups that claim it.

    A deliberate override (``@hookimpl(tryfirst=True)``) wins. Otherwise, only the last claim of
    each distribution counts. All groups that replace the built-in components count as one
    distribution.

    Raises:
        PluginError: Several distributions claim the name for different components.
    """
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
        f"component '{name}' is registered by {' and by '.join(str(g.origin) for g in groups)}:"
        " name it as package.module:function, or uninstall one, or block it with"
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
    """Import and return a module, or return None if it does not exist.

    Args:
        module_name: The dotted name.
        what: The name of the module, for error messages.
        must_exist: A module that must exist, such as a parent package of ``module_name``: if it is
            missing, raise an error instead of returning None.

    Raises:
        ComponentError: The module cannot be imported.
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
    """Return True if a dotted name is ``ancestor`` or below it."""
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
    distribution = COMPONENTS.get(module_name)
    if distribution and not any(known.startswith(f"{module_name}.") for known in names):
        return f"{what}: {distribution} is not installed; run: pip install {distribution}"
    return (
        f"{what};{nearest(name, names)} 'torchx builtins' lists the registered ones;"
        " give any other as path/to/file.py:function or package.module:function"
    )


def _no_function_named(path: str) -> str:
    text = f"give a component in a file as path/to/file.py:function, got '{path}'"
    if not os.path.isfile(path):  # reading a device or a named pipe may never end
        return text
    from torchx_specs.components.source import read_source

    try:
        names = [name for name in read_source(path).definitions if not name.startswith("_")]
    except (OSError, SyntaxError, ValueError):
        return text
    return f"{text}; functions in it: {', '.join(names) or 'none'}"


# -- listing components


def get_components(validators: Validators = None) -> dict[str, _Component]:
    """Return all valid registered components by name; problems are logged as warnings."""
    listing = list_components(validators)
    if listing.problems:
        import logging

        for problem in listing.problems:
            logging.getLogger(__name__).warning("%s", problem)
    return listing.components


def list_components(validators: Validators = None) -> ComponentListing:
    """Import every registered module, and return the components and problems."""
    problems: list[ComponentProblem] = []
    claims: dict[str, list[tuple[ComponentPlugin, _Location]]] = {}
    components: dict[tuple[str, int], _Component] = {}
    for group in component_groups():
        finder = ModuleComponentsFinder(group.module, group.group)
        for component, found in finder._walk(validators):
            if not component.validation_errors:
                claims.setdefault(component.name, []).append((group, found))
                components[component.name, id(getattr(*found))] = component
            elif callable(component.fn) and signature_of(component.fn).returns_app:
                message = f"{component.name} is left out: {'; '.join(component.validation_errors)}"
                problems.append(ComponentProblem(found.module.__name__, str(group.origin), message))
            # Functions that do not declare to return an AppDef are helpers, and no problem.
        problems += (p._replace(origin=str(group.origin)) for p in finder.problems)
    listed: dict[str, _Component] = {}
    for name, claimed in claims.items():
        try:
            winner = _preferred_claim(name, claimed)
        except PluginError as e:
            group, found = claimed[0]
            problems.append(ComponentProblem(group.module, str(group.origin), str(e)))
        else:
            listed[name] = components[name, id(getattr(*winner))]
    return ComponentListing(listed, problems)


class ComponentsFinder(ABC):
    """Base class of finders of components."""

    @abstractmethod
    def find(self, validators: Validators) -> list[_Component]:
        """Return all components, including invalid ones."""


class ModuleComponentsFinder(ComponentsFinder):
    """Finds the components of a module and of the modules below it.

    A component's name is ``{group}.{relative name of the module}.{function}``. A module that cannot
    be imported is left out, and added to ``problems``. Modules named ``__main__``, and folders
    without ``__init__.py`` below the module, are not searched. Functions whose names begin with
    ``_`` are not components.

    Args:
        module: The module, or its name.
        group: The prefix of the names; no prefix if empty or beginning with ``_``.
    """

    def __init__(self, module: str | ModuleType, group: str) -> None:
        self.base_module = module
        self.group = group
        self.problems: list[ComponentProblem] = []

    def find(self, validators: Validators) -> list[_Component]:
        """Return all components, and invalid ones unless a module has only imported them."""
        return [component for component, _ in self._walk(validators)]

    def _walk(self, validators: Validators) -> Iterator[tuple[_Component, _Location]]:
        self.problems = []
        given = self.base_module
        base = self._try_import(given) if isinstance(given, str) else given
        if base is None:
            return
        group = name_prefix(self.group)
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
            submodule = self._try_import(f"{module.__name__}.{info.name}")
            if submodule is not None:
                yield from self._modules(submodule)

    def _try_import(self, name: str) -> ModuleType | None:
        try:
            return _import(name, name, must_exist=name)
        except TorchXError as e:
            self.problems.append(ComponentProblem(name, "", str(e)))
            return None


class CustomComponentsFinder(ComponentsFinder):
    """Finds one component in a file or an importable module.

    Args:
        filepath: The path of the file, or the dotted name of the module.
        function_name: The name of the function or class.
    """

    def __init__(self, filepath: str, function_name: str) -> None:
        self._filepath = filepath
        self._function_name = function_name

    def find(self, validators: Validators) -> list[_Component]:
        """Return a list that contains only this component, even if it breaks rules.

        Raises:
            ComponentNotFoundException: The file, module or function does not exist.
            ComponentError: The file or module cannot be loaded.
        """
        path, function = self._filepath, self._function_name
        if not path or not function.isidentifier():
            raise ComponentNotFoundException(
                "give a component as path/to/file.py:function or package.module:function,"
                f" got '{path}:{function}'"
            )
        module = self._load()
        if not hasattr(module, function):
            names = _function_names(module)
            # An imported function may be a component too, but the error does not list it.
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
                    f"no module '{path}' on sys.path; give a file as path/to/file.py"
                )
            if is_namespace_package(module):
                raise ComponentNotFoundException(
                    f"{path} is a folder without __init__.py, not a module"
                )
            return module
        return load_component_file(path)


def _function_names(module: ModuleType) -> list[str]:
    """Return the names of a module's attributes that may be components."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and is_candidate(value) and _may_return_app(module, value)
    ]


def _may_return_app(module: ModuleType, value: Any) -> bool:
    if isinstance(value, type):
        return value.__module__ == module.__name__ and callable(getattr(value, "build", None))
    return True


# -- names and kinds of modules


def is_package(module: ModuleType) -> bool:
    """Return True if the module is a package with ``__init__.py``."""
    return hasattr(module, "__path__") and getattr(module, "__file__", None) is not None


def is_namespace_package(module: ModuleType) -> bool:
    """Return True if the module is a package without ``__init__.py``."""
    return hasattr(module, "__path__") and getattr(module, "__file__", None) is None


def module_relname(module: ModuleType, relative_to: ModuleType) -> str:
    """Return the name of a module relative to a package; empty for the package itself.

    Raises:
        ValueError: The module is not in the package.
    """
    name, base = module.__name__, relative_to.__name__
    if not _is_in(name, base):
        raise ValueError(f"module {name} is not in package {base}")
    return name[len(base) + 1 :]


def get_builtin_source(name: str, validators: Validators = None) -> str:
    """Return the source of a component, preceded by its module's imports, as a template.

    Raises:
        ComponentError: No component has the name, the component breaks the rules for components, or
            its source is not available.
    """
    import ast
    import inspect

    target: Any = inspect.unwrap(get_component(name, validators).fn)
    try:
        body = inspect.getsource(target)
        file_lines, _ = inspect.findsource(target)
    except (OSError, TypeError) as e:
        raise ComponentError(f"the source of {target.__name__} is not available: {e}") from None
    text = "".join(file_lines)
    imports = []
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(ast.get_source_segment(text, node) or "")
        elif getattr(node, "name", None) == target.__name__:
            break
    return "\n".join([*imports, "", "", body]) if imports else body
