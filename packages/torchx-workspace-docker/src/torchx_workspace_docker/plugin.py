"""The plugin that registers the workspace type ``docker``, and the pruner of its images."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import PrunerPlugin, WorkspacePlugin, hookimpl


@hookimpl
def torchx_workspaces() -> Iterable[WorkspacePlugin]:
    """Yield the record of the builder for container images."""
    yield WorkspacePlugin("docker", "torchx_workspace_docker.builder:DockerBuilder")


@hookimpl
def torchx_pruners() -> Iterable[PrunerPlugin]:
    """Yield the pruner of images in a Docker Engine."""
    yield PrunerPlugin(
        "docker-images",
        "torchx_workspace_docker.engine.pruning:unused_images",
        summary="Images with workspaces in the Docker Engine",
    )
