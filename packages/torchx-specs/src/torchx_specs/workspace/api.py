"""The interface of schedulers that upload local project directories into jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from torchx_specs.options.run_options import CfgVal, runopts

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef, AppDryRunInfo, Role

T = TypeVar("T")

#: The key in a role's metadata under which a planned build is stored.
METADATA_KEY = "torchx/workspace"


class WorkspaceMixin(Generic[T]):
    """Mixin for a scheduler that uploads a role's workspace into its job.

    Implement :meth:`caching_build_workspace_and_update_role`. If the build result has to be
    uploaded, also implement :meth:`dryrun_push_images` and :meth:`push_images`.
    """

    def workspace_opts(self) -> runopts:
        """Return the options for building workspaces."""
        return runopts()

    def build_workspaces(self, roles: list[Role], cfg: Mapping[str, CfgVal]) -> None:
        """Build the workspace of each role, and change the role to use the result."""
        import logging

        logger = logging.getLogger(__name__)
        cache: dict[object, object] = {}
        for role in roles:
            if not role.workspace:
                continue
            before = role.image
            self.caching_build_workspace_and_update_role(role, cfg, cache)
            if role.image != before:
                to = f" added to {before}:" if before else " is"
                message = "role %s: the workspace %s%s %s"
                logger.info(message, role.name, role.workspace, to, role.image)

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        """Build ``role.workspace`` and change the role to use the result.

        Args:
            role: The role, changed in place.
            cfg: The scheduler options.
            build_cache: Results of this submission's builds. The method may read and add results,
                so that roles with the same workspace share one build.
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
        """Build one directory, and change the role to use the result.

        Kept for schedulers written for older releases. New schedulers implement
        :meth:`caching_build_workspace_and_update_role` instead.
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
        """Build the workspaces that :meth:`build_workspaces` only planned.

        The default builds nothing, for schedulers that build immediately.

        Args:
            job: The result of a dry run, or an app, or roles.
            cfg: The scheduler options (default: those of the dry run).

        Returns:
            The digests of the images that were built, by image name.
        """
        return {}

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> T:
        """Change the images in ``app`` to their names in the registry; return the images to push.

        The return value is passed to :meth:`push_images`.
        """
        raise NotImplementedError(f"{type(self).__qualname__} does not push images")

    def push_images(self, images_to_push: T) -> None:
        """Upload the images that :meth:`dryrun_push_images` returned."""
        raise NotImplementedError(f"{type(self).__qualname__} does not push images")
