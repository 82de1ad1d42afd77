"""A client of the docker library that contacts the engine with its first request, not before."""

from __future__ import annotations

from functools import cached_property

from docker.api.client import APIClient
from docker.client import DockerClient, from_env
from docker.constants import DEFAULT_DOCKER_API_VERSION, MINIMUM_DOCKER_API_VERSION
from docker.errors import InvalidVersion
from docker.utils import version_lt


class LazyApiClient(APIClient):  # type: ignore[misc]  # the library has no types
    """A client that requests the engine's API version at the first use, not when it is created."""

    @cached_property
    def _version(self) -> str:
        version = None
        if self.base_url.startswith("http+docker://local"):
            # The library would query /version, which is slow: the engine runs two programs for it.
            ping = self.get(f"{self.base_url}/_ping", timeout=self.timeout)
            version = ping.headers.get("Api-Version")
        version = str(version or self._retrieve_server_version())
        if version_lt(version, MINIMUM_DOCKER_API_VERSION):
            raise InvalidVersion(
                f"the engine's API version {version} is lower than"
                f" {MINIMUM_DOCKER_API_VERSION}, the lowest that the docker library supports"
            )
        return version


def lazy_client(timeout: float) -> DockerClient:
    """Return a client of the engine that the environment names, without contacting the engine.

    Args:
        timeout: How long one response of the engine may take, in seconds.
    """
    # A fixed version keeps the library from requesting the engine's version at once.
    client = from_env(version=DEFAULT_DOCKER_API_VERSION, timeout=timeout)
    if type(client.api) is APIClient:
        del client.api._version
        client.api.__class__ = LazyApiClient
    return client
