"""Renders the files in ``templates/``.

The name of a template ends with ``.tmpl``. In the text of a template, ``{{KEY}}`` is replaced by
the value of the key. In its path, ``MODULE`` and ``NAME`` are replaced by the values of the keys
``module`` and ``name``.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from torchx_specs.errors import RequestError

_FOLDER = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"
_PATH_PLACEHOLDERS = {"MODULE": "module", "NAME": "name"}
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")


def render_folder(folder: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the rendered files of a folder in ``templates/`` by their relative paths."""
    root = _FOLDER / folder
    rendered = {}
    for path in sorted(root.rglob(f"*{_SUFFIX}")):
        name = path.relative_to(root).as_posix().removesuffix(_SUFFIX)
        text = path.read_text("utf-8")
        for placeholder, value in _PATH_PLACEHOLDERS.items():
            name = name.replace(placeholder, values.get(value, placeholder))
        rendered[name] = render(text, values)
    return rendered


def render(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in a text by their values.

    Raises:
        KeyError: A placeholder has no value.
    """
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def write_new_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Create a folder with files, completely or not at all.

    Raises:
        RequestError: The folder exists, or cannot be created.
    """
    _refuse_existing([folder])
    try:
        # The rename is atomic, so an error or an interrupt leaves no incomplete folder.
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            for name, text in files.items():
                path = partial / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            partial.chmod(0o777 & ~_umask())
            partial.rename(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    except OSError as e:
        raise RequestError(f"{folder}: cannot be created: {e.strerror or e}") from None


def write_new_files(files: Mapping[Path, str]) -> None:
    """Create files in existing folders; if one of them exists, none is written.

    Raises:
        RequestError: A file exists, or cannot be created.
    """
    _refuse_existing(files)
    for path, text in files.items():
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as e:
            raise RequestError(f"{path}: cannot be created: {e.strerror or e}") from None


def _refuse_existing(paths: Iterable[Path]) -> None:
    for path in paths:
        if os.path.lexists(path):
            raise RequestError(f"{path} exists; nothing was written: choose another name")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
