"""Base classes for tests of components and launchers, in the style of :mod:`unittest`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import unittest
from collections.abc import Iterable, Mapping
from pathlib import Path

#: True where ``$CI`` says ``true``.
IS_CI: bool = os.environ.get("CI", "").lower() == "true"
IS_MACOS: bool = sys.platform == "darwin"


def write_shell_script(dir: str, name: str, content: list[str]) -> str:
    """Write an executable shell script.

    Args:
        dir: The folder, which exists.
        name: The script's name in it.
        content: Its lines, without ``#!``.

    Returns:
        The path of the script.
    """
    path = os.path.join(dir, name)
    with open(path, "w", encoding="utf-8") as fp:
        fp.write("\n".join(["#! /bin/bash", *content, "", ""]))
    os.chmod(path, 0o755)  # noqa: S103 - a script of a test
    return path


class TestWithTmpDir(unittest.TestCase):
    """Gives each test a folder of its own, :attr:`tmpdir`; paths are relative to it."""

    __test__ = False  # for pytest: derive from it, there are no tests in it

    tmpdir: Path

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__test__ = True

    def setUp(self) -> None:
        """Make the folder."""
        self.tmpdir = Path(tempfile.mkdtemp(prefix=f"torchx-{type(self).__name__}-"))

    def tearDown(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.tmpdir, ignore_errors=True)

    def touch(self, filepath: str) -> Path:
        """Make an empty file, and the folders above it."""
        path = self._parent_of(filepath)
        path.touch()
        return path

    def mkdir(self, dirpath: str) -> Path:
        """Make a folder, and the folders above it."""
        path = self.tmpdir / dirpath
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, filepath: str, content: Iterable[str]) -> Path:
        """Write a file, and makes the folders above it.

        Args:
            filepath: Where.
            content: Pieces of text; nothing is put between them.
        """
        path = self._parent_of(filepath)
        path.write_text("".join(content), encoding="utf-8")
        return path

    def write_shell_script(self, script_path: str, content: list[str]) -> Path:
        """Write an executable shell script, and makes the folders above it."""
        path = self._parent_of(script_path)
        return Path(write_shell_script(str(path.parent), path.name, content))

    def read(self, filepath: str | Path) -> list[str]:
        """Return the lines of a file, with their newlines."""
        with open(self.tmpdir / filepath, encoding="utf-8") as fp:
            return fp.readlines()

    def assertDirIsEmpty(self, directory: str | Path) -> None:  # noqa: N802 - unittest's style
        """Fail unless there is such a folder, and nothing in it."""
        path = self.tmpdir / directory
        self.assertTrue(path.is_dir(), f"{path} is not a directory")
        self.assertEqual(0, len(list(path.iterdir())), f"{path} is not empty")

    def assertDirTree(  # noqa: N802 - unittest's style
        self, root: str | Path, tree: Mapping[str, object]
    ) -> None:
        """Fail unless a folder holds exactly ``tree``.

        Args:
            root: The folder.
            tree: By name, a mapping for a folder, and for a file its text, or something false if
                the text does not matter.
        """
        path = self.tmpdir / root
        self.assertTrue(path.is_dir(), f"{path} is not a directory")
        self.assertSetEqual(
            set(tree),
            {entry.name for entry in path.iterdir()},
            f"contents of the dir `{path}` do not match the expected",
        )
        for name, expected in tree.items():
            entry = path / name
            if isinstance(expected, Mapping):
                self.assertDirTree(entry, expected)
                continue
            self.assertTrue(entry.is_file(), f"{entry} is not a file")
            if expected:
                found = entry.read_text(encoding="utf-8")
                self.assertEqual(
                    found,
                    str(expected),
                    f"file {entry} content '{found}' does not match expected '{expected}'",
                )

    def create_dir_tree(self, root: str, tree: Mapping[str, object]) -> Path:
        """Make a folder that holds ``tree``: mappings are folders, anything else is text."""
        path = self.mkdir(str(root))
        for name, content in tree.items():
            if isinstance(content, Mapping):
                self.create_dir_tree(str(path / name), content)
            else:
                self.write(str(path / name), str(content))
        return path

    def _parent_of(self, filepath: str) -> Path:
        path = self.tmpdir / filepath
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
