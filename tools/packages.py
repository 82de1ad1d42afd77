"""The project files: ``python tools/packages.py write`` stamps them, ``check`` compares them.

Every ``packages/<distribution>/pyproject.toml`` is written from the table in ``distributions.py``,
so that all of them stay alike, siblings are pinned to one version, and nothing is said in two
places. So are the licence files, the import contracts, and the README's table of distributions.
"""

from __future__ import annotations

import configparser
import difflib
import io
import re
import sys
from pathlib import Path

from distributions import BY_NAME, DISTRIBUTIONS, PYTHONS, ROOT, Distribution, members, version


def requirements(names: tuple[str, ...], present: set[str]) -> list[str]:
    """Requirement lines for ``names``: siblings pinned, those that don't exist yet left out."""
    lines = []
    for name in names:
        if name not in BY_NAME:
            lines.append(name)
        elif name in present:
            lines.append(f"{name}=={version()}")
    return lines


def _toml_array(items: list[str]) -> str:
    if len(items) < 2:
        return "[" + ", ".join(f'"{item}"' for item in items) + "]"
    return "[\n" + "".join(f'    "{item}",\n' for item in items) + "]"


def _toml_table(header: str, rows: dict[str, str]) -> list[str]:
    return ["", f"[{header}]", *(f'{key} = "{value}"' for key, value in rows.items())]


def render(distribution: Distribution, present: set[str]) -> str:
    """The ``pyproject.toml`` of ``distribution``.

    Args:
        distribution: The row to render.
        present: Names of the distributions that exist; others are left out of requirements.
    """
    needs = requirements((*distribution.ours, *distribution.others), present)
    lines = [
        "# Written by `python tools/packages.py write`; edit the table in tools/distributions.py.",
        "",
        "[build-system]",
        'requires = ["hatchling>=1.27"]',
        'build-backend = "hatchling.build"',
        "",
        "[project]",
        f'name = "{distribution.name}"',
        f'version = "{version()}"',
        f'description = "{distribution.summary}"',
        'readme = "README.md"',
        f'requires-python = ">={PYTHONS[0]}"',
        'license = "BSD-3-Clause"',
        'license-files = ["LICENSE"]',
        "classifiers = "
        + _toml_array(
            [
                "Development Status :: 4 - Beta",
                "Intended Audience :: Developers",
                "Operating System :: MacOS",
                "Operating System :: POSIX :: Linux",
                "Programming Language :: Python :: 3",
                *(f"Programming Language :: Python :: {python}" for python in PYTHONS),
                "Typing :: Typed",
            ]
        ),
        f"dependencies = {_toml_array(needs)}",
    ]
    extras = {key: requirements(value, present) for key, value in distribution.extras.items()}
    extras = {key: value for key, value in extras.items() if value}
    if extras:
        lines += ["", "[project.optional-dependencies]"]
        lines += [f"{key} = {_toml_array(value)}" for key, value in extras.items()]
    if distribution.scripts:
        lines += _toml_table("project.scripts", distribution.scripts)
    if distribution.plugin:
        key = distribution.name.removeprefix("torchx-")
        lines += _toml_table("project.entry-points.torchx", {key: distribution.plugin})
    for group, points in distribution.entry_points.items():
        lines += _toml_table(f"project.entry-points.{group}", points)
    lines += [
        "",
        "[tool.hatch.build]",
        'dev-mode-dirs = ["src"]',
        "",
        "[tool.hatch.build.targets.wheel]",
        f'packages = ["src/{distribution.module}"]',
        "",
        "[tool.hatch.build.targets.sdist]",
        'include = ["/src", "/tests"]',
        "",
    ]
    return "\n".join(lines)


