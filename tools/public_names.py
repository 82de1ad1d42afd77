"""Every public name of upstream's releases beside ours.

Names are read from installed wheels by importing their modules in an environment that has them::

    python tools/public_names.py collect PEER_PYTHON VERSION  # to tools/data/names-VERSION.json
    python tools/public_names.py write                        # to docs/public-names.md
    python tools/public_names.py check                        # a name missing without a reason?

``check`` and ``write`` need an environment in which our ``torchx`` is installed.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tools" / "data"
PAGE = ROOT / "docs" / "public-names.md"

# Runs in the peer's environment: nothing of ours is there.
COLLECT = """
import importlib, json, pkgutil, sys, types, warnings
warnings.simplefilter("ignore")
try:  # a module of magics imports only where there is a shell
    import builtins
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    builtins.get_ipython = lambda: shell
except ImportError:
    pass
import torchx
found = {}
for info in pkgutil.walk_packages(torchx.__path__, "torchx.", onerror=lambda name: None):
    parts = info.name.split(".")
    if "test" in parts or "integration_tests" in parts or "examples" in parts:
        continue
    try:
        module = importlib.import_module(info.name)
    except BaseException as e:
        found[info.name] = {"error": f"{type(e).__name__}: {e}"}
        continue
    names = []
    for name, value in vars(module).items():
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        home = getattr(value, "__module__", None) or info.name
        if isinstance(home, str) and home.split(".")[0] == "torchx":
            names.append(name)
    found[info.name] = {"names": sorted(names)}
found["torchx"] = {"names": ["IMAGE"]}
print()  # what is imported may have printed something
json.dump(found, sys.stdout)
"""

# Names that are not taken over, and why. A whole module stands without a name.
REASONS = {
    "torchx.schedulers.ray_scheduler": "no Ray scheduler is planned; a site adds one by the hook",
    "torchx.schedulers.ray": "no Ray scheduler is planned; a site adds one by the hook",
    "torchx.schedulers.gcp_batch_scheduler": "no GCP Batch scheduler is planned; a site adds one"
    " by the hook",
    "torchx.pipelines.kfp": "the adapter to Kubeflow Pipelines v1 was removed upstream, too",
}
# Inner workings, or typing leftovers, under a name without an underscore.
INNER = {"T", "S", "V", "F", "TYPE_CHECKING", "CfgT"}


def collect(python: str, version: str) -> None:
    """Writes the names of the release installed beside ``python``.

    A module that lacks what it imports there keeps the names that were found before.
    """
    done = subprocess.run([python, "-c", COLLECT], capture_output=True, text=True, check=True)
    DATA.mkdir(exist_ok=True)
    path = DATA / f"names-{version}.json"
    found = json.loads(done.stdout.splitlines()[-1])
    before = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for module, entry in before.items():
        if "names" in entry and "names" not in found.get(module, {}):
            found[module] = entry
    path.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", "utf-8")


def peers() -> dict[str, dict[str, set[str]]]:
    """Returns ``{version: {module: names}}``."""
    found = {}
    for path in sorted(DATA.glob("names-*.json")):
        modules = json.loads(path.read_text())
        found[path.stem.removeprefix("names-")] = {
            module: {n for n in entry.get("names", ()) if n not in INNER}
            for module, entry in modules.items()
        }
    return found


def ours(module: str, name: str) -> str:
    """Returns where the name lives with us, or an empty string."""
    try:
        value = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return ""
    home = getattr(value, "__module__", None)
    return home if isinstance(home, str) and home.startswith("torchx") else "a value"


def reason(module: str, name: str) -> str:
    """Returns why a name is missing, or an empty string."""
    for prefix, why in REASONS.items():
        if module == prefix or module.startswith(prefix + "."):
            return why
    return REASONS.get(f"{module}.{name}", "")


def rows() -> list[tuple[str, str, list[str], str, str]]:
    """Returns module, name, the releases that have it, where it is with us, why not."""
    versions = peers()
    by_name: dict[tuple[str, str], list[str]] = {}
    for version, modules in versions.items():
        for module, names in modules.items():
            for name in names:
                by_name.setdefault((module, name), []).append(version)
    found = []
    for (module, name), have in sorted(by_name.items()):
        home = ours(module, name)
        found.append((module, name, have, home, "" if home else reason(module, name)))
    return found


def write() -> None:
    """Writes the page."""
    lines = [
        "# Public names",
        "",
        "Every public name of upstream's releases, and where it lives here. Written by",
        "`python tools/public_names.py write`.",
        "",
        "| name | upstream | here |",
        "|---|---|---|",
    ]
    for module, name, have, home, why in rows():
        lines.append(f"| `{module}.{name}` | {', '.join(have)} | {home or '— ' + why} |")
    PAGE.write_text("\n".join(lines) + "\n")


def missing() -> list[str]:
    """Returns the names that are missing without a reason."""
    return [f"{m}.{n} ({', '.join(v)})" for m, n, v, home, why in rows() if not home and not why]


def main() -> int:
    warnings.simplefilter("ignore")
    match sys.argv[1:]:
        case ["collect", python, version]:
            collect(python, version)
        case ["write"]:
            write()
        case ["check"]:
            names = missing()
            print("\n".join(names) or "every public name is here, or has its reason")
            return 1 if names else 0
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
