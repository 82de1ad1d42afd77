"""Creates the file of a new component, and the program that it runs."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from torchx_cli.scaffold.templates import render_folder, write_new_files
from torchx_specs.errors import RequestError

#: The templates with their summaries.
TEMPLATES: Mapping[str, str] = {
    "ddp": "training with DistributedDataParallel, by dist.ddp of torchx-components",
    "hydra": "a script with a Hydra configuration",
    "script": "a single Python script",
    "service": "an HTTP server",
}

#: Maximum length of a component's name, in characters; several schedulers limit the names of apps.
MAX_NAME = 32

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def create_component(name: str, template: str, folder: Path) -> list[Path]:
    """Create the files of a component, and return their paths; the component's file comes first.

    Args:
        name: Name of the component and of its file, without ``.py``.
        template: One of :data:`TEMPLATES`.
        folder: An existing folder for the files.

    Raises:
        RequestError: The name is invalid, or one of the files exists or cannot be written.
    """
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > MAX_NAME:
        raise RequestError(
            f"'{name}' is not a valid name for a component: use lower-case letters, digits and"
            f" single '_', a letter first, at most {MAX_NAME} characters, and no keyword of Python"
        )
    if name in sys.stdlib_module_names:
        raise RequestError(
            f"'{name}': a file {name}.py would hide Python's own module '{name}'; choose another"
            " name"
        )
    values = {"name": name, "app": name.replace("_", "-")}
    rendered = render_folder(f"component/{template}", values)
    files = {folder / path: text for path, text in rendered.items()}
    write_new_files(files)
    return list(files)
