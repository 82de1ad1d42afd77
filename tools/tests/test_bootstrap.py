"""When an environment is taken as it is."""

from __future__ import annotations

from pathlib import Path

import bootstrap


def _stamped(environment: Path, level: str, files: list[Path]) -> None:
    text = "\n".join(bootstrap.fingerprint(level, files))
    (environment / f"workspace-{level}.sha256").write_text(text, "ascii")


def test_an_environment_will_do_that_has_more_than_is_needed(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("a\n")
    two.write_text("b\n")
    _stamped(tmp_path, "test", [one, two])
    assert bootstrap.installed("test", tmp_path, [two])
    assert bootstrap.installed("test", tmp_path)
    assert bootstrap.installed("run", tmp_path)
    assert not bootstrap.installed("dev", tmp_path)


def test_an_environment_will_not_do_that_lacks_a_file_or_has_an_old_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("a\n")
    two.write_text("b\n")
    _stamped(tmp_path, "test", [one])
    assert not bootstrap.installed("test", tmp_path, [one, two])
    one.write_text("a>=2\n")
    assert not bootstrap.installed("test", tmp_path, [one])
    (tmp_path / "workspace-test.sha256").write_text("")
    assert not bootstrap.installed("test", tmp_path)
