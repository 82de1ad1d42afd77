"""A base class and helpers for tests of components and launchers, for :mod:`unittest`."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import unittest
from collections.abc import Iterable, Mapping
from pathlib import Path

#: True if ``$CI`` is ``true``.
IS_CI: bool = os.environ.get("CI", "").lower() == "true"
IS_MACOS: bool = sys.platform == "darwin"


def write_shell_script(dir: str, name: str, content: list[str]) -> str:
    """Write an executable shell script.

    Args:
        dir: An existing folder.
        name: Name of the script.
        content: The lines of the script, without ``#!``.

    Returns:
        The path of the script.
    """
    path = os.path.join(dir, name)
    with open(path, "w", encoding="utf-8") as fp:
        fp.write("\n".join(["#! /bin/bash", *content, "", ""]))
    os.chmod(path, 0o755)  # noqa: S103 - a script of a test
    return path


class TestWithTmpDir(unittest.TestCase):
    """Base class that gives each test a temporary folder.

    The methods resolve relative paths in this folder.

    Attributes:
        tmpdir: The folder of the running test.
    """

    __test__ = False  # pytest must not collect the base class

    tmpdir: Path

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.__test__ = True

    def setUp(self) -> None:
        """Create the folder."""
        self.tmpdir = Path(tempfile.mkdtemp(prefix=f"torchx-{type(self).__name__}-"))

    def tearDown(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.tmpdir, ignore_errors=True)

    def touch(self, filepath: str) -> Path:
        """Create an empty file and its parent folders."""
        path = self._parent_of(filepath)
        path.touch()
        return path

    def mkdir(self, dirpath: str) -> Path:
        """Create a folder and its parent folders."""
        path = self.tmpdir / dirpath
        path.mkdir(parents=True, exist_ok=True)
        return path

    def write(self, filepath: str, content: Iterable[str]) -> Path:
        """Write a file and create its parent folders.

        Args:
            filepath: Path of the file.
            content: Pieces of text, which are joined without a separator.
        """
        path = self._parent_of(filepath)
        path.write_text("".join(content), encoding="utf-8")
        return path

    def write_shell_script(self, script_path: str, content: list[str]) -> Path:
        """Write an executable shell script and create its parent folders."""
        path = self._parent_of(script_path)
        return Path(write_shell_script(str(path.parent), path.name, content))

    def read(self, filepath: str | Path) -> list[str]:
        """Return the lines of a file, with their newlines."""
        with open(self.tmpdir / filepath, encoding="utf-8") as fp:
            return fp.readlines()

    def assertDirIsEmpty(self, directory: str | Path) -> None:  # noqa: N802 - unittest's style
        """Fail unless the folder exists and is empty."""
        path = self.tmpdir / directory
        self.assertTrue(path.is_dir(), f"{path} is not a directory")
        self.assertEqual(0, len(list(path.iterdir())), f"{path} is not empty")

    def assertDirTree(  # noqa: N802 - unittest's style
        self, root: str | Path, tree: Mapping[str, object]
    ) -> None:
        """Fail unless a folder contains exactly ``tree``.

        Args:
            root: The folder.
            tree: The expected entries by name: a mapping for a folder, a text for a file. If a text
                is empty or None, the content of the file is not compared.
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
        """Create a folder with the entries ``tree``: a mapping for a folder, a text for a file."""
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
