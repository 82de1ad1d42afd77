"""Assigns workspaces to roles, and plans, builds and pins the images of these roles."""

from __future__ import annotations

import copy
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torchx_kit.workspace.working_directory import is_working_directory
from torchx_specs.model.app import AppDef, ProgramFile, Role
from torchx_specs.schedulers.api import Scheduler
from torchx_specs.workspace.api import METADATA_KEY, WorkspaceMixin
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal

logger = logging.getLogger(__name__)


def set_workspace(roles: list[Role], workspace: Workspace | str | None) -> None:
    """Replace the workspace of the first role.

    Args:
        roles: The roles of an app; changed in place.
        workspace: The workspace, or its text. None and an empty string change nothing.
    """
    if isinstance(workspace, str):
        workspace = Workspace.from_str(workspace)
    if not workspace or not roles:
        return
    if roles[0].workspace and roles[0].workspace != workspace:
        logger.info(
            "role %s: workspace %s is replaced with %s",
            roles[0].name,
            roles[0].workspace,
            workspace,
        )
    roles[0].workspace = workspace


def plan_images(scheduler: object, roles: list[Role], cfg: Mapping[str, CfgVal], name: str) -> None:
    """Plan the images of roles for a dry run.

    The schedulers of this project set ``role.image`` to the name of the image that a later step
    builds. The workspace mixins of plugins for older TorchX releases build the image at once.

    A scheduler that does not support workspaces is a warning. If the workspace is the working
    directory, the default workspace of ``torchx run``, the level is DEBUG.

    Args:
        scheduler: The scheduler.
        roles: The roles; changed in place.
        cfg: The options.
        name: Name of the scheduler, for the warning.
    """
    if isinstance(scheduler, WorkspaceMixin):
        scheduler.build_workspaces(roles, cfg)
        return
    if isinstance(scheduler, Scheduler) and scheduler.copies_workspaces():
        return
    for role in roles:
        if not role.workspace:
            continue
        log = logger.debug if is_working_directory(role.workspace) else logger.warning
        log(
            "scheduler %s does not support workspaces; the workspace of role %s is ignored",
            name,
            role.name,
        )


def build_images(
    scheduler: Scheduler[Any], roles: list[Role], cfg: Mapping[str, CfgVal]
) -> dict[tuple[str, Workspace], str]:
    """Build the workspaces of roles, and return ``{(image, workspace): built image}``.

    The roles are not changed. A role is left out with a warning if its build changes more than its
    image. The result is empty if the scheduler does not support workspaces.
    """
    authored = [role for role in roles if role.workspace]
    if not authored or not isinstance(scheduler, WorkspaceMixin):
        return {}
    options: Any = scheduler._resolve_cfg(cfg)
    built = copy.deepcopy(authored)
    scheduler.build_workspaces(built, options)
    scheduler.build_pending(built, options)
    images: dict[tuple[str, Workspace], str] = {}
    for before, after in zip(authored, built, strict=True):
        if _changed_only_image(before, after):
            images[before.image, before.workspace or Workspace({})] = after.image
        else:
            logger.warning(
                "role %s: its workspace build changes more than the image; build it with the job",
                before.name,
            )
    return images


def _changed_only_image(authored: Role, built: Role) -> bool:
    expected = copy.deepcopy(authored)
    expected.image, expected.workspace = built.image, built.workspace
    if METADATA_KEY in built.metadata:  # a build may also change its own record
        expected.metadata[METADATA_KEY] = built.metadata[METADATA_KEY]
    return expected == built


def pin_workspace_images(app: AppDef, images: Mapping[tuple[str, Workspace], str]) -> AppDef:
    """Return a copy of ``app`` with roles that use previously built images.

    Args:
        app: The app.
        images: ``{(image, workspace): built image}``, as ``Runner.build_workspace`` returns it.
    """
    pinned = copy.deepcopy(app)
    for role in pinned.roles:
        if role.workspace and (built := images.get((role.image, role.workspace))):
            role.image = built
            role.workspace = None
            ProgramFile("script", "").record(role)  # the program is in the image
    return pinned
