"""Creates new plugins and components from the files in ``templates/``.

The name of a template ends with ``.tmpl``. In the text of a template, ``{{KEY}}`` is replaced by
the value of the key. In its path, ``MODULE`` and ``NAME`` are replaced by the values of the keys
``module`` and ``name``.
"""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torchx_specs.errors import RequestError
from torchx_specs.plugins.manager import PluginManager
from torchx_specs.version import __version__

#: The longest name, in characters. Longer names make lines of over 100 characters in the templates,
#: and several schedulers limit the names of apps.
MAX_NAME = 32

_TEMPLATES = Path(__file__).parent / "templates"
_SUFFIX = ".tmpl"
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_DISTRIBUTION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@dataclass(frozen=True)
class Kind:
    """A kind of plugin.

    Attributes:
        summary: The description of the new distribution.
        requirements: The requirements of the new distribution.
        use: The part of the README that shows how to use the plugin.
        catalog: The method of ``PluginManager`` that returns the installed plugins of this kind;
            empty if several plugins may use one name.
    """

    summary: str
    requirements: tuple[str, ...]
    use: str
    catalog: str = ""


# Any compatible version, from the present one on.
_COMPATIBLE = f"~={'.'.join(__version__.split('.')[:2])}"
_TORCHX = f"torchx-specs{_COMPATIBLE}"
_KIT = f"torchx-kit{_COMPATIBLE}"

KINDS: Mapping[str, Kind] = {
    "scheduler": Kind(
        "A scheduler of TorchX",
        (_TORCHX, _KIT),
        "The scheduler `{{name}}` runs each replica as a process of this machine. Replace\n"
        "`src/{{module}}/service.py` and `worker.py` by the client of your service:\n\n"
        "```sh\n"
        "pip install torchx-components\n"
        "torchx runopts {{name}}\n"
        "torchx run -s {{name}} utils.echo --msg hello\n"
        "torchx list -s {{name}}\n"
        "```",
        "schedulers",
    ),
    "tracker": Kind(
        "A tracker of TorchX",
        (_TORCHX, _KIT),
        "The tracker `{{name}}` keeps its records in a SQLite file. Configure it in\n"
        "`.torchxconfig`:\n\n"
        "```ini\n"
        "[tracker:{{name}}]\n"
        "type = {{name}}\n"
        "config = /shared/runs.db\n"
        "```",
        "trackers",
    ),
    "component": Kind(
        "Components of TorchX",
        (_TORCHX,),
        "```sh\n"
        "pip install torchx-sched-local\n"
        "torchx run -s local_cwd {{name}}.script --file train.py -- --lr 0.1\n"
        "torchx lint src/{{module}}/components.py\n"
        "```",
    ),
    "resource": Kind(
        "Named resources of TorchX",
        (_TORCHX,),
        'Components get a named resource by `resource(h="{{name}}.gpu")`, and the components of\n'
        "TorchX by `-h {{name}}.gpu`.",
    ),
    "command": Kind(
        "A command of TorchX",
        (_TORCHX, "click>=8.1"),
        "```sh\ntorchx {{name}} --help\n```",
        "commands",
    ),
    "workspace": Kind(
        "A workspace builder of TorchX",
        (_TORCHX, _KIT),
        "The workspace builder `{{name}}` copies workspaces to a shared folder, for schedulers\n"
        "whose jobs run in a folder:\n\n"
        "```sh\n"
        "pip install torchx-sched-slurm torchx-components\n"
        "torchx run -s slurm -cfg workspace_type={{name}},{{name}}_root=/shared/jobs \\\n"
        "  --workspace . utils.echo --msg hello\n"
        "```",
        "workspaces",
    ),
}


def create_component(name: str, template: str, folder: Path) -> list[Path]:
    """Create the files of a component, and return their paths; the component's file comes first.

    Args:
        name: Name of the component and of its file, without ``.py``.
        template: The name of the template.
        folder: An existing folder for the files.

    Raises:
        RequestError: The name is invalid, or one of the files exists or cannot be written.
    """
    _check_name(name, "component")
    if name in sys.stdlib_module_names:
        raise RequestError(
            f"'{name}': a file {name}.py would hide Python's own module '{name}'; choose another"
            " name"
        )
    files = _rendered(f"component/{template}", {"name": name, "app": name.replace("_", "-")})
    paths = [folder / file for file in files]
    for path in paths:
        if os.path.lexists(path):
            raise _exists(path)
    try:
        _write(folder, files)
    except OSError as e:
        raise RequestError(f"{e.filename}: cannot be created: {e.strerror or e}") from None
    return paths


