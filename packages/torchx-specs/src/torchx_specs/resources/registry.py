"""Registry of named resources: generic resources, and resources of plugins and of the program."""

from __future__ import annotations

import fnmatch
import importlib
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import ConfigError, NamedResourceNotFoundError, nearest
from torchx_specs.model.resources import NAME_TAG, NULL_RESOURCE, Resource
from torchx_specs.settings import ENV_TORCHX_CUSTOM_NAMED_RESOURCES

if TYPE_CHECKING:
    from torchx_specs.plugins.catalog import Catalog
    from torchx_specs.plugins.records import ResourcePlugin

ResourceFactory = Callable[[], Resource]

#: What a resource has if a program does not say it; the memory is in MB.
DEFAULT_CPU = 2
DEFAULT_GPU = 0
DEFAULT_MEM_MB = 1024

#: With these names, :func:`lookup` returns NULL_RESOURCE.
_NULL_NAMES = ("NULL", "MISSING")


class _Factories(MutableMapping[str, ResourceFactory]):
    """The factories of named resources by name; a program may add or replace factories.

    The sources, from the lowest to the highest priority: the generic resources, the module in
    ``$TORCHX_CUSTOM_NAMED_RESOURCES``, plugins, and factories that this process added.
    """

    def __init__(self) -> None:
        self._written: dict[str, ResourceFactory] = {}

    def __getitem__(self, name: str) -> ResourceFactory:
        if name in self._written:
            return self._written[name]
        plugin = _plugins().find(name)
        return plugin.load() if plugin else self._lower_priority()[name]

    def __setitem__(self, name: str, factory: ResourceFactory) -> None:
        self._written[name] = factory

    def __delitem__(self, name: str) -> None:
        del self._written[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._lower_priority(), *_plugins().names(), *self._written]))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return name in self._written or name in _plugins().names() or name in self._lower_priority()

    def clear(self) -> None:
        """Remove the factories that this process added."""
        self._written.clear()

    @staticmethod
    def _lower_priority() -> Mapping[str, ResourceFactory]:
        from torchx_specs.named_resources_generic import NAMED_RESOURCES

        custom = os.environ.get(ENV_TORCHX_CUSTOM_NAMED_RESOURCES)
        return {**NAMED_RESOURCES, **_custom(custom)} if custom else NAMED_RESOURCES


def _plugins() -> Catalog[ResourcePlugin]:
    from torchx_specs.plugins.manager import get_manager

    return get_manager().named_resources()


def _custom(module: str) -> Mapping[str, ResourceFactory]:
    try:
        found: Mapping[str, ResourceFactory] = importlib.import_module(module).NAMED_RESOURCES
    except (ImportError, AttributeError) as e:
        raise ConfigError(
            f"{ENV_TORCHX_CUSTOM_NAMED_RESOURCES}={module}: {e};"
            " it must be a module with a mapping NAMED_RESOURCES"
        ) from None
    return found


_named_resource_factories: MutableMapping[str, ResourceFactory] = _Factories()


def lookup(name: str) -> Resource:
    """Return a new resource by its name; letter case is ignored unless a name matches exactly.

    Raises:
        NamedResourceNotFoundError: No resource has that name, or several names differ from it only
            in letter case.
    """
    if name in _NULL_NAMES:
        return NULL_RESOURCE
    registered = name if name in _named_resource_factories else _fold(name)
    made = _named_resource_factories[registered]()
    if NAME_TAG in made.tags:
        return made
    tagged = Resource.copy(made)
    tagged.tags[NAME_TAG] = registered
    return tagged


def _fold(name: str) -> str:
    folded = _spelled_like(name)
    if len(folded) == 1:
        return folded[0]
    if folded:
        raise NamedResourceNotFoundError(
            f"named resource `{name}` is ambiguous, it could be any of: {', '.join(sorted(folded))}"
        )
    known = list(_named_resource_factories)
    names = sorted(known[:20]) + ["… (all: torchx plugins -o json)"] * (len(known) > 20)
    hint = nearest(name, known).replace("'", "`").replace(" did", " Did")
    for pattern, install in _plugins().installable.items():
        if fnmatch.fnmatchcase(name, pattern) and not fnmatch.filter(known, pattern):
            hint = f" Run: {install}"
    raise NamedResourceNotFoundError(
        f"No named resource found for `{name}`." + (hint or f" Known names: {', '.join(names)}")
    )


def _spelled_like(name: str) -> list[str]:
    return [known for known in _named_resource_factories if known.lower() == name.lower()]


class NamedResources(Mapping[str, Resource]):
    """The named resources as a read-only mapping; each lookup returns a new resource."""

    def __getitem__(self, name: str) -> Resource:
        _warn_deprecated("named_resources[...]")
        return lookup(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in _NULL_NAMES or bool(_spelled_like(name)))

    def __iter__(self) -> Iterator[str]:
        yield from _named_resource_factories
        yield from _NULL_NAMES

    def __len__(self) -> int:
        return len(_named_resource_factories) + len(_NULL_NAMES)

    def items(self) -> Any:
        """Return all names with new resources."""
        return {name: lookup(name) for name in self}.items()

    def values(self) -> Any:
        """Return new resources of all names."""
        return {name: lookup(name) for name in self}.values()

    def reset(self) -> None:
        """Remove the resources that this process added, and reload the plugins (for tests)."""
        from torchx_specs.plugins.manager import set_manager

        _named_resource_factories.clear()
        set_manager(None)

    def __repr__(self) -> str:
        return f"NamedResources({', '.join(self)})"


named_resources = NamedResources()


def get_named_resources(res: str) -> Resource:
    """Return the resource registered as ``res``; prefer :func:`torchx_specs.resource`.

    Raises:
        NamedResourceNotFoundError: No resource has that name (also a KeyError).
    """
    _warn_deprecated("get_named_resources()")
    return lookup(res)


def _warn_deprecated(name: str) -> None:
    text = f"{name} is deprecated, use torchx_specs.resource(h=...)"
    warnings.warn(text, FutureWarning, stacklevel=3)


def resource(
    cpu: int | None = None,
    gpu: int | None = None,
    memMB: int | None = None,  # noqa: N803 - the documented name
    h: str | None = None,
) -> Resource:
    """Return a resource with the given values, or a named resource.

    >>> resource(cpu=4, gpu=1, memMB=8192)
    Resource(cpu=4, gpu=1, memMB=8192, capabilities={}, devices={}, tags={})

    Args:
        cpu: CPU cores; None or 0 means 2.
        gpu: GPUs (default: 0).
        memMB: Memory in MB; None or 0 means 1024.
        h: Name of a registered resource (``gpu.small``), in any letter case. It wins over the
            other arguments.

    Raises:
        NamedResourceNotFoundError: No resource has the name ``h`` (also a KeyError).
    """
    if h:
        return lookup(h)
    return Resource(cpu=cpu or DEFAULT_CPU, gpu=gpu or DEFAULT_GPU, memMB=memMB or DEFAULT_MEM_MB)
