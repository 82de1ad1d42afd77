"""Tests of workspaces as data."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchx_specs import Workspace
from torchx_specs.errors import WorkspaceError


class TestFromStr:
    @pytest.mark.parametrize("nothing", ["", None])
    def test_nothing(self, nothing: str | None) -> None:
        assert Workspace.from_str(nothing) == Workspace({})

    @pytest.mark.parametrize(
        ("text", "path"),
        [
            ("/ws", "/ws"),
            (" /ws ", "/ws"),
            ("~/ws", "~/ws"),
            (".", "."),
            ("1", "1"),
            ("true", "true"),
            ("a:b", "a:b"),
            ("memory://torchx-workspace/", "memory://torchx-workspace/"),
            ("s3://bucket/a b", "s3://bucket/a b"),
            ("C:\\ws", "C:\\ws"),
        ],
    )
    def test_a_path_needs_no_yaml(
        self, text: str, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)
        assert Workspace.from_str(text) == Workspace({path: ""})

    @pytest.mark.parametrize(
        ("text", "projects"),
        [
            ("/a: x\n/b: y/z", {"/a": "x", "/b": "y/z"}),
            ("/a: ", {"/a": ""}),
            ("/a:", {"/a": ""}),
            ("/a: x", {"/a": "x"}),
            ("{/a: x, /b: }", {"/a": "x", "/b": ""}),
            ("{1: 2}", {"1": "2"}),
            ("'/quoted: path'", {"/quoted: path": ""}),
        ],
    )
    def test_a_mapping(self, text: str, projects: dict[str, str]) -> None:
        pytest.importorskip("yaml")
        assert Workspace.from_str(text) == Workspace(projects)

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("[a]", "must be a path or a mapping of paths to sub-directories, not a list"),
            ("{a", "not valid YAML"),
            ("- a\n- b", "not a list"),
            ("/a: !!python/object/apply:os.getcwd []", "not valid YAML"),
            ("/a: [x]", "the sub-directory of '/a' must be text, not a list"),
        ],
    )
    def test_errors(self, text: str, said: str) -> None:
        pytest.importorskip("yaml")
        with pytest.raises(WorkspaceError, match=said):
            Workspace.from_str(text)

    def test_a_mapping_without_yaml(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "yaml", None)
        with pytest.raises(WorkspaceError, match=r"pip install 'torchx-specs\[yaml\]'"):
            Workspace.from_str("/a: x")


class TestWorkspace:
    def test_truth_equality_and_hash(self) -> None:
        assert not Workspace({})
        assert Workspace({"/a": ""})
        assert len({Workspace({"/a": "", "/b": "x"}), Workspace({"/b": "x", "/a": ""})}) == 1
        assert Workspace({"/a": ""}) != Workspace({"/a": "x"})
        assert Workspace({"/a": ""}) != {"/a": ""}

    def test_single(self) -> None:
        assert Workspace({"/a": ""}).is_unmapped_single_project()
        assert not Workspace({"/a": "x"}).is_unmapped_single_project()
        assert not Workspace({"/a": "", "/b": ""}).is_unmapped_single_project()
        assert not Workspace({}).is_unmapped_single_project()

    def test_text(self) -> None:
        assert str(Workspace({"/a": ""})) == "/a"
        assert str(Workspace({"/a": "x", "/b": ""})) == "/a:x;/b"
        assert repr(Workspace({"/a": "x"})) == "Workspace(projects={'/a': 'x'})"

    def test_merge(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / "p/sub").mkdir(parents=True)
        (tmp_path / "p/sub/f").write_text("1")
        (tmp_path / "p/run.sh").write_text("2")
        (tmp_path / "p/run.sh").chmod(0o755)
        (tmp_path / "file").write_text("3")
        for name in (".git", "sub/.venv", "sub/__pycache__", ".torchx-acme", "node_modules"):
            (tmp_path / "p" / name).mkdir()
            (tmp_path / "p" / name / "left").write_text("out")
        out = tmp_path / "out"
        workspace = {"~/p": "", f"{tmp_path}/p": "again", "~/file": "x/y", f"{tmp_path}/file": ""}
        Workspace(workspace).merge_into(out)
        assert sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()) == [
            "again/run.sh",
            "again/sub/f",
            "file",
            "run.sh",
            "sub/f",
            "x/y",
        ]
        assert (out / "run.sh").stat().st_mode & 0o111

    def test_merge_of_what_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceError, match="project does not exist: /no/such"):
            Workspace({"/no/such": ""}).merge_into(tmp_path)
