"""Check the project files of all distributions: ``python tools/check_projects.py``.

- The version is the one in ``torchx_specs/version.py``. Dependencies on siblings, the other
  distributions of this repository, accept all compatible versions (``~=1.0``), so that a user can
  upgrade one distribution alone. If it needs a later sibling, its project file says so (``~=1.2``).
- License, Python versions, classifiers and build settings are the same everywhere.
- A distribution depends on siblings of lower layers only (``.importlinter``), and only ``torchx``
  depends on plugins. deptry checks that imports are declared; it skips imports for type checkers,
  so those are checked here.
- The root's dependency group ``test`` includes the group ``test`` of each distribution.
- The list of built-in distributions in ``torchx_specs/plugins/records.py`` is complete.
- docs/distributions.md has each distribution's summary, and constraints.txt its path.

``python tools/check_projects.py --set-version 1.1.0`` changes the version everywhere.
"""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from torchx_specs.plugins.records import BUILTIN_DISTRIBUTIONS
from workspace import ROOT, VERSION_FILE, Distribution, load_toml, members, name_of, version

# The keys of [project] that every distribution shares with torchx-specs.
SHARED = ("license", "license-files", "requires-python", "classifiers", "readme")
# One of the plugins; all plugins are in the same layer.
A_PLUGIN = "torchx_components"
# Modules that only type checkers provide.
TYPING_ONLY = {"typing_extensions", "_typeshed"}


def is_compatible(requirement: str) -> bool:
    """Return True if a requirement is ``~=MAJOR.MINOR`` of a version up to the present one."""
    found = re.search(r"~=(\d+)\.(\d+)$", requirement)
    major, minor = map(int, version().split(".")[:2])
    return found is not None and int(found[1]) == major and int(found[2]) <= minor


def layers() -> list[set[str]]:
    """Return the import names of each layer, the lowest layer first."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter", "utf-8")
    lines = config["importlinter:contract:layers"]["layers"].split("\n")
    return [set(line.split(" | ")) for line in reversed(lines) if line]


def metadata_problems(member: Distribution, reference: Distribution) -> Iterator[str]:
    project, current = member.project, version()
    if project["name"] != member.name:
        yield f"name is {project['name']!r}, but the folder is {member.name}"
    if project["version"] != current:
        yield f"version is {project['version']!r}, but {VERSION_FILE.name} has {current!r}"
    for key in SHARED:
        if project.get(key) != reference.project[key]:
            yield f"{key} differs from that of {reference.name}"
    if member.config["build-system"] != reference.config["build-system"]:
        yield f"[build-system] differs from that of {reference.name}"
    wanted = repr(reference.config["tool"]["hatch"]).replace(reference.module, member.module)
    if repr(member.config["tool"]["hatch"]) != wanted:
        yield f"[tool.hatch] differs from that of {reference.name}"
    license_file = member.folder / "LICENSE"
    if not license_file.exists() or license_file.read_bytes() != (ROOT / "LICENSE").read_bytes():
        yield "LICENSE differs from the repository's"
    if not (member.source / "py.typed").exists():
        yield f"src/{member.module}/py.typed is missing"
    if member.name not in BUILTIN_DISTRIBUTIONS:
        yield "torchx_specs/plugins/records.py does not list it in BUILTIN_DISTRIBUTIONS"


def dependency_problems(member: Distribution, modules: set[str]) -> Iterator[str]:
    order = layers()
    level = {module: number for number, names in enumerate(order) for module in names}
    if member.module not in level:
        yield f"{member.module} is in no layer of .importlinter"
        return
    for requirement in member.requirements:
        sibling = name_of(requirement).replace("-", "_")
        if sibling not in modules:
            continue
        if not is_compatible(requirement):
            major, minor = version().split(".")[:2]
            yield f"{requirement!r} is not one of ~={major}.0 to ~={major}.{minor}"
        if level.get(sibling, len(order)) >= level[member.module]:
            yield f"{name_of(requirement)} is not in a lower layer"
        extends = level[member.module] == level[A_PLUGIN] + 1
        if level.get(sibling) == level[A_PLUGIN] and member.name != "torchx" and not extends:
            yield f"{name_of(requirement)} is a plugin; only torchx and extensions depend on it"


def type_checking_imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and top-level name of each absolute import below ``if TYPE_CHECKING``."""
    for block in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if not isinstance(block, ast.If) or "TYPE_CHECKING" not in ast.dump(block.test):
            continue
        for node in (node for statement in block.body for node in ast.walk(statement)):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                yield node.lineno, node.module.split(".")[0]


