"""The plan of an image: its base image and the files that are added to it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchx_kit.workspace import FileDigests, WorkspaceFile, tree_digest
from torchx_specs.errors import WorkspaceError


@dataclass(frozen=True)
class Plan:
    """The contents of a planned image; :meth:`DockerBuilder.plan` returns them for the build.

    Args:
        base: The image that the workspace is added to.
        files: The files of the workspace, ordered by path.
        tree: The digest of all files together (:func:`torchx_kit.workspace.tree_digest`).
        has_dockerfile: Whether the workspace has a ``Dockerfile.torchx``.
        digests: Cache of the digests of the single files.
    """

    base: str
    files: tuple[WorkspaceFile, ...]
    tree: str
    has_dockerfile: bool
    digests: FileDigests = field(default_factory=FileDigests, compare=False, repr=False)


def check_unchanged(plan: Plan) -> None:
    """Check that the workspace has not changed since it was planned.

    Raises:
        WorkspaceError: The workspace has changed.
    """
    if tree_digest(plan.files, plan.digests) != plan.tree:
        raise WorkspaceError("the workspace has changed since it was planned; submit again")
