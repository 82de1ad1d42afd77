"""Tests of pushes that meet other pushes of the same content, with a double of the connection."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry.client import Registry
from torchx_workspace_docker.registry.connection import Connection, RegistryError

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG = {"digest": f"sha256:{'0' * 64}", "size": 2, "mediaType": "application/json"}
DATA = json.dumps({"schemaVersion": 2, "config": CONFIG, "layers": []}).encode()


class ConnectionDouble(Connection):
    """A connection to a registry that refuses the first requests to store a manifest.

    Args:
        refusals: How many requests it answers with 400.
    """

    def __init__(self, refusals: int) -> None:
        super().__init__(Reference("127.0.0.1:1", "a", "1"), sleep=lambda seconds: None)
        self.refusals = refusals
        self.methods: list[str] = []

    def request(self, method: str, url: str, *_: Any, **options: Any) -> Any:
        self.methods.append(method)
        status = 200
        if method == "PUT" and self.refusals > 0:
            self.refusals -= 1
            status = 400
        assert status in options["expected"]
        return SimpleNamespace(status=status, headers={"Content-Type": MANIFEST_TYPE}, data=DATA)

    def refused(self, method: str, url: str, response: Any) -> RegistryError:
        return RegistryError(f"{method} {url}: {response.status}")


def test_manifest_that_another_push_is_writing_is_pushed_again() -> None:
    connection = ConnectionDouble(refusals=1)
    Registry(connection, "a").put_manifest("a", "1", DATA, MANIFEST_TYPE)
    assert connection.methods == ["PUT", "PUT", "GET"]
    with pytest.raises(RegistryError, match="400"):
        Registry(ConnectionDouble(1000), "a").put_manifest("a", "1", DATA, MANIFEST_TYPE)
