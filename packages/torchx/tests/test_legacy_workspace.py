"""Tests of MultiWorkspaceMixin, from which older plugins derive their schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from torchx.workspace import MultiWorkspaceMixin, WorkspaceMixin
from torchx_specs import AppDef, CfgVal, Role, Workspace, runopts


class BuildingMixin(WorkspaceMixin[dict[str, str]]):
    """Builds images and does not push them."""

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        role.image = f"{role.image}-built"


class PushingMixin(BuildingMixin):
    """Builds and pushes images."""

    def __init__(self) -> None:
        super().__init__()
        self.pushed: list[dict[str, str]] = []

    def workspace_opts(self) -> runopts:
        opts = runopts()
        opts.add("repo", type_=str, help="")
        return opts

    def dryrun_push_images(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> dict[str, str]:
        return {role.image: f"repo/{role.image}" for role in app.roles}

    def push_images(self, images_to_push: dict[str, str]) -> None:
        self.pushed.append(images_to_push)


class Multi(MultiWorkspaceMixin):
    def __init__(self) -> None:
        super().__init__()
        self.building, self.pushing = BuildingMixin(), PushingMixin()

    def workspace_builders(self) -> Mapping[str, WorkspaceMixin[Any]]:
        return {"building": self.building, "pushing": self.pushing}


def test_options_are_those_of_every_kind() -> None:
    opts = dict(Multi().workspace_opts())
    assert list(opts) == ["workspace_type", "repo"]
    assert opts["workspace_type"].default == "building"


def test_the_option_selects_the_kind() -> None:
    multi = Multi()
    assert multi.workspace_builder({}) == ("building", multi.building)
    assert multi.workspace_builder({"workspace_type": "pushing"}) == ("pushing", multi.pushing)
    with pytest.raises(ValueError, match=r"unknown workspace_type 'pushin'; did you mean"):
        multi.workspace_builder({"workspace_type": "pushin"})


def test_the_selected_kind_builds_and_pushes() -> None:
    multi = Multi()
    role = Role("a", "i", workspace=Workspace({"/ws": ""}))
    multi.build_workspaces([role], {"workspace_type": "pushing"})
    assert role.image == "i-built"
    images = multi.dryrun_push_images(AppDef("a", roles=[role]), {"workspace_type": "pushing"})
    assert images == ("pushing", {"i-built": "repo/i-built"})
    multi.push_images(images)
    assert multi.pushing.pushed == [{"i-built": "repo/i-built"}]


def test_a_kind_that_pushes_nothing_is_not_called() -> None:
    multi = Multi()
    images = multi.dryrun_push_images(AppDef("a"), {})
    assert images == ("building", None)
    multi.push_images(images)
    assert multi.pushing.pushed == []
