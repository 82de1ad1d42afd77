"""The conformance suite of workspace builders.

::

    class TestNfs(WorkspaceBuilderConformance):
        unsupported = {"links": "Acme's file system has none"}

        @pytest.fixture
        def builder(self):
            return NfsBuilder()

        @pytest.fixture
        def cfg(self, tmp_path):
            return {"nfs_root": str(tmp_path / "nfs")}

        def contents(self, builder, plan, built, cfg):
            return read_folder(plan.image)

``unsupported`` names the features that the builder lacks, with the reasons. The tests of these
features are skipped, and listed at the end of the run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from torchx_kit.workspace import Built, BuiltReference, WorkspaceBuilder
from torchx_specs import CfgVal, Workspace, WorkspaceError, runopts
from torchx_testing.declared import Suite
from torchx_testing.offline import offline

#: The features that ``unsupported`` may name in the suite of workspace builders.
FEATURES = frozenset(
    {
        "addressed_by_input",
        "base_image",
        "links",
        "modes",
        "several_projects",
        "build_again",
        "missing_workspace",
        "fsspec",
    }
)


class Entry(NamedTuple):
    """A file or link in a built workspace.

    Attributes:
        content: The content of the file; empty for a link.
        executable: Whether the file is executable.
        link: The target of the link; None for a file.
    """

    content: bytes
    executable: bool = False
    link: str | None = None


def read_folder(folder: str | Path) -> dict[str, Entry]:
    """Return the files and links in a folder by their relative paths."""
    found = {}
    for path in Path(folder).rglob("*"):
        relative = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[relative] = Entry(b"", link=os.readlink(path))
        elif path.is_file():
            found[relative] = Entry(path.read_bytes(), os.access(path, os.X_OK))
    return found


class WorkspaceBuilderConformance(Suite):
    """The conformance tests of a workspace builder.

    A subclass defines the builder, the options, and how to read the built files.

    Attributes:
        tested_name: Name of the builder in reports; empty means the name of the class.
        unsupported: The :data:`FEATURES` that the builder lacks, with the reasons.
        base_image: The base image of the builds.
    """

    kind: ClassVar[str] = "workspace"
    features: ClassVar[frozenset[str]] = FEATURES
    base_image: ClassVar[str] = "base"

    # A subclass overrides the following fixtures and methods.

    @pytest.fixture
    def builder(self) -> WorkspaceBuilder:
        """Return the builder under test."""
        raise NotImplementedError("a conformance class has to define the fixture `builder`")

    @pytest.fixture
    def cfg(self) -> Mapping[str, CfgVal]:
        """Return the options of each build."""
        return {}

    def contents(
        self, builder: WorkspaceBuilder, plan: BuiltReference, built: Built, cfg: Any
    ) -> Mapping[str, Entry]:
        """Return the files that a job would find in its workspace."""
        raise NotImplementedError("a conformance class has to define the method `contents`")

    # The following methods are helpers of the tests.

    @pytest.fixture
    def options(self, builder: WorkspaceBuilder, cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
        """Return the options of each build, with defaults for missing options."""
        return builder.opts().resolve(cfg)

    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        """Return a folder with files, a link and an ignore file, for building workspaces."""
        root = tmp_path / "project"
        for name in ("main.py", "pkg/deep/mod.py", "data/big.bin", "a b/\u00fc.txt", "x.log"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(name)
        (root / "run.sh").write_text("#!/bin/sh\n")
        (root / "run.sh").chmod(0o755)
        (root / "link").symlink_to("pkg/deep/mod.py")
        (root / ".torchxignore").write_text("*.log\ndata\n")
        return root

    def plan(
        self, builder: WorkspaceBuilder, options: Mapping[str, CfgVal], *projects: Path
    ) -> BuiltReference:
        """Plan a workspace: the first project at the root, the others in folders of their names."""
        first, *others = projects
        mapping = {str(first): "", **{str(p): p.name for p in others}}
        plan = builder.plan(self.base_image, Workspace(mapping), options)
        assert isinstance(plan, BuiltReference), f"no plan with these options: {options}"
        return plan

    # The following tests check options and plans.

    def test_its_options_are_options(self, builder: WorkspaceBuilder) -> None:
        opts = builder.opts()
        assert isinstance(opts, runopts)
        assert all(option.help for _, option in opts)

    def test_a_plan_contacts_nobody_and_leaves_nothing(
        self, builder: WorkspaceBuilder, options: dict[str, CfgVal], project: Path, tmp_path: Path
    ) -> None:
        with offline(tmp_path) as watch:
            plan = self.plan(builder, options, project)
        watch.check()
        assert plan.image != self.base_image
        assert plan.workspace == Workspace({str(project): ""})

    def test_the_same_input_gives_the_same_reference(
        self, builder: WorkspaceBuilder, options: dict[str, CfgVal], project: Path
    ) -> None:
        first = self.plan(builder, options, project).image
        os.utime(project / "main.py", (1, 1))
        (project / "y.log").write_text("left out")
        assert self.plan(builder, options, project).image == first

    def test_another_input_gives_another(
        self, builder: WorkspaceBuilder, options: dict[str, CfgVal], project: Path
    ) -> None:
        self.needs("addressed_by_input")
        images = {self.plan(builder, options, project).image}
        (project / "main.py").write_text("changed")
        images.add(self.plan(builder, options, project).image)
        (project / "main.py").rename(project / "other.py")
        images.add(self.plan(builder, options, project).image)
        assert len(images) == 3
        self.needs("base_image")
        plan = builder.plan("another", Workspace({str(project): ""}), options)
        assert plan is not None
        assert plan.image not in images

    def test_a_workspace_that_does_not_exist(
        self, builder: WorkspaceBuilder, options: dict[str, CfgVal], tmp_path: Path
    ) -> None:
        self.needs("missing_workspace")
        with pytest.raises(WorkspaceError, match="no-such-folder"):
            self.plan(builder, options, tmp_path / "no-such-folder")

    # The following tests build workspaces.

    def built(
        self, builder: WorkspaceBuilder, options: dict[str, CfgVal], plan: BuiltReference
    ) -> dict[str, Entry]:
        """Build and, if necessary, push a workspace; return its files."""
        made = builder.build(plan, options)
        assert isinstance(made, Built)
        if builder.remote and not made.ready:
            made = builder.push(plan, made, options)
        return dict(self.contents(builder, plan, made, options))

    @pytest.fixture
    def files(
        self, builder: WorkspaceBuilder, options: dict[str, CfgVal], project: Path
    ) -> dict[str, Entry]:
        """Build the project, and return the files that the job finds."""
        return self.built(builder, options, self.plan(builder, options, project))

    @pytest.mark.gate
    def test_the_job_finds_the_files(self, files: dict[str, Entry]) -> None:
        for name in ("main.py", "pkg/deep/mod.py", "a b/\u00fc.txt"):
            assert files[name].content == name.encode()

    @pytest.mark.gate
    def test_and_nothing_that_is_left_out(self, files: dict[str, Entry]) -> None:
        assert not {"x.log", "data/big.bin"} & files.keys()

    def test_modes(self, files: dict[str, Entry]) -> None:
        self.needs("modes")
        assert (files["run.sh"].executable, files["main.py"].executable) == (True, False)

    def test_links(self, files: dict[str, Entry]) -> None:
        self.needs("links")
        assert files["link"].link == "pkg/deep/mod.py"

    def test_several_projects(
        self, builder: WorkspaceBuilder, options: dict[str, CfgVal], project: Path, tmp_path: Path
    ) -> None:
        self.needs("several_projects")
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib/code.py").write_text("lib")
        plan = self.plan(builder, options, project, tmp_path / "lib")
        found = self.built(builder, options, plan)
        assert found["lib/code.py"].content == b"lib"
        assert found["main.py"].content == b"main.py"

    def test_a_workspace_on_another_file_system(
        self, builder: WorkspaceBuilder, options: dict[str, CfgVal]
    ) -> None:
        self.needs("fsspec")
        fsspec = pytest.importorskip("fsspec")
        fsspec.filesystem("memory").pipe("/conformance-ws/a/b.txt", b"from memory")
        plan = builder.plan(self.base_image, Workspace({"memory://conformance-ws": ""}), options)
        assert plan is not None
        assert self.built(builder, options, plan)["a/b.txt"].content == b"from memory"

    @pytest.mark.gate
    def test_building_again(
        self,
        builder: WorkspaceBuilder,
        options: dict[str, CfgVal],
        project: Path,
        files: dict[str, Entry],
    ) -> None:
        self.needs("build_again")
        assert self.built(builder, options, self.plan(builder, options, project)) == files
