"""Tests of adding missing keys to a configuration file, and of replacing the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_cli.commands import config
from torchx_runner.config.files import parse_config
from torchx_specs.errors import ConfigError

ADDITION = "[slurm]\npartition = None\ntime = 1\n\n[local_cwd]\nlog_dir = None\n\n"


def test_merge_adds_missing_keys_and_keeps_every_byte() -> None:
    existing = "# mine\n[slurm]\n  # why\npartition: gpu ; both\n\n\n[cli:run]\nwait=true"
    merged, added = config.merge(existing, ADDITION, "file")
    assert merged == (
        "# mine\n[slurm]\n  # why\npartition: gpu ; both\ntime = 1\n\n\n[cli:run]\nwait=true\n"
        "\n[local_cwd]\nlog_dir = None\n"
    )
    assert added == ["[slurm] time", "[local_cwd]"]
    again, more = config.merge(merged, ADDITION, "file")
    assert again == merged
    assert more == []


def test_merge_keeps_line_ends_and_accepts_camel_case() -> None:
    merged, added = config.merge("[local_cwd]\r\nlogDir = /x\r\n[slurm]\r\n", ADDITION, "file")
    assert merged == "[local_cwd]\r\nlogDir = /x\r\n[slurm]\r\npartition = None\r\ntime = 1\r\n"
    assert added == ["[slurm] partition", "[slurm] time"]


def test_merge_keeps_a_byte_order_mark() -> None:
    merged, added = config.merge("\ufeff[slurm]\npartition = gpu\n", ADDITION, "file")
    assert merged == "\ufeff[slurm]\npartition = gpu\ntime = 1\n\n[local_cwd]\nlog_dir = None\n"
    assert added == ["[slurm] time", "[local_cwd]"]
    assert config.merge(merged, ADDITION, "file") == (merged, [])


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_merge_ends_a_last_line_without_newline(newline: str) -> None:
    existing = f"[local_cwd]{newline}log_dir = /x{newline}[slurm]{newline}partition = gpu"
    for addition, added in (
        ("[slurm]\ntime = 1\n", ["time = 1"]),
        ("[lsf]\nq = 1\n", ["", "[lsf]", "q = 1"]),
        ("[slurm]\ntime = 1\n[lsf]\nq = 1\n", ["time = 1", "", "[lsf]", "q = 1"]),
    ):
        merged, _ = config.merge(existing, addition, "file")
        assert merged == newline.join([existing, *added, ""])


def test_merge_skips_indented_values() -> None:
    existing = "[slurm]\n  partition = gpu\n    [local_cwd]\n\n# why\n[local_cwd]\n  # none\n"
    merged, _ = config.merge(existing, ADDITION, "file")
    assert merged == (
        "[slurm]\n  partition = gpu\n    [local_cwd]\ntime = 1\n\n# why\n"
        "[local_cwd]\nlog_dir = None\n  # none\n"
    )
    sections = parse_config(merged, "file").sections
    assert sections["slurm"] == {"partition": "gpu\n[local_cwd]", "time": "1"}
    assert sections["local_cwd"] == {"log_dir": "None"}


def test_merge_refuses_an_indented_header() -> None:
    with pytest.raises(ConfigError, match=r"file: remove the spaces before \[slurm\]"):
        config.merge("  [slurm]\n  partition = gpu\n", ADDITION, "file")


def test_merge_into_an_empty_file() -> None:
    merged, _ = config.merge("", ADDITION, "file")
    assert merged == "[slurm]\npartition = None\ntime = 1\n\n[local_cwd]\nlog_dir = None\n"


def test_merge_rejects_a_malformed_file() -> None:
    with pytest.raises(ConfigError, match="file:1"):
        config.merge("no section\n", ADDITION, "file")


def test_replace_file_follows_links_and_keeps_the_mode(tmp_path: Path) -> None:
    target = tmp_path / "real"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    config.replace_file(str(link), "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_replace_file_reports_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        config.replace_file(str(tmp_path / "no" / "such" / "file"), "x")
    assert list(tmp_path.iterdir()) == []