def type_checking_problems(member: Distribution) -> Iterator[str]:
    names = {name_of(line).lower() for line in [member.name, *member.requirements]}
    ignored = member.config["tool"].get("deptry", {}).get("per_rule_ignores", {}).values()
    allowed = {*sys.stdlib_module_names, *TYPING_ONLY, *(name for rule in ignored for name in rule)}
    allowed |= {name.replace("-", "_") for name in names}
    for module, owners in packages_distributions().items():
        if names & {owner.lower() for owner in owners}:
            allowed.add(module)
    for path in sorted(member.source.rglob("*.py")):
        for line, module in type_checking_imports(path):
            if module not in allowed:
                yield f"{path.relative_to(member.folder)}:{line}: {module} is not declared"


def problems() -> Iterator[str]:
    """Yield every problem, each with the file that it is in."""
    everything = members()
    modules = {member.module for member in everything}
    names = {member.name for member in everything}
    reference = next(member for member in everything if member.name == "torchx-specs")
    group = load_toml(ROOT / "pyproject.toml")["dependency-groups"]["test"]
    # The development environment has the distributions without their extras.
    installed = {line for member in everything for line in member.project["dependencies"]}
    table = (ROOT / "docs" / "distributions.md").read_text("utf-8")
    constraints = (ROOT / "constraints.txt").read_text("utf-8")
    for member in everything:
        file = f"packages/{member.name}/pyproject.toml"
        for problem in metadata_problems(member, reference):
            yield f"{file}: {problem}"
        for problem in dependency_problems(member, modules):
            yield f"{file}: {problem}"
        for problem in type_checking_problems(member):
            yield f"packages/{member.name}/{problem}"
        for requirement in member.config.get("dependency-groups", {}).get("test", []):
            if requirement not in installed.union(group) and name_of(requirement) not in names:
                yield f"pyproject.toml: group `test` lacks {requirement!r} of {member.name}"
        constraint = f"{member.name} @ file://${{PWD}}/packages/{member.name}\n"
        if constraint not in constraints:
            yield f"constraints.txt lacks the line '{constraint.strip()}'"
        link = f"[{member.name}](../packages/{member.name}/README.md)"
        row = f"{link} | {member.project['description']}"
        if row not in table:
            yield f"docs/distributions.md lacks '{row}'"


def set_version(new: str) -> None:
    """Change the version in every project file and in torchx_specs/version.py.

    Only a new major version changes the dependencies on siblings.
    """
    old = version()
    major = new.partition(".")[0]
    is_major = major != old.partition(".")[0]
    for member in members():
        path = member.folder / "pyproject.toml"
        text = path.read_text("utf-8").replace(f'\nversion = "{old}"\n', f'\nversion = "{new}"\n')
        if is_major:
            text = re.sub(r'"(torchx(?:-[\w-]+)?(?:\[.+\])?)~=[\d.]+"', rf'"\1~={major}.0"', text)
        path.write_text(text, "utf-8")
    VERSION_FILE.write_text(f'__version__ = "{new}"\n', "utf-8")


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] == "--set-version":
        set_version(arguments[1])
        return 0
    if arguments:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(problems())
    print(*found, f"{len(members())} project files, {len(found)} problems", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
