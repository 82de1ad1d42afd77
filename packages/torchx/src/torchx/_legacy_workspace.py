"""Types in ``torchx.workspace.api`` that only clients of older TorchX releases use."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx_specs.errors import RequestError, nearest
from torchx_specs.options.run_options import CfgVal, runopts
from torchx_specs.workspace import WorkspaceMixin

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef, Role

PackageType = TypeVar("PackageType")
WorkspaceConfigType = TypeVar("WorkspaceConfigType")


def _warn(name: str) -> None:
    warnings.warn(
        f"[Deprecated] {name} will be removed, implement torchx.workspace.WorkspaceMixin",
        FutureWarning,
        stacklevel=4,
    )


@dataclass
class PkgInfo(Generic[PackageType]):
    """The result of a deprecated workspace builder."""

    img: str
    lazy_overrides: dict[str, Any] = field(default_factory=dict)
    metadata: PackageType | None = None

    def __post_init__(self) -> None:
        _warn("PkgInfo")


class WorkspaceBuilder(ABC, Generic[PackageType, WorkspaceConfigType]):
    """Deprecated; implement ``torchx.workspace.WorkspaceMixin`` instead."""

    def __init__(self, cfg: WorkspaceConfigType | Mapping[str, Any] | None = None) -> None:
        _warn("WorkspaceBuilder")
        self.cfg = cfg

    @abstractmethod
    def build_workspace(self, sync: bool = True) -> PkgInfo[PackageType]:
        """Build the workspace; with ``sync=False``, the method may return before the build ends."""


class MultiWorkspaceMixin(WorkspaceMixin[Any]):
    """Supports several kinds of workspaces; the option ``workspace_type`` selects one.

    Schedulers of plugins for older TorchX releases derive from this class.
    """

    @abstractmethod
    def workspace_builders(self) -> Mapping[str, WorkspaceMixin[Any]]:
        """Return the builder of each kind of workspace, by name; the first is the default."""

    def workspace_opts(self) -> runopts:
        """Return the option ``workspace_type`` and the options of all builders."""
        builders = self.workspace_builders()
        opts = runopts()
        opts.add(
            "workspace_type",
            type_=str,
            help=f"how to upload the workspace, one of: {', '.join(builders)}",
            default=next(iter(builders), None),
        )
        for builder in builders.values():
            opts.update(builder.workspace_opts())
        return opts

    def workspace_builder(self, cfg: Mapping[str, CfgVal]) -> tuple[str, WorkspaceMixin[Any]]:
        """Return the name and the builder of the kind that ``cfg`` selects.

        Raises:
            ValueError: No kind has that name.
        """
        builders = self.workspace_builders()
        name = str(cfg.get("workspace_type") or next(iter(builders)))
        if name not in builders:
            raise RequestError(
                f"unknown workspace_type '{name}';{nearest(name, builders)}"
                f" valid types: {', '.join(builders)}"
            )
        return name, builders[name]

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Build the role's workspace with the builder that ``cfg`` selects."""
        _, builder = self.workspace_builder(cfg)
        builder.caching_build_workspace_and_update_role(role, cfg, build_cache)

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> tuple[str, Any]:
        """Return the name of the selected kind, and the images that its builder has to push.

        The images are None if this builder does not push images.
        """
        name, builder = self.workspace_builder(cfg)
        if type(builder).dryrun_push_images is WorkspaceMixin.dryrun_push_images:
            return name, None
        return name, builder.dryrun_push_images(app, cfg)

    def push_images(self, images_to_push: tuple[str, Any]) -> None:
        """Push the images that :meth:`dryrun_push_images` returned."""
        name, images = images_to_push
        if images is not None:
            self.workspace_builders()[name].push_images(images)
