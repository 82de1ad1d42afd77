"""Compare upstream's public names with ours: ``python tools/public_names.py check``.

``check`` fails if a name is missing without a reason, or if a stub (``.pyi``) of the facade lacks a
name that its module has. ``write`` writes docs/public-names.md. Both need an environment with every
distribution installed.

``data/names-VERSION.json`` has the names: ``vars()`` of every module in upstream's wheel of that
version, without sub-modules, private names and names from other packages. The names were recorded
in an environment that has the wheel and its optional dependencies.
"""

from __future__ import annotations

import ast
import importlib
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from workspace import ROOT

DATA = ROOT / "tools" / "data"
PAGE = ROOT / "docs" / "public-names.md"

MISSING = object()

# Upstream's names that our TorchX does not have, and why. A module stands for all of its names.
REASONS = {
    "torchx.schedulers.ray_scheduler": "no Ray scheduler is planned; a site adds one by the hook",
    "torchx.schedulers.ray": "no Ray scheduler is planned; a site adds one by the hook",
    "torchx.schedulers.gcp_batch_scheduler": "no GCP Batch scheduler is planned; a site adds one"
    " by the hook",
    "torchx.pipelines.kfp": "the adapter to Kubeflow Pipelines v1 was removed upstream, too",
}
# Upstream's names that are not public although they have no underscore: type variables, and a
# constant for type checkers.
INTERNAL = {"T", "S", "V", "F", "TYPE_CHECKING", "CfgT"}
# Upstream's private names that other programs use: NeMo-Run, and forks of components.
PRIVATE = {
    "torchx.cli.cmd_log": ("_prefix_line",),
    "torchx.components.dist": ("_TORCH_DEBUG_FLAGS", "_args_join", "_noquote"),
    "torchx.schedulers.docker_scheduler": ("_to_str",),
    "torchx.schedulers.local_scheduler": ("_LocalAppDef",),
    "torchx.specs": ("_named_resource_factories",),
    "torchx.specs.finder": ("_Component",),
    "torchx.util.log_tee_helpers": ("_find_role_replicas", "_prefix_line"),
}


def releases() -> dict[tuple[str, str], list[str]]:
    """Return the releases of upstream that have a name, by module and name."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted(DATA.glob("names-*.json")):
        for module, entry in json.loads(path.read_text("utf-8")).items():
            for name in set(entry.get("names", ())) - INTERNAL:
                found.setdefault((module, name), []).append(path.stem.removeprefix("names-"))
    return dict(sorted(found.items()))


def value_of(module: str, name: str) -> Any:
    """Return the object that our module has under a name, or MISSING."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return MISSING


def reason(module: str, name: str) -> str:
    """Return why we do not have a name, or an empty string if ``REASONS`` has no reason."""
    for prefix, why in REASONS.items():
        if f"{module}.{name}.".startswith(prefix + "."):
            return why
    return ""


def stub_names(path: Path) -> set[str]:
    """Return the names that a stub defines or imports with ``as``, and ``""`` for other imports."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            found.update(alias.asname or "" for alias in node.names)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            found.add(ast.unparse(node.target))
        elif isinstance(node, ast.Assign):
            found.update(map(ast.unparse, node.targets))
    return found


def missing_in_stubs() -> Iterator[str]:
    """Yield each name that a stub lacks but upstream, our ``__all__`` or :data:`PRIVATE` has."""
    import torchx

    [facade] = torchx.__path__
    for stub in sorted(Path(facade).rglob("*.pyi")):
        parts = stub.relative_to(Path(facade).parent).with_suffix("").parts
        module = ".".join(parts).removesuffix(".__init__")
        contents = vars(importlib.import_module(module))
        wanted = {name for home, name in releases() if home == module}
        wanted.update(PRIVATE.get(module, ()), contents.get("__all__", ()))
        for source in contents.get("_sources", ())[:1]:
            wanted.update(vars(importlib.import_module(source)).get("__all__", ()))
        for name in sorted(wanted - stub_names(stub)):
            value = value_of(module, name)
            if value is not MISSING and not isinstance(value, ModuleType):
                yield f"{stub.relative_to(ROOT)}: {name} is missing"


def page() -> str:
    """Return the text of docs/public-names.md."""
    lines = [
        "# Public names",
        "",
        "Every public name of upstream's releases, and where it lives here. Written by",
        "`python tools/public_names.py write`.",
        "",
        "| name | upstream | here |",
        "|---|---|---|",
    ]
    for (module, name), versions in releases().items():
        value = value_of(module, name)
        home = getattr(value, "__module__", None)
        if value is MISSING:
            home = "— " + reason(module, name)
        elif isinstance(value, ModuleType) or not str(home).startswith("torchx"):
            home = "a value"
        lines.append(f"| `{module}.{name}` | {', '.join(versions)} | {home} |")
    return "\n".join(lines) + "\n"


def check() -> int:
    """Print every missing name, and whether the page is out of date; return the exit code."""
    missing = [
        f"{module}.{name} ({', '.join(versions)}) is missing"
        for (module, name), versions in releases().items()
        if value_of(module, name) is MISSING and not reason(module, name)
    ]
    missing += missing_in_stubs()
    if PAGE.read_text("utf-8") != page():
        missing.append("docs/public-names.md: run `python tools/public_names.py write`")
    print(*missing, f"{len(releases())} public names, {len(missing)} problems", sep="\n")
    return 1 if missing else 0


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:] == ["write"]:
        PAGE.write_text(page(), "utf-8")
    elif sys.argv[1:] == ["check"]:
        sys.exit(check())
    else:
        sys.exit(__doc__)
