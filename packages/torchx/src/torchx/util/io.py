"""Reads configuration files."""

from __future__ import annotations

import os

import torchx

COMPONENTS_DIR = "torchx/components"


def get_abspath(relpath: str) -> str:
    """Return the path of a file; ``relpath`` is relative to the parent of package ``torchx``."""
    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(torchx.__file__))), relpath)


def read_conf_file(conf_file: str) -> str:
    """Return the text of a file.

    If the path does not exist, the entry point ``get_file_contents`` of the group ``torchx.file``
    reads the file. Without this entry point, the path is relative to the parent of package
    ``torchx``.

    Raises:
        FileNotFoundError: The file does not exist.
    """
    from torchx.util.entrypoints import load

    if os.path.isfile(conf_file):
        with open(conf_file, encoding="utf-8") as fp:
            return fp.read()
    get_file_contents = load("torchx.file", "get_file_contents", default=None)
    if get_file_contents is not None:
        return str(get_file_contents(conf_file))
    with open(get_abspath(conf_file), encoding="utf-8") as fp:
        return fp.read()
