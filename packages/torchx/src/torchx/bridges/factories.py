"""Wrappers that let older factories be called the new way."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from torchx_specs.errors import PluginError
from torchx_specs.plugins.entry_points import EntryPoint

_FACADE_COMPONENTS = "torchx.components"


class OlderFactory:
    """Imports what an entry point names and calls it.

    No dataclass, as every start of the command pays for those.
    """

    def __init__(self, entry_point: EntryPoint) -> None:
        self.entry_point = entry_point

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(self.entry_point)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.entry_point!r})"

    def load(self) -> Any:
        """Returns what the entry point names.

        Raises:
            PluginError: it cannot be imported
        """
        from torchx.util.entrypoints import load_value

        ep = self.entry_point
        try:
            return load_value(ep.value)
        except Exception as e:
            raise PluginError(
                f"{ep.group} '{ep.name}' of {ep.distribution} {ep.version} cannot be loaded from"
                f" '{ep.value}': {type(e).__name__}: {e}"
            ) from e

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.load()(*args, **kwargs)


class OlderScheduler(OlderFactory):
    """A scheduler's factory that expects the environment's ``TORCHX_*`` variables as keywords."""

    def __call__(self, session_name: str, **params: Any) -> Any:
        return forwarding_environment(self.load())(session_name, **params)


def forwarding_environment(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a factory that passes every ``TORCHX_FOO`` on as ``foo=``, below the keywords it is
    given.

    A factory that takes no ``**kwargs`` gets only the keywords it has.
    """

    @functools.wraps(factory)
    def create(session_name: str, **params: Any) -> Any:
        from_env = {
            key[len("TORCHX_") :].lower(): value
            for key, value in os.environ.items()
            if key.startswith("TORCHX_")
        }
        return factory(session_name, **_accepted(factory, {**from_env, **params}))

    return create


def _accepted(factory: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    import inspect

    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return kwargs
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return kwargs
    names = {p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return {key: value for key, value in kwargs.items() if key in names}


def component_module(ep: EntryPoint) -> str:
    """Returns the name of the module whose components an entry point registers.

    It names the module, or a function that returns the module or its name.
    """
    module, colon, _ = ep.value.partition(":")
    if colon:
        found = OlderFactory(ep).load()
        found = found() if callable(found) else found
        module = found if isinstance(found, str) else found.__name__
    if module == _FACADE_COMPONENTS or module.startswith(_FACADE_COMPONENTS + "."):
        module = "torchx_components" + module[len(_FACADE_COMPONENTS) :]
    return module


def read_by_plugin(path: str) -> str:
    """Returns the text of a component file, from the entry point ``torchx.file:get_file_contents``.

    Raises:
        FileNotFoundError: the plugin has no such file, or is gone
    """
    from torchx.util.entrypoints import load

    read = load("torchx.file", "get_file_contents", default=None)
    if read is None:
        raise FileNotFoundError(path)
    return str(read(path))
