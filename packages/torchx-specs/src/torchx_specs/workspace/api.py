"""How a scheduler takes local project directories along: the contract."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx_specs.errors import RequestError, nearest
from torchx_specs.options.run_options import CfgVal, runopts

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef, Role
    from torchx_specs.model.dryrun import AppDryRunInfo
    from torchx_specs.workspace.spec import Workspace

T = TypeVar("T")


class WorkspaceMixin(Generic[T]):
    """Mixed into a scheduler, lets it take a role's workspace along.

    Implement :meth:`caching_build_workspace_and_update_role`, and :meth:`dryrun_push_images` with
    :meth:`push_images` if what is built has to be uploaded.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)

    def workspace_opts(self) -> runopts:
        """Returns the options this kind of workspace takes."""
        return runopts()

    def build_workspaces(self, roles: list[Role], cfg: Mapping[str, CfgVal]) -> None:
        """Builds the workspace of each role that has one, and changes the roles to use what was
        built.
        """
        import logging

        cache: dict[object, object] = {}
        for role in roles:
            if not role.workspace:
                continue
            before = role.image
            self.caching_build_workspace_and_update_role(role, cfg, cache)
            if role.image != before:
                logging.getLogger(__name__).info(
                    "role %s: workspace %s patched into image %s, now %s",
                    role.name,
                    role.workspace,
                    before,
                    role.image,
                )

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Builds ``role.workspace`` and changes the role to use it.

        Args:
            role: changed in place
            cfg: the options
            build_cache: lives as long as one submission, for what several roles share
        """
        import tempfile

        workspace = role.workspace
        if not workspace:
            return
        if workspace.is_unmapped_single_project():
            self.build_workspace_and_update_role(role, next(iter(workspace.projects)), cfg)
            return
        with tempfile.TemporaryDirectory(suffix="torchx_workspace_") as merged:
            workspace.merge_into(merged)
            self.build_workspace_and_update_role(role, merged, cfg)

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        """Builds one directory (older hook; implement
        :meth:`caching_build_workspace_and_update_role`).
        """
        raise NotImplementedError(
            f"{type(self).__qualname__} implements neither caching_build_workspace_and_update_role"
            " nor build_workspace_and_update_role"
        )

    def build_pending(
        self,
        job: AppDryRunInfo[Any] | AppDef | Iterable[Role],
        cfg: Mapping[str, CfgVal] | None = None,
    ) -> dict[str, str]:
        """Builds what :meth:`build_workspaces` only planned; unless overridden, nothing is pending.

        Args:
            job: a dry run, its app, or roles
            cfg: the options, those of the dry run if None

        Returns:
            the digest of each image that was pending
        """
        return {}

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> T:
        """Names images for their destination in ``app`` and returns what :meth:`push_images` has to
        upload.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not push images")

    def push_images(self, images_to_push: T) -> None:
        """Uploads what :meth:`dryrun_push_images` returned."""
        raise NotImplementedError(f"{type(self).__qualname__} does not push images")


class MultiWorkspaceMixin(WorkspaceMixin[Any]):
    """Offers several kinds of workspaces, chosen by the option ``workspace_type``; older plugins
    derive from it.
    """

    @abstractmethod
    def workspace_builders(self) -> Mapping[str, WorkspaceMixin[Any]]:
        """Returns the kinds by name; the first is the default."""

    def workspace_opts(self) -> runopts:
        """Returns ``workspace_type`` and the options of every kind."""
        builders = self.workspace_builders()
        opts = runopts()
        opts.add(
            "workspace_type",
            type_=str,
            help=f"how the workspace is taken along, one of: {', '.join(builders)}",
            default=next(iter(builders), None),
        )
        for builder in builders.values():
            opts.update(builder.workspace_opts())
        return opts

    def workspace_builder(self, cfg: Mapping[str, CfgVal]) -> tuple[str, WorkspaceMixin[Any]]:
        """Returns name and builder of the kind that ``cfg`` asks for.

        Raises:
            ValueError: there is no such kind
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
        """Builds by the chosen kind."""
        _, builder = self.workspace_builder(cfg)
        builder.caching_build_workspace_and_update_role(role, cfg, build_cache)

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> tuple[str, Any]:
        """Returns the chosen kind with what it has to push, None if that kind pushes nothing."""
        name, builder = self.workspace_builder(cfg)
        if type(builder).dryrun_push_images is WorkspaceMixin.dryrun_push_images:
            return name, None
        return name, builder.dryrun_push_images(app, cfg)

    def push_images(self, images_to_push: tuple[str, Any]) -> None:
        """Uploads by the kind that :meth:`dryrun_push_images` named."""
        name, images = images_to_push
        if images is not None:
            self.workspace_builders()[name].push_images(images)


def pin_workspace_images(app: AppDef, images: Mapping[tuple[str, Workspace], str]) -> AppDef:
    """Returns a copy of ``app`` in which roles use images built before.

    Args:
        app: the app
        images: ``{(image, workspace): built image}``, as ``Runner.build_workspace`` returns it
    """
    pinned = copy.deepcopy(app)
    for role in pinned.roles:
        if role.workspace and (built := images.get((role.image, role.workspace))):
            role.image = built
            role.workspace = None
    return pinned
