"""The plugin that registers the workspace type ``docker``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import WorkspacePlugin, hookimpl


@hookimpl
def torchx_workspaces() -> Iterable[WorkspacePlugin]:
    """Yield the record of the builder for container images."""
    yield WorkspacePlugin("docker", "torchx_workspace_docker.builder:DockerBuilder")
