"""Tests of pushes that meet other pushes of the same content, with a double of the connection."""

from __future__ import annotations

import json
from typing import Any

import pytest
from urllib3.response import HTTPResponse

from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry.client import Repository
from torchx_workspace_docker.registry.connection import Connection
from torchx_workspace_docker.registry.transport import RegistryError, Response

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG = {"digest": f"sha256:{'0' * 64}", "size": 2, "mediaType": "application/json"}
DATA = json.dumps({"schemaVersion": 2, "config": CONFIG, "layers": []}).encode()


class ConnectionDouble(Connection):
    """A connection to a registry that refuses the first requests to store a manifest.

    Args:
        refusals: How many requests it answers with 400.
    """

    def __init__(self, refusals: int) -> None:
        super().__init__(Reference("example.com", "a", "1"), sleep=lambda seconds: None)
        self.refusals = refusals
        self.methods: list[str] = []

    def _send(self, method: str, url: str, **options: Any) -> Response:
        self.methods.append(method)
        is_refused = method == "PUT" and self.refusals > 0
        self.refusals -= is_refused
        headers = {"Content-Type": MANIFEST_TYPE}
        return Response(400 if is_refused else 200, headers, url, DATA, HTTPResponse())


def test_manifest_that_another_push_is_writing_is_pushed_again() -> None:
    connection = ConnectionDouble(refusals=1)
    Repository(connection, "a", push=True).put_manifest("1", DATA, MANIFEST_TYPE)
    assert connection.methods == ["PUT", "PUT", "GET"]
    with pytest.raises(RegistryError, match="answers 400"):
        Repository(ConnectionDouble(1000), "a").put_manifest("1", DATA, MANIFEST_TYPE)