def import_contracts() -> str:
    """The ``.importlinter`` file: the floors of the design, for the members that have code."""
    coded = [distribution for distribution in members() if distribution.exists]
    plugins = [d.module for d in coded if d.floor == 2]
    hosts = [d.module for d in coded if d.floor > 2 and d.name != "torchx"]
    floors = [sorted(d.module for d in coded if d.floor == floor) for floor in (5, 4, 3, 2, 1, 0)]
    config = configparser.ConfigParser()
    config["importlinter"] = {
        "root_packages": _ini_list([distribution.module for distribution in coded]),
        # What only type checkers read is held by tools/check_imports.py.
        "exclude_type_checking_imports": "True",
    }
    config["importlinter:contract:floors"] = {
        "name": "Imports point down; what stands on one floor is independent of each other",
        "type": "layers",
        "layers": _ini_list([" | ".join(names) for names in floors if names]),
    }
    if hosts and plugins:
        config["importlinter:contract:plugins"] = {
            "name": "Runner, command, tracker, notebook and conformance suites know no plugin",
            "type": "forbidden",
            "source_modules": _ini_list(hosts),
            "forbidden_modules": _ini_list(plugins),
        }
    if BY_NAME["torchx-testing"] in coded:
        config["importlinter:contract:testing"] = {
            "name": "Nothing that is shipped imports torchx_testing",
            "type": "forbidden",
            "source_modules": _ini_list([d.module for d in coded if d.module != "torchx_testing"]),
            "forbidden_modules": _ini_list(["torchx_testing"]),
        }
    text = io.StringIO()
    config.write(text)
    header = "# Written by `python tools/packages.py write`; `lint-imports` holds it.\n\n"
    return header + re.sub(r"[ \t]+\n", "\n", text.getvalue().replace("\t", "    ")).strip() + "\n"


def _ini_list(items: list[str]) -> str:
    return "\n" + "\n".join(items)


def readme() -> str:
    """The top README, with its table of distributions."""
    text = (ROOT / "README.md").read_text("utf-8")
    begin = "<!-- distributions: written by tools/packages.py -->\n"
    end = "<!-- /distributions -->"
    before, _, rest = text.partition(begin)
    present = {distribution.name for distribution in members()}
    rows = ["| floor | distribution | gives | needs |", "|---|---|---|---|"]
    for distribution in sorted(DISTRIBUTIONS, key=lambda d: -d.floor):
        name = distribution.name
        link = f"[{name}](packages/{name}/README.md)" if name in present else f"{name}, *not yet*"
        needs = [re.split("[<>=]", need)[0] for need in (*distribution.ours, *distribution.others)]
        if name == "torchx":
            needs = ["most of the others, more by extras"]
        rows.append(
            f"| {distribution.floor} | {link} | {distribution.summary} | {', '.join(needs)} |"
        )
    return before + begin + "\n".join(rows) + "\n" + end + rest.partition(end)[2]


def stamped_files() -> dict[Path, str]:
    """Every file this script writes, with its text."""
    present = {distribution.name for distribution in members()}
    license_text = (ROOT / "LICENSE").read_text("utf-8")
    files = {ROOT / ".importlinter": import_contracts(), ROOT / "README.md": readme()}
    for distribution in members():
        files[distribution.folder / "pyproject.toml"] = render(distribution, present)
        files[distribution.folder / "LICENSE"] = license_text
        files[distribution.source / "py.typed"] = ""
    return files


def write() -> int:
    """Stamps every member's files; says which it changed."""
    for distribution in members():
        page = distribution.folder / "README.md"
        if not page.exists():
            # Without one nothing can be built; tools/check_docs.py says what it has to have.
            page.write_text(f"# {distribution.name}\n\n{distribution.summary}.\n", "utf-8")
            print(f"began {page.relative_to(ROOT)}")
    for path, text in stamped_files().items():
        if path.exists() and path.read_text("utf-8") == text:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


def check() -> int:
    """Compares every stamped file with the table; prints what differs."""
    differs = 0
    for path, text in stamped_files().items():
        name = str(path.relative_to(ROOT))
        found = path.read_text("utf-8") if path.exists() else None
        if found == text:
            continue
        differs += 1
        if found is None:
            print(f"{name}: missing")
        else:
            sys.stdout.writelines(
                difflib.unified_diff(
                    found.splitlines(True), text.splitlines(True), name, "tools/packages.py"
                )
            )
    if differs:
        print(f"{differs} file(s) differ from the table: run `python tools/packages.py write`")
    return 1 if differs else 0


def main(argv: list[str]) -> int:
    actions = {"write": write, "check": check}
    if len(argv) != 1 or argv[0] not in actions:
        print("usage: python tools/packages.py write|check", file=sys.stderr)
        return 2
    return actions[argv[0]]()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
