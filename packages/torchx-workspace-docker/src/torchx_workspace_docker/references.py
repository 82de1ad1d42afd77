"""Parse the names of images."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address

_DEFAULT_REGISTRY = "docker.io"
_DEFAULT_HOST = "registry-1.docker.io"
#: A host name, or an IPv6 address in brackets; a port may follow.
_HOST = re.compile(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::[0-9]+)?")


@dataclass(frozen=True)
class Reference:
    """The name of an image in a registry.

    Args:
        registry: The registry's name, such as ``docker.io``; :attr:`host` is its address.
        repository: The repository in the registry.
        version: A tag or a digest.
    """

    registry: str
    repository: str
    version: str

    @classmethod
    def parse(cls, image: str) -> Reference:
        """Parse a name as ``docker pull`` does.

        >>> Reference.parse("ubuntu")
        Reference(registry='docker.io', repository='library/ubuntu', version='latest')
        >>> Reference.parse("127.0.0.1:5000/a/b:1").repository
        'a/b'
        """
        name, at, digest = image.partition("@")
        head, slash, rest = name.partition("/")
        if slash and ("." in head or ":" in head or head == "localhost"):
            registry, path = head, rest
        else:
            registry, path = _DEFAULT_REGISTRY, name
        if registry in ("index.docker.io", _DEFAULT_HOST):
            registry = _DEFAULT_REGISTRY
        folder, _, last = path.rpartition("/")
        last, _, tag = last.partition(":")
        repository = f"{folder}/{last}" if folder else last
        if registry == _DEFAULT_REGISTRY and "/" not in repository:
            repository = f"library/{repository}"
        return cls(registry, repository, digest if at else (tag or "latest"))

    @property
    def host(self) -> str:
        """The host of the registry, with the port if the registry's name has one."""
        return _DEFAULT_HOST if self.registry == _DEFAULT_REGISTRY else self.registry

    def __str__(self) -> str:
        separator = "@" if ":" in self.version else ":"
        return f"{self.registry}/{self.repository}{separator}{self.version}"


def is_loopback(host: str) -> bool:
    """Return True if a host, with or without a port, is ``localhost`` or a loopback address."""
    parts = _HOST.fullmatch(host)
    if parts is None:
        return False
    name = parts[1] or parts[2]
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:  # The host is a name, not an address.
        return False


def short_name(image: str) -> str:
    """Return the name of an image for messages, with at most 12 characters of the tag.

    >>> short_name("example.com/jobs:" + 64 * "0")
    'example.com/jobs:000000000000'
    """
    head, colon, tag = image.rpartition(":")
    return f"{head}{colon}{tag[:12]}"
