"""The contract of workspace builders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace.spec import Workspace

#: The result of a builder: an image for containers, or a folder.
BuilderOutput = Literal["image", "folder"]

#: Key of a role's metadata for the origin of its image, and whether the image has been built.
METADATA_KEY = "torchx/workspace"


@dataclass(frozen=True)
class BuiltReference:
    """The result of a build, as planned in a dry run.

    Args:
        image: The new image of the role; its name depends on all inputs of the build.
        workspace: The workspace to build.
        details: Data of the builder for the build.
    """

    image: str
    workspace: Workspace
    details: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> BuiltReference:
        return self  # frozen, and roles that carry it are copied often


@dataclass(frozen=True)
class Built:
    """The result of a build or a push.

    Args:
        digest: Immutable digest of the result (``sha256:...``), or an empty string.
        ready: Whether the job can use the result; otherwise it has to be pushed.
        details: Data of the builder for the push.
    """

    digest: str = ""
    ready: bool = False
    details: Any = None


class WorkspaceBuilder(ABC):
    """Builds one kind of workspace; plugins register it with the hook ``torchx_workspaces``.

    A dry run calls only :meth:`plan`. A submission builds the plan, and pushes the result if the
    job runs on other machines::

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
                opts.add("nfs_root", type_=str, default="/mnt/jobs", help="where copies go")
                return opts

            def plan(self, role_image, workspace, cfg) -> BuiltReference:
                digest = tree_digest(workspace_files(workspace))
                return BuiltReference(f"{cfg['nfs_root']}/{digest}", workspace)

            def build(self, plan, cfg) -> Built:
                if not os.path.exists(plan.image):
                    copy_workspace(plan.workspace, plan.image)
                return Built(ready=True)

    Attributes:
        output: The kind of result. A scheduler offers the builders whose results it can run.
        remote: Set by the scheduler; False if the job runs on this machine and needs no push.
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
        """Return the planned result, without network access or side effects.

        Equal inputs have equal results; different inputs have different results.

        Args:
            role_image: The image to which the workspace is added.
            workspace: The workspace; it is not empty.
            cfg: The scheduler options, including those of this builder.

        Returns:
            The plan, or None if the role does not change with these options.

        Raises:
            WorkspaceError: The workspace cannot be read, or an option is missing.
        """

    @abstractmethod
    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Build the planned result unless an up-to-date one exists.

        Raises:
            WorkspaceError: The build failed; an earlier result is unchanged.
        """

    def push(self, plan: BuiltReference, built: Built, cfg: Mapping[str, CfgVal]) -> Built:
        """Push the result to where remote jobs find it; not called if ``built.ready``.

        Raises:
            WorkspaceError: The push failed.
        """
        return built
