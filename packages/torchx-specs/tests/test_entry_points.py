"""Tests of entry points, read from the folders of installed distributions."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from torchx_specs.plugins.entry_points import EntryPoint, entry_points, normalize, parse


def install(
    site: Path, name: str, text: str, version: str = "1.0", suffix: str = "dist-info"
) -> None:
    folder = site / f"{name}-{version}.{suffix}"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(text)


def found(*site: Path, groups: tuple[str, ...] = ("torchx",)) -> list[EntryPoint]:
    return entry_points(*groups, path=[str(s) for s in site])


class TestParse:
    def test_groups_names_and_values(self) -> None:
        text = (
            "# comment\n; another\n\n"
            "[console_scripts]\nx = y:z\n"
            "[torchx]\n acme = acme.plugin \nother=m:obj.attr [extra, two]\n"
            "[torchx.schedulers]\nslurm = a:b\nnot a line\n= x\ny =\nz = [extra]\n"
            "[ torchx.components ]\n_0 = my.module\n"
        )
        assert parse(text, "Acme_X", "2") == [
            EntryPoint("torchx", "acme", "acme.plugin", "Acme_X", "2"),
            EntryPoint("torchx", "other", "m:obj.attr", "Acme_X", "2"),
            EntryPoint("torchx.schedulers", "slurm", "a:b", "Acme_X", "2"),
            EntryPoint("torchx.components", "_0", "my.module", "Acme_X", "2"),
        ]

    @pytest.mark.parametrize("text", ["", "[console_scripts]\na = b:c\n", "torchx = x\n"])
    def test_nothing_of_ours(self, text: str) -> None:
        assert parse(text, "x", "1") == []


class TestScan:
    def test_order_is_by_distribution_group_and_name(self, tmp_path: Path) -> None:
        install(tmp_path / "b", "zeta", "[torchx]\nb = zb\na = za\n")
        install(tmp_path / "a", "Alpha_X", "[torchx]\nz = az\n")
        expected = ["az", "za", "zb"]
        assert [ep.value for ep in found(tmp_path / "a", tmp_path / "b")] == expected
        assert [ep.value for ep in found(tmp_path / "b", tmp_path / "a")] == expected

    def test_order_does_not_depend_on_the_file_system(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("c", "a", "b"):
            install(tmp_path, name, f"[torchx]\nx = {name}\n")
        forward = found(tmp_path)
        real = os.listdir
        monkeypatch.setattr(os, "listdir", lambda p: sorted(real(p), reverse=True))
        os.utime(tmp_path, (1, 1))  # another modification time invalidates the cache
        assert found(tmp_path) == forward
        assert [ep.value for ep in forward] == ["a", "b", "c"]

    def test_of_two_copies_the_first_on_the_path_counts(self, tmp_path: Path) -> None:
        install(tmp_path / "new", "Acme.X", "[torchx]\na = new\n", "2.0")
        install(tmp_path / "old", "acme_x", "[torchx]\na = old\n", "1.0")
        assert [(e.value, e.version) for e in found(tmp_path / "new", tmp_path / "old")] == [
            ("new", "2.0")
        ]

    def test_a_copy_without_entry_points_hides_the_other(self, tmp_path: Path) -> None:
        (tmp_path / "new/acme-2.dist-info").mkdir(parents=True)
        install(tmp_path / "old", "acme", "[torchx]\na = old\n")
        assert found(tmp_path / "new", tmp_path / "old") == []

    def test_egg_info(self, tmp_path: Path) -> None:
        install(tmp_path, "acme", "[torchx]\na = b\n", "1.0-py3.11", "egg-info")
        (ep,) = found(tmp_path)
        assert (ep.distribution, ep.version) == ("acme", "1.0")

    def test_what_pip_left_behind(self, tmp_path: Path) -> None:
        install(tmp_path, "~cme", "[torchx]\na = gone\n")
        assert found(tmp_path) == []

    def test_other_groups(self, tmp_path: Path) -> None:
        install(tmp_path, "acme", "[torchx]\na = b\n[torchx.schedulers]\nc = d:e\n[xyz]\nf = g\n")
        assert [ep.group for ep in found(tmp_path, groups=())] == ["torchx", "torchx.schedulers"]
        assert [ep.name for ep in found(tmp_path, groups=("torchx.schedulers",))] == ["c"]

    def test_bytes_that_are_no_utf8(self, tmp_path: Path) -> None:
        install(tmp_path, "acme", "")
        path = tmp_path / "acme-1.0.dist-info/entry_points.txt"
        path.write_bytes(b"[torchx]\n\xff = x\ngood = y\n")
        assert "good" in [ep.name for ep in found(tmp_path)]

    def test_paths_that_are_no_folders(self, tmp_path: Path) -> None:
        (tmp_path / "file.txt").write_text("not a zip")
        install(tmp_path / "ok", "acme", "[torchx]\na = b\n")
        bad = [tmp_path / "missing", tmp_path / "file.txt"]
        assert [ep.name for ep in found(*bad, tmp_path / "ok")] == ["a"]

    def test_a_zip_file(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "acme.zip", "w") as archive:
            folder = "acme_zip-3.0.dist-info"
            archive.writestr(
                f"{folder}/METADATA", "Metadata-Version: 2.1\nName: acme-zip\nVersion: 3.0\n"
            )
            archive.writestr(f"{folder}/entry_points.txt", "[torchx]\na = zipped\n")
        (ep,) = found(tmp_path / "acme.zip")
        assert ep == EntryPoint("torchx", "a", "zipped", "acme-zip", "3.0")

    def test_what_is_installed_later_is_found(self, tmp_path: Path) -> None:
        install(tmp_path, "one", "[torchx]\na = 1\n")
        assert len(found(tmp_path)) == 1
        os.utime(tmp_path, (1, 1))
        install(tmp_path, "two", "[torchx]\na = 2\n")
        assert len(found(tmp_path)) == 2

    def test_the_working_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        install(tmp_path, "acme", "[torchx]\na = b\n")
        monkeypatch.chdir(tmp_path)
        assert [ep.name for ep in entry_points("torchx", path=[""])] == ["a"]


@pytest.mark.parametrize("name", ["torchx-specs", "Torchx_Specs", "torchx.specs", "TORCHX--_specs"])
def test_normalize(name: str) -> None:
    assert normalize(name) == "torchx-specs"
