"""The distributions of this repository, read from their project files."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = ROOT / "packages/torchx-specs/src/torchx_specs/version.py"
#: The folders of integration/ that ``nox -s integration`` runs.
SERVICES = sorted({path.parent.name for path in ROOT.glob("integration/*/test_*.py")} - {"authors"})


def version() -> str:
    """Return the version of every distribution."""
    found = re.search(r'^__version__ = "(.+)"$', VERSION_FILE.read_text("utf-8"), re.M)
    if found is None:
        raise SystemExit(f'{VERSION_FILE}: no line `__version__ = "..."`')
    return found[1]


def load_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    return tomllib.loads(path.read_text("utf-8"))


def name_of(requirement: str) -> str:
    """Return the distribution that a requirement such as ``torchx-specs~=1.0`` names."""
    return re.split(r"[\[<>=!~; ]", requirement, maxsplit=1)[0]


def write_or_check(module: Path, render: Callable[[], str], arguments: list[str]) -> int:
    """Write a generated module, or check it; return the exit code.

    Args:
        module: The module.
        render: Returns the text of the module.
        arguments: ``["write"]`` or ``["check"]``.
    """
    command = f"python tools/{Path(sys.argv[0]).name}"
    if arguments == ["write"]:
        module.write_text(render(), "utf-8")
    elif arguments != ["check"]:
        print(f"usage: {command} write, or check", file=sys.stderr)
        return 2
    elif module.read_text("utf-8") != render():
        print(f"{module.relative_to(ROOT)}: run `{command} write`")
        return 1
    return 0


@dataclass(frozen=True)
class Distribution:
    """A distribution of this repository, which is a member of hatch's workspace.

    Attributes:
        folder: The folder of its ``pyproject.toml``; the folder's name is the distribution's name.
        config: The parsed ``pyproject.toml``.
    """

    folder: Path
    config: dict[str, Any]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def module(self) -> str:
        """The name of the import package."""
        return self.name.replace("-", "_")

    @property
    def source(self) -> Path:
        """The folder of the import package."""
        return self.folder / "src" / self.module

    @property
    def project(self) -> dict[str, Any]:
        """The table ``[project]`` of ``pyproject.toml``."""
        table: dict[str, Any] = self.config["project"]
        return table

    @property
    def requirements(self) -> list[str]:
        """The requirements of the distribution and of all its extras."""
        extras = self.project.get("optional-dependencies", {}).values()
        return [*self.project["dependencies"], *(line for extra in extras for line in extra)]


def members() -> list[Distribution]:
    """Return the members of the workspace, in alphabetical order."""
    environment = load_toml(ROOT / "hatch.toml")["envs"]["default"]
    patterns = environment["workspace"]["members"]
    folders = sorted(folder for pattern in patterns for folder in ROOT.glob(pattern))
    return [Distribution(folder, load_toml(folder / "pyproject.toml")) for folder in folders]
