"""Fake builders of workspaces: one that works, and subclasses that fail conformance tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from torchx_kit.workspace import (
    Built,
    BuiltReference,
    WorkspaceBuilder,
    copy_workspace,
    tree_digest,
    workspace_files,
)
from torchx_specs import CfgVal, Workspace, runopts


class FakeBuilder(WorkspaceBuilder):
    """Copies a workspace to a folder whose name contains the digest of the workspace."""

    def opts(self) -> runopts:
        opts = runopts()
        opts.add("root", type_=str, required=True, help="where copies go")
        return opts

    def digest(self, workspace: Workspace) -> str:
        return tree_digest(workspace_files(workspace))

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        return BuiltReference(f"{cfg['root']}/{role_image}-{self.digest(workspace)}", workspace)

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        if not os.path.exists(plan.image):
            copy_workspace(plan.workspace, plan.image)
        return Built(details=plan.image)

    def push(self, plan: BuiltReference, built: Built, cfg: Mapping[str, CfgVal]) -> Built:
        return Built(ready=True)


class BuildsWhilePlanning(FakeBuilder):
    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        plan = super().plan(role_image, workspace, cfg)
        if plan is not None:
            self.build(plan, cfg)
        return plan


class RunsAProgram(FakeBuilder):
    def digest(self, workspace: Workspace) -> str:
        try:
            subprocess.run(["true"], check=True)
        except OSError:
            pass
        return super().digest(workspace)


class LooksAtTimes(FakeBuilder):
    def digest(self, workspace: Workspace) -> str:
        stamp = sum(os.lstat(entry.source).st_mtime for entry in workspace_files(workspace))
        return super().digest(workspace) + str(stamp)


class LooksAtNothing(FakeBuilder):
    def digest(self, workspace: Workspace) -> str:
        return "always"


class TakesAll(FakeBuilder):
    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        shutil.rmtree(plan.image, ignore_errors=True)
        shutil.copytree(next(iter(plan.workspace.projects)), plan.image, symlinks=True)
        return Built(ready=True)


class FollowsLinks(FakeBuilder):
    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        shutil.rmtree(plan.image, ignore_errors=True)
        shutil.copytree(next(iter(plan.workspace.projects)), plan.image)
        return Built(ready=True)


class LosesModes(FakeBuilder):
    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        built = super().build(plan, cfg)
        for path in Path(plan.image).rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.chmod(0o644)
        return built
