"""The ``@register.…`` decorators, which mark functions as plugins."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from torchx_specs.model.constants import GiB
from torchx_specs.model.resources import FRACTIONAL_TAG, NAME_TAG, Resource

F = TypeVar("F", bound=Callable[..., Any])

WHOLE = 1.0
HALF = 0.5
QUARTER = 0.25
EIGHTH = 0.125
SIXTEENTH = 0.0625

#: Name of the module attribute to which ``register.named_resource`` adds each named resource.
NAMED_RESOURCES_ATTR = "NAMED_RESOURCES"


class PluginType(str, Enum):
    """Kinds of plugins; the value is the entry-point group."""

    SCHEDULER = "torchx.schedulers"
    NAMED_RESOURCE = "torchx.named_resources"
    TRACKER = "torchx.tracker"
    EVENT_HANDLER = "torchx.event_handlers"

    @property
    def namespace(self) -> str:
        """The namespace package of the plugins of this kind."""
        return "torchx_plugins." + self.value.partition(".")[2]

    @property
    def label(self) -> str:
        """The name of the kind in reports, for example ``scheduler``."""
        return self.name.lower()


class resource_tags:  # noqa: N801 - a documented name
    """Keys of the tags that registered resources have."""

    RESOURCE_NAME = NAME_TAG
    IS_FRACTIONAL = FRACTIONAL_TAG


Fractionals = Callable[..., "dict[float, str]"] | dict[float, str]


class register:  # noqa: N801 - a documented name
    """Marks a function as a plugin.

    ::

        # torchx_plugins/schedulers/acme.py
        from torchx.plugins import register

        @register.scheduler(name="acme")
        def create(session_name: str, **kwargs): ...

    Args:
        type: Kind of the plugin.
        name: Name of the plugin; by default, the function's name.
    """

    def __init__(self, type: PluginType, name: str | None = None) -> None:
        self._type = type
        self._name = name

    def __call__(self, fn: F) -> F:
        _mark(fn, self._type, self._name or fn.__name__)
        return fn

    @classmethod
    def scheduler(cls, name: str | None = None) -> register:
        """Return a decorator for the factory of a scheduler.

        The factory has the signature ``(session_name, **kwargs) -> Scheduler``.
        """
        return cls(PluginType.SCHEDULER, name)

    @classmethod
    def tracker(cls, name: str | None = None) -> register:
        """Return a decorator for the factory of a tracker: ``(config) -> TrackerBase``."""
        return cls(PluginType.TRACKER, name)

    @classmethod
    def event_handler(cls, name: str | None = None) -> register:
        """Return a decorator for the factory of an event handler: ``() -> logging.Handler``."""
        return cls(PluginType.EVENT_HANDLER, name)

    @staticmethod
    def named_resource(
        name: str | None = None,
        aliases: list[str] | None = None,
        fractionals: Fractionals | None = None,
    ) -> Callable[[Callable[..., Resource]], Callable[..., Resource]]:
        """Return a decorator for a function that returns a Resource.

        Args:
            name: Name of the resource; by default, the function's name.
            aliases: Other names of the resource.
            fractionals: Registers fractions of the resource, too, as ``NAME_SUFFIX``. The value is
                ``{fraction: suffix}``, or a function that takes the whole resource and returns such
                a mapping. The decorated function is called with a fraction, or without an argument
                for the whole resource.
        """
        return functools.partial(
            _register_named_resource, name=name, aliases=aliases or [], fractionals=fractionals
        )


def _register_named_resource(
    fn: Callable[..., Resource],
    name: str | None,
    aliases: list[str],
    fractionals: Fractionals | None,
) -> Callable[..., Resource]:
    name = name or fn.__name__
    module = sys.modules[fn.__module__]
    slices = fractionals(fn()) if callable(fractionals) else fractionals or {}
    taken: dict[str, Callable[..., Resource]] = vars(module).setdefault(NAMED_RESOURCES_ATTR, {})

    base = _factory(fn, name, name)
    others = [
        _factory(fn, alias, name, _plugin_base_name=name, _plugin_is_alias=True)
        for alias in aliases
    ]
    for fraction, suffix in slices.items():
        full = f"{name}_{suffix}"
        others.append(_factory(fn, full, full, fraction, _plugin_base_name=name))
    for factory in (base, *others):
        own = factory.__name__
        if own in taken:
            raise ValueError(f"named resource `{own}` is registered twice in {fn.__module__}")
        taken[own] = factory
        if factory is base:
            continue
        if hasattr(module, own):
            raise AttributeError(f"module {module.__name__} already has an attribute `{own}`")
        setattr(module, own, factory)
    return base


def _factory(
    fn: Callable[..., Resource],
    name: str,
    tag: str,
    fraction: float | None = None,
    **marks: object,
) -> Callable[..., Resource]:
    """Return a function that creates the resource, or a fraction of it, and sets its tags."""
    first = () if fraction is None else (fraction,)

    def create(*args: Any, **kwargs: Any) -> Resource:
        resource = fn(*first, *args, **kwargs)
        resource.tags[NAME_TAG] = tag
        resource.tags[FRACTIONAL_TAG] = fraction not in (None, WHOLE)
        return resource

    create.__name__ = name
    create.__qualname__ = fn.__qualname__
    create.__module__ = fn.__module__
    create.__doc__ = fn.__doc__
    _mark(create, PluginType.NAMED_RESOURCE, name)
    vars(create).update(marks)
    return create


def _mark(fn: Callable[..., Any], plugin_type: PluginType, name: str) -> None:
    vars(fn).update(_plugin_type=plugin_type, _plugin_name=name)


def powers_of_two_gpus(resource: Any) -> dict[float, str]:
    """Return the fractions 1/1, 1/2, 1/4 ... of a resource's GPUs; suffixes are numbers of GPUs.

    Raises:
        ValueError: The number of GPUs is not a power of two.
    """
    gpus = int(resource.gpu)
    if gpus <= 0 or gpus & (gpus - 1):
        raise ValueError(
            f"resource.gpu must be a power of two to generate slices (got {resource.gpu})"
        )
    return {left / gpus: str(left) for left in _halves(gpus, 1)}


def halve_mem_down_to(*, minGiB: int) -> Callable[..., dict[float, str]]:  # noqa: N803
    """Return a function that returns the fractions 1/1, 1/2, 1/4 ... of a resource's memory.

    The suffix of each fraction is its memory in GiB. The returned function raises a ValueError if a
    fraction would not be a whole number of GiB.

    Args:
        minGiB: The smallest fraction's memory, in GiB.
    """

    def slices(resource: Any) -> dict[float, str]:
        memory = resource.memMB
        if memory <= 0 or memory % GiB:
            raise ValueError(f"resource.memMB must be a whole number of GiB (got {memory} MB)")
        whole = memory // GiB
        odd = whole & -whole
        if minGiB < whole // odd:
            raise ValueError(
                f"minGiB={minGiB} is below {whole // odd} GiB,"
                f" the smallest whole slice of {whole} GiB"
            )
        return {left / whole: str(left) for left in _halves(whole, minGiB)}

    return slices


def _halves(value: int, least: int) -> list[int]:
    found = []
    while value >= least:
        found.append(value)
        if value % 2:
            break
        value //= 2
    return found
