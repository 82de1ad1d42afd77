"""The contract of workspace builders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace.spec import Workspace

#: What a builder makes of a workspace: an image for containers, or a folder.
BuilderOutput = Literal["image", "folder"]

#: Under this key a role's metadata says what its image was made from, and whether that was done.
METADATA_KEY = "torchx/workspace"


@dataclass(frozen=True)
class BuiltReference:
    """What a workspace will be once it is built; known without building it.

    Args:
        image: what the role's image becomes, addressed by everything that goes into it
        workspace: what it is built from
        details: whatever the builder found out and wants to keep for building
    """

    image: str
    workspace: Workspace
    details: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> BuiltReference:
        return self  # frozen, and roles that carry it are copied often


@dataclass(frozen=True)
class Built:
    """What building or pushing came to.

    Args:
        digest: identifies the result for good (``sha256:...``), empty where there is no such thing
        ready: it is where the job finds it; nothing is left to push
        details: whatever the builder wants to keep for pushing
    """

    digest: str = ""
    ready: bool = False
    details: Any = None


class WorkspaceBuilder(ABC):
    """Builds workspaces of one kind; plugins give them by the hook ``torchx_workspaces``.

    A dry run only calls :meth:`plan`. What was planned is built, and pushed if the job runs
    elsewhere, when it is submitted::

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
        output: what it makes; a scheduler offers the builders whose output it can run
        remote: set by the scheduler: False if the job runs on this machine, so that nothing need be
            pushed
    """

    output: ClassVar[BuilderOutput] = "image"
    remote: bool = True

    def opts(self) -> runopts:
        """Returns the options this builder takes."""
        return runopts()

    @abstractmethod
    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        """Says what the workspace will be; contacts nobody, changes nothing, leaves nothing.

        The same input gives the same reference, another input another one.

        Args:
            role_image: the image the workspace is added to
            workspace: never empty
            cfg: the scheduler's options, this builder's among them

        Returns:
            None if with these options the role stays as it is

        Raises:
            WorkspaceError: the workspace cannot be read, or an option is missing
        """

    @abstractmethod
    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Builds what was planned, unless it is there already and still right.

        Raises:
            WorkspaceError: it failed; what there was before is as it was
        """

    def push(self, plan: BuiltReference, built: Built, cfg: Mapping[str, CfgVal]) -> Built:
        """Takes what was built to where a remote job finds it; not called if ``built.ready``.

        Raises:
            WorkspaceError: it failed
        """
        return built
