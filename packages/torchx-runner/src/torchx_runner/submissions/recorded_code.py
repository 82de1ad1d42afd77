"""Submits an app again with the files that it had: the image or folder that was built for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torchx_kit.workspace.mixin import base_image
from torchx_kit.workspace.working_directory import WorkingDirectory
from torchx_specs.workspace.api import METADATA_KEY
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_runner.submissions.journal import Submission
    from torchx_specs.model.app import AppDef


def use_recorded_code(
    app: AppDef, submission: Submission, scheduler: str
) -> tuple[Workspace | None, str]:
    """Give an app the images or folders that were built for a submission.

    Args:
        app: The app of the submission, perhaps changed. Each of its roles that a build exists for
            gets this image, and needs no workspace.
        submission: The submission.
        scheduler: The scheduler that the app is for. Another one than before cannot use the builds.

    Returns:
        The workspace to submit with, or None, and where the code comes from, for a message.
    """
    used: dict[str, None] = {}
    deleted: dict[str, None] = {}
    for role in app.roles if scheduler == submission.scheduler else ():
        build = submission.builds.get(role.name)
        if build is None or base_image(role) != build["base"]:
            continue
        image = build["image"]
        if "@" not in scheduler and os.path.isabs(image) and not os.path.isdir(image):
            deleted[image] = None
            continue
        role.image, role.workspace = image, None
        role.metadata[METADATA_KEY] = {"digest": "", **build}  # a build with a digest is finished
        used[image] = None
    workspace = None
    if submission.workspace is not None and not (app.roles and app.roles[0].image in used):
        kind = Workspace if submission.workspace_required else WorkingDirectory
        workspace = kind(submission.workspace)
    folders = dict.fromkeys(str(role.workspace) for role in app.roles if role.workspace)
    if workspace:
        folders = {str(workspace): None, **folders}
    texts = []
    if used:
        texts.append(f"as it was submitted, in {', '.join(used)}")
    if folders:
        texts.append(f"the present files of {', '.join(folders)}")
    if deleted:
        texts.append(f"{', '.join(deleted)} was deleted")
    return workspace, "; ".join(texts)
