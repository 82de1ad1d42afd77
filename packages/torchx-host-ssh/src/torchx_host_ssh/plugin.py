"""Registers the hosts that OpenSSH reaches."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import HostPlugin, hookimpl


@hookimpl
def torchx_hosts() -> Iterable[HostPlugin]:
    """Yield the hosts of OpenSSH."""
    yield HostPlugin(
        "ssh", "torchx_host_ssh.host:create_host", "Any machine that the command ssh reaches."
    )
