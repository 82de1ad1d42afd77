"""The interface of workspace builders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace.spec import Workspace

#: The output of a builder: a container image, or a folder.
BuilderOutput = Literal["image", "folder"]


@dataclass(frozen=True)
class BuiltReference:
    """A planned build.

    Args:
        image: Name of the image or folder to build, which becomes the role's image. It usually
            contains a digest of all inputs.
        workspace: The workspace to build.
        details: Any data that :meth:`WorkspaceBuilder.build` needs.
    """

    image: str
    workspace: Workspace
    details: Any = None

    def __deepcopy__(self, memo: dict[int, Any]) -> BuiltReference:
        return self  # immutable; without this, every copy of a role would copy the workspace


@dataclass(frozen=True)
class Built:
    """The result of a build or of a push.

    Args:
        digest: The digest of the result (``sha256:...``); empty if there is none.
        ready: Whether the job can access the result, so that no push is needed.
        details: Any data that :meth:`WorkspaceBuilder.push` needs.
    """

    digest: str = ""
    ready: bool = False
    details: Any = None


class WorkspaceBuilder(ABC):
    """Builds workspaces of one type; plugins provide builders by the hook ``torchx_workspaces``.

    A dry run only calls :meth:`plan`. The submission calls :meth:`build`, and :meth:`push` if the
    job runs on another machine::

        import os

        from torchx_kit.workspace import (
            Built,
            BuiltReference,
            WorkspaceBuilder,
            copy_workspace,
            tree_digest,
            workspace_files,
        )
        from torchx_specs import runopts

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
            scheduler sets this attribute.
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

        A dry run calls this method, so it must not contact a service or write a file. Equal inputs
        must give equal image names, and different inputs different ones.

        Args:
            role_image: The image to which the workspace is added.
            workspace: The workspace, which has at least one project.
            cfg: The scheduler's options, which include the builder's.

        Returns:
            The planned build, or None if these options require no build.

        Raises:
            WorkspaceError: The workspace cannot be read, or an option is missing.
        """

    @abstractmethod
    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        """Build the planned image or folder, unless an up-to-date one exists.

        Raises:
            WorkspaceError: The build failed; an earlier result is unchanged.
        """

    def push(self, plan: BuiltReference, built: Built, cfg: Mapping[str, CfgVal]) -> Built:
        """Upload the result of a build to a place that a remote job can access.

        This method is not called if ``built.ready`` is True.

        Raises:
            WorkspaceError: The push failed.
        """
        return built


def add_file_options(opts: runopts) -> None:
    """Add the options ``follow_links`` and ``gitignore``."""
    opts.add(
        "follow_links",
        type_=bool,
        default=False,
        help="upload the files that symbolic links outside of the workspace lead to; otherwise such"
        " links are refused",
    )
    opts.add(
        "gitignore",
        type_=bool,
        default=False,
        help="leave out the files that Git ignores (.gitignore)",
    )


def file_options(cfg: Mapping[str, CfgVal]) -> dict[str, Any]:
    """Return the values of these options, as keyword arguments of :func:`workspace_files`."""
    return {name: bool(cfg.get(name)) for name in ("follow_links", "gitignore")}
