"""The contract of workspace builders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace.spec import Workspace

#: The output of a builder: an image for containers, or a folder.
BuilderOutput = Literal["image", "folder"]

#: The key in a role's metadata of the build that was planned for its image.
METADATA_KEY = "torchx/workspace"


@dataclass(frozen=True)
class BuiltReference:
    """The reference of a planned build.

    Args:
        image: The role's new image, whose name depends on everything that goes into it.
        workspace: The workspace to build.
        details: Anything that the builder wants to keep for the build.
    """

    image: str
    workspace: Workspace
    details: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> BuiltReference:
        return self  # It is frozen, and the roles that hold it are copied often.


@dataclass(frozen=True)
class Built:
    """The result of a build or of a push.

    Args:
        digest: The digest of the result (``sha256:...``), empty if it has none.
        ready: Whether the job can reach the result, so that it need not be pushed.
        details: Anything that the builder wants to keep for the push.
    """

    digest: str = ""
    ready: bool = False
    details: Any = None


class WorkspaceBuilder(ABC):
    """Builds workspaces of one type; plugins provide builders by the hook ``torchx_workspaces``.

    A dry run only calls :meth:`plan`. The submission builds what was planned, and pushes it if the
    job runs on another machine::

        import os

        from torchx_specs import runopts
        from torchx_specs.workspace import Built, BuiltReference, WorkspaceBuilder
        from torchx_kit.workspace import copy_workspace
        from torchx_kit.workspace import tree_digest
        from torchx_kit.workspace import workspace_files

        class NfsBuilder(WorkspaceBuilder):
            output = "folder"

            def opts(self) -> runopts:
                opts = runopts()
                opts.add("nfs_root", type_=str, default="/mnt/jobs", help="folder for copies")
                return opts

            def plan(self, role_image, workspace, cfg) -> BuiltReference:
                digest = tree_digest(workspace_files(workspace))
                return BuiltReference(f"{cfg['nfs_root']}/{digest}", workspace)

            def build(self, plan, cfg) -> Built:
                if not os.path.exists(plan.image):
                    copy_workspace(plan.workspace, plan.image)
                return Built(ready=True)

    Attributes:
        output: The type of the output; a scheduler offers the builders whose output it can run.
        remote: Whether the job runs on another machine, so that the output must be pushed. The
            scheduler sets it.
    """

    output: ClassVar[BuilderOutput] = "image"
    remote: bool = True

    def opts(self) -> runopts:
        """Return the options of this builder."""
        return runopts()

    @abstractmethod
    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        """Plan the build of a workspace.

        A dry run calls this, so it contacts no service and writes no file. The same input gives the
        same reference, and another input gives another one.

        Args:
            role_image: The image to which the workspace is added.
            workspace: The workspace, which has at least one project.
            cfg: The scheduler's options, which include the builder's.

        Returns:
            The reference, or None if the role stays unchanged with these options.

        Raises:
            WorkspaceError: The workspace cannot be read, or an option is missing.
        """

    @abstractmethod
    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Build what was planned, unless an up-to-date result exists.

        Raises:
            WorkspaceError: The build failed; an earlier result is unchanged.
        """

    def push(self, plan: BuiltReference, built: Built, cfg: Mapping[str, CfgVal]) -> Built:
        """Push the result of a build to where a remote job can reach it.

        This is not called if the result is ready.

        Raises:
            WorkspaceError: The push failed.
        """
        return built
