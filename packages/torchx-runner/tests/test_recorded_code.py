"""Tests of submitting an app again with the files that it had."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from torchx_runner.submissions.journal import Submission
from torchx_runner.submissions.recorded_code import use_recorded_code
from torchx_specs import AppDef, Role
from torchx_specs.workspace.api import METADATA_KEY
from torchx_specs.workspace.spec import Workspace

BUILD = {"type": "docker", "base": "img", "image": "torchx-workspace:0123456789ab"}


def app(*images: str) -> AppDef:
    roles = [Role(f"r{number}", image) for number, image in enumerate(images)]
    for role in roles[1:]:
        role.workspace = Workspace({"/other": ""})
    return AppDef("a", roles)


def submission(**builds: dict[str, str]) -> Submission:
    now = datetime.now(timezone.utc)
    return Submission("s://t/a", "a", now, workspace={"/proj": ""}, builds=builds)


def test_a_built_image_replaces_the_workspace() -> None:
    again = app("img", "img")
    workspace, origin = use_recorded_code(again, submission(r0=BUILD, r1=BUILD), "s")
    assert workspace is None
    assert origin == "as it was submitted, in torchx-workspace:0123456789ab"
    for role in again.roles:
        assert (role.image, role.workspace) == (BUILD["image"], None)
        assert role.metadata[METADATA_KEY] == {**BUILD, "digest": ""}
    assert use_recorded_code(again, submission(r0=BUILD, r1=BUILD), "s") == (None, origin)


def test_a_role_without_a_build_has_its_present_files() -> None:
    again = app("img", "img")
    workspace, origin = use_recorded_code(again, submission(r1=BUILD), "s")
    assert (workspace, [role.image for role in again.roles]) == (
        Workspace({"/proj": ""}),
        ["img", BUILD["image"]],
    )
    assert origin.endswith("0123456789ab; the present files of /proj")
    workspace, origin = use_recorded_code(app("img", "img"), submission(), "s")
    assert origin == "the present files of /proj, /other"


@pytest.mark.parametrize(("image", "scheduler"), [("other", "s"), ("img", "another")])
def test_a_build_is_for_its_base_image_and_its_scheduler(image: str, scheduler: str) -> None:
    again = app(image)
    workspace, origin = use_recorded_code(again, submission(r0=BUILD), scheduler)
    assert (workspace, origin) == (Workspace({"/proj": ""}), "the present files of /proj")
    assert again.roles[0].image == image


def test_a_deleted_folder_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "workspaces" / "0123456789ab"
    build = {"type": "dir", "base": "img", "image": str(folder)}
    _, origin = use_recorded_code(app("img"), submission(r0=build), "s")
    assert origin == f"the present files of /proj; {folder} was deleted"
    folder.mkdir(parents=True)
    _, origin = use_recorded_code(app("img"), submission(r0=build), "s")
    assert origin == f"as it was submitted, in {folder}"


def test_a_build_takes_the_place_of_an_earlier_one() -> None:
    """As after ``rerun --workspace``: the app has the first image, and the entry the second one."""
    again = app("img")
    use_recorded_code(again, submission(r0=BUILD), "s")
    second = {**BUILD, "image": "torchx-workspace:ba9876543210"}
    assert use_recorded_code(again, submission(r0=second), "s")[0] is None
    assert again.roles[0].image == second["image"]
