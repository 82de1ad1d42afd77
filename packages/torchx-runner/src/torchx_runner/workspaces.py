"""Which workspace a job takes along, and building it before the job is submitted."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.workspace.api import WorkspaceMixin
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_specs.model.app import Role
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.schedulers import Scheduler

logger = logging.getLogger(__name__)


def set_workspace(roles: list[Role], workspace: Workspace | str | None) -> None:
    """Puts the workspace that was asked for in the place of the first role's own.

    Args:
        roles: changed in place
        workspace: a workspace, its text, or nothing to leave the roles as they are
    """
    if isinstance(workspace, str):
        workspace = Workspace.from_str(workspace)
    if not workspace or not roles:
        return
    if roles[0].workspace and roles[0].workspace != workspace:
        logger.info(
            "role %s: workspace %s is replaced by %s",
            roles[0].name,
            roles[0].workspace,
            workspace,
        )
    roles[0].workspace = workspace


def warn_ignored(roles: Iterable[Role], scheduler: str) -> None:
    """Says that a scheduler takes no workspace along.

    Of the working directory, which the command sends along unless told otherwise, only debug logs
    tell.
    """
    for role in roles:
        if not role.workspace:
            continue
        paths = {os.path.abspath(os.path.expanduser(path)) for path in role.workspace.projects}
        tell = logger.debug if paths == {os.getcwd()} else logger.warning
        tell("scheduler %s takes no workspace; that of role %s is ignored", scheduler, role.name)


def supports_workspaces(scheduler: Scheduler[Any]) -> bool:
    """Returns True if a scheduler takes workspaces along."""
    return isinstance(scheduler, WorkspaceMixin)


def plan_images(scheduler: Any, roles: list[Role], cfg: Mapping[str, CfgVal]) -> None:
    """Has a scheduler settle the workspaces of a dry run.

    Ours write the reference of an image and build nothing; what older plugins mix in builds at
    once.
    """
    mixin: WorkspaceMixin[Any] = scheduler
    mixin.build_workspaces(roles, cfg)


def build_images(
    scheduler: Scheduler[Any], roles: list[Role], cfg: Mapping[str, CfgVal]
) -> dict[tuple[str, Workspace], str]:
    """Builds the workspaces of some roles and returns ``{(image, workspace): built image}``.

    The roles stay as they are. One whose build changed more than its image is left out with a
    warning.
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
            images[before.image, _workspace_of(before)] = after.image
        else:
            logger.warning(
                "role %s: its workspace build changes more than the image; it has to be built"
                " with the job",
                before.name,
            )
    return images


def _workspace_of(role: Role) -> Workspace:
    return role.workspace or Workspace({})


def _changed_only_image(authored: Role, built: Role) -> bool:
    from torchx_specs.workspace.builder import METADATA_KEY

    expected = copy.deepcopy(authored)
    expected.image, expected.workspace = built.image, built.workspace
    if METADATA_KEY in built.metadata:  # which says what was built, and is of no use to the job
        expected.metadata[METADATA_KEY] = built.metadata[METADATA_KEY]
    return expected == built
