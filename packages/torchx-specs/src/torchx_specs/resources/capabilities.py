"""Typed keys for :attr:`Resource.capabilities <torchx_specs.Resource>`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, overload

from torchx_specs.model.resources import Resource

V = TypeVar("V")


@dataclass(frozen=True)
class CapabilityKey(Generic[V]):
    """A key of capabilities, with a namespace, a name and the type of its values.

    >>> key = CapabilityKey("example.com", "nic_count", int)
    >>> res = Resource(cpu=1, gpu=0, memMB=512)
    >>> key.set(res, 4)
    >>> key.get(res)
    4
    """

    namespace: str
    name: str
    type: type[V]

    @property
    def key(self) -> str:
        """The key in ``capabilities``: ``<namespace>.<name>``."""
        return f"{self.namespace}.{self.name}"

    def set(self, resource: Resource, value: V) -> None:
        """Store ``value`` in the capabilities of a resource.

        Raises:
            TypeError: ``value`` does not have the type of the key.
        """
        self._check(value)
        resource.capabilities[self.key] = value

    @overload
    def get(self, resource: Resource) -> V | None: ...
    @overload
    def get(self, resource: Resource, default: V) -> V: ...
    def get(self, resource: Resource, default: V | None = None) -> V | None:
        """Return the capability of a resource, or ``default``.

        Raises:
            TypeError: The stored value does not have the type of the key.
        """
        if self.key not in resource.capabilities:
            return default
        value: V = resource.capabilities[self.key]
        self._check(value)
        return value

    def _check(self, value: object) -> None:
        # bool is a subclass of int, but `True` is not a number of network cards
        if not isinstance(value, self.type) or (
            isinstance(value, bool) and self.type is not bool and self.type is not object
        ):
            raise TypeError(
                f"capability `{self.key}` expected `{self.type.__name__}`,"
                f" got `{type(value).__name__}`: {value!r}"
            )
