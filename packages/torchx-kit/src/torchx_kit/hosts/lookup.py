"""Hosts by the names that users give."""

from __future__ import annotations

from functools import cache

from torchx_kit.hosts.api import Host
from torchx_specs.errors import RequestError, nearest
from torchx_specs.plugins.manager import get_manager

#: The kind of a host that is named without a kind.
DEFAULT_KIND = "ssh"


@cache
def find_host(name: str) -> Host:
    """Return the host of a name, such as ``login1``; the same object for each call.

    The hook ``torchx_hosts`` yields the kinds of hosts. ``login1`` is the same as ``ssh:login1``.

    Raises:
        PluginError: The plugin of the host's kind cannot be loaded.
        RequestError: No installed plugin has hosts of this kind, or the name is not valid.
    """
    kind, colon, rest = name.partition(":")
    if not colon:
        kind, rest = DEFAULT_KIND, name
    kinds = get_manager().hosts()
    plugin = kinds.find(kind)
    if plugin is not None:
        host = plugin.load()(rest)
        if not isinstance(host, Host):
            raise RequestError(f"host '{name}': the plugin {plugin.origin} returned no Host")
        return host
    if install := kinds.install_hint(kind):
        raise RequestError(f"host '{name}' needs a plugin that is not installed{install}")
    raise RequestError(f"host '{name}' is of an unknown kind;{nearest(kind, kinds)}")
