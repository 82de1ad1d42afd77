"""Modules that forward attributes to other modules.

A forwarding module forwards every attribute that it does not define itself. Reading, replacing
(``mock.patch``) or deleting a forwarded attribute does the same in the module that defines the
attribute. A name is therefore the same object in both modules, and a patch of the forwarding module
takes effect. A function is replaced in each module of ours that has imported it by its name: the
module that calls it is often another one than in older releases.

The module of a scheduler or builder can be imported without its distribution. Calling
``create_scheduler`` or importing any other name then raises an error that contains the command to
install the distribution.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, NoReturn

_KEPT = ("_sources", "_names", "_missing", "_removed", "_replaced")


class _ForwardingModule(ModuleType):
    """A module that forwards attributes which it does not define itself to other modules."""

    _sources: tuple[str, ...]
    _names: Mapping[str, str]
    _missing: str | None
    _removed: dict[str, tuple[ModuleType, str]]
    _replaced: dict[str, Any]

    def _home(self, name: str) -> tuple[ModuleType, str] | None:
        """Return the module that defines a forwarded attribute, and the attribute's name there.

        Returns:
            None if no module defines an attribute ``name``.
        """
        if name in self._names:
            module, _, attribute = self._names[name].partition(":")
            return importlib.import_module(module), attribute or name
        for source in self._sources:
            try:
                module_found = importlib.import_module(source)
            except ModuleNotFoundError as e:
                if self._missing and e.name and source.startswith(e.name):
                    raise ImportError(
                        f"cannot import name '{name}' from '{self.__name__}': {self._missing}"
                    ) from None
                raise
            if hasattr(module_found, name):
                return module_found, name
        return None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        home = self._home(name)
        if home is not None:
            return getattr(*home)
        if "__path__" in self.__dict__:
            submodule = f"{self.__name__}.{name}"
            try:
                return importlib.import_module(submodule)
            except ModuleNotFoundError as e:
                if e.name != submodule:
                    raise
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__") and name not in self.__dict__ and not self._is_submodule(name):
            # To undo a patch, mock.patch deletes the name, and sets it again if it is then missing.
            home = self._removed.pop(name, None) or self._home(name)
            if home is not None:
                self._replaced.setdefault(name, getattr(*home, None))
                _replace(*home, value)
                return
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
            return
        home = self._home(name)
        if home is None:
            raise AttributeError(name)
        # To undo a patch, pytest's monkeypatch deletes the name if the module's dict lacked it.
        # The original value must then be restored in the other module.
        original = self._replaced.pop(name, None)
        if original is not None:
            _replace(*home, original)
            return
        delattr(*home)
        self._removed[name] = home

    def __dir__(self) -> list[str]:
        names = {n for n in self.__dict__ if n not in _KEPT} | set(self._names)
        for source in self._sources:
            try:
                names.update(n for n in dir(importlib.import_module(source)) if n[:2] != "__")
            except ImportError:
                continue
        return sorted(names)

    def _is_submodule(self, name: str) -> bool:
        # The import system sets each sub-module as an attribute of its package. This assignment
        # must not be forwarded.
        return f"{self.__name__}.{name}" in sys.modules


def _replace(home: ModuleType, name: str, value: Any) -> None:
    """Set an attribute of a module; a function also in our modules that have imported it."""
    before = getattr(home, name, None)
    setattr(home, name, value)
    if FunctionType not in (type(before), type(value)):
        return
    for module in list(sys.modules.values()):
        is_ours = module.__name__.startswith("torchx_")
        if is_ours and before is not None and module.__dict__.get(name) is before:
            setattr(module, name, value)


def forward(
    module_name: str,
    *sources: str,
    names: Mapping[str, str] | None = None,
    missing: str | None = None,
    exported: Sequence[str] | None = None,
) -> None:
    """Make the calling module a forwarding module.

    Args:
        module_name: ``__name__`` of the calling module.
        sources: The modules to search, in this order, for an attribute that is read or set.
        names: Attributes that other modules define: ``{"name": "module"}``, or
            ``{"name": "module:other_name"}``.
        missing: Appended to the ImportError if the distribution of a source is not installed.
        exported: The names for ``from module import *``; by default, the sources' public names.
    """
    module = sys.modules[module_name]
    for name in ("forward", "forward_program", "TYPE_CHECKING"):
        module.__dict__.pop(name, None)
    module.__dict__.update(
        _sources=sources, _names=dict(names or {}), _missing=missing, _removed={}, _replaced={}
    )
    if exported is not None:
        module.__dict__["__all__"] = list(exported)
    module.__class__ = _ForwardingModule


def forward_program(module_name: str, source: str, names: Mapping[str, str] | None = None) -> None:
    """Forward the names of a program's module; with ``python -m``, run the program.

    Args:
        module_name: ``__name__`` of the calling module.
        source: The module of the program.
        names: As for :func:`forward`.
    """
    if module_name != "__main__":
        forward(module_name, source, names=names)
        return
    program = importlib.import_module(source)
    importlib.import_module("torchx_apps.program").run(program.main, program.PROG)


def install_hint(extra: str, distribution: str) -> str:
    """Return a text with the command that installs a distribution, for error messages."""
    return f"it needs {distribution}: pip install 'torchx[{extra}]'"


# Names that the scheduler modules of older TorchX releases import. Other programs import these
# names from the scheduler modules.
_IMPORTED_NAMES = {
    "DirWorkspaceMixin": "torchx_kit.workspace.dir_builder",
    "DockerWorkspaceMixin": "torchx_workspace_docker.docker_workspace",
    "LogIterator": "torchx_sched_local.scheduler",
    "MultiWorkspaceMixin": "torchx._legacy_workspace",
    "PIPE": "subprocess",
    "StructuredNameArgument": "torchx_components.structured_arg",
    "WorkspaceMixin": "torchx_specs.workspace",
    "get_device_mounts": "torchx_kit.devices",
    "none_throws": "torchx.util.types",
    "walk_workspace": "torchx_kit.workspace",
}


def forward_backend(
    module_name: str,
    source: str,
    *,
    extra: str,
    distribution: str,
    legacy: Sequence[str] = (),
    names: Mapping[str, str] | None = None,
) -> None:
    """Forward the calling module to ``source``.

    If ``source`` is not installed, the names of the calling module raise errors.

    Args:
        module_name: ``__name__`` of the calling module.
        source: The module that defines the names.
        extra: The extra of ``torchx`` that installs the distribution; part of the errors.
        distribution: The distribution of ``source``; part of the errors.
        legacy: Modules with further names, which only clients of older TorchX releases use.
        names: Maps further names to the modules that define them.
    """
    module = sys.modules[module_name]
    module.__dict__.pop("forward_backend", None)
    from importlib.util import find_spec

    if find_spec(source.partition(".")[0]) is not None:
        from torchx_specs import schedulers

        forward(
            module_name,
            source,
            *legacy,
            f"{schedulers.__name__}.api",
            "torchx_specs",
            "torchx_kit.names.ids",
            "torchx_kit.logs.lines",
            names={**_IMPORTED_NAMES, **(names or {})},
        )
        return
    refuse_names(module_name, install_hint(extra, distribution))


def refuse_names(module_name: str, hint: str) -> None:
    """Let the names of a module raise an error that contains ``hint``, when they are used."""
    module = sys.modules[module_name]
    module.__dict__.pop("refuse_names", None)

    def create_scheduler(session_name: str, **kwargs: Any) -> NoReturn:
        """Raise a PluginError with the hint."""
        from torchx_specs.errors import PluginError

        raise PluginError(f"{module_name.rpartition('.')[2]}: {hint}")

    def __getattr__(name: str) -> NoReturn:  # noqa: N807 - it becomes the module's
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"cannot import name '{name}' from '{module_name}': {hint}")

    module.__dict__["create_scheduler"] = create_scheduler
    module.__dict__["__getattr__"] = __getattr__