def create_plugin(
    distribution: str, kind: str, name: str | None, parent: Path, manager: PluginManager
) -> tuple[Path, str]:
    """Create the folder of a new distribution with one plugin.

    Args:
        distribution: Name of the distribution and of its folder, such as ``acme-torchx``.
        kind: One of :data:`KINDS`.
        name: The plugin's name; None means the distribution's name without ``torchx``.
        parent: The folder that gets the new folder.
        manager: The installed plugins, whose names cannot be used again.

    Returns:
        The folder, and the plugin's name.

    Raises:
        RequestError: A name is invalid or used, or the folder exists or cannot be created.
    """
    module = _check_distribution(distribution)
    if name is None:
        words = [word for word in distribution.split("-") if word != "torchx"]
        name = "_".join(words)
        if not name:
            raise RequestError(
                f"'{distribution}' has no word for the plugin's name; add one, such as"
                f" 'acme-{distribution}', or pass --as NAME"
            )
    _check_name(name, kind)
    _check_unused(name, kind, manager)
    made = KINDS[kind]
    values = {
        "distribution": distribution,
        "module": module,
        "name": name,
        "summary": made.summary,
        "dependencies": ", ".join(f'"{requirement}"' for requirement in made.requirements),
        "compatible": _COMPATIBLE,
    }
    values["use"] = _filled(made.use, values)
    folder = parent / distribution
    files = {**_rendered("plugin/common", values), **_rendered(f"plugin/{kind}", values)}
    try:
        folder.mkdir()
        _write(folder, files)
    except FileExistsError:
        raise _exists(folder) from None
    except OSError as e:
        shutil.rmtree(folder, ignore_errors=True)
        raise RequestError(f"{folder}: cannot be created: {e.strerror or e}") from None
    return folder, name


def _check_distribution(distribution: str) -> str:
    """Check the name of a distribution, and return the name of its module."""
    if not _DISTRIBUTION.fullmatch(distribution) or len(distribution) > MAX_NAME:
        raise RequestError(
            f"'{distribution}' is not a valid name for a new distribution: use lower-case letters,"
            f" digits and single '-', a letter first, at most {MAX_NAME} characters, such as"
            " 'acme-torchx'"
        )
    module = distribution.replace("-", "_")
    if keyword.iskeyword(module) or module in sys.stdlib_module_names:
        raise RequestError(
            f"'{distribution}': Python has its own '{module}'; choose a name such as"
            f" 'torchx-{distribution}'"
        )
    if importlib.util.find_spec(module) is not None:
        raise RequestError(
            f"'{distribution}': a module '{module}' is already installed; choose another name, or"
            " uninstall its distribution first"
        )
    return module


def _check_name(name: str, kind: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name) or len(name) > MAX_NAME:
        raise RequestError(
            f"'{name}' is not a valid name for a {kind}: use lower-case letters, digits and single"
            f" '_', a letter first, at most {MAX_NAME} characters, and no keyword of Python"
        )


def _check_unused(name: str, kind: str, manager: PluginManager) -> None:
    if not KINDS[kind].catalog:
        return
    catalog = getattr(manager, KINDS[kind].catalog)()
    if name in catalog.installable:
        raise RequestError(
            f"'{name}' is the name of a {kind} of TorchX; pass another name with --as NAME"
        )
    if name in catalog.names():
        owner = "several plugins" if name in catalog.conflicts else str(catalog[name].origin)
        raise RequestError(
            f"'{name}' is already a {kind}, given by {owner}; pass another name with --as NAME"
        )


def _rendered(folder: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the rendered files of a folder in ``templates/`` by their relative paths."""
    root = _TEMPLATES / folder
    rendered = {}
    for path in sorted(root.rglob(f"*{_SUFFIX}")):
        name = path.relative_to(root).as_posix().removesuffix(_SUFFIX)
        name = name.replace("MODULE", values.get("module", "")).replace("NAME", values["name"])
        rendered[name] = _filled(path.read_text("utf-8"), values)
    return rendered


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in a text by their values.

    Raises:
        KeyError: A placeholder has no value.
    """
    return _PLACEHOLDER.sub(lambda found: values[found[1]], text)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write new files in a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)


def _exists(path: Path) -> RequestError:
    return RequestError(f"{path} exists; nothing was written: choose another name")
