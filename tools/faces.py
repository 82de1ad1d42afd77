"""The faces of ``torchx`` for type checkers: ``python tools/faces.py write``, ``check`` compares.

A module of the facade that is another one's face finds its names when it runs. Its stub, a ``.pyi``
beside it, says where each of them is defined, so that type checkers and editors see the same: all
public names of upstream's releases (``data/names-*.json``), what clients use beyond them, and what
the module behind it exports.

Needs an environment in which all of the workspace is installed.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import public_names
from distributions import PACKAGES, ROOT

HEAD = "# Written by `python tools/faces.py write`: what type checkers see of the module."

# Names with an underscore that clients use: NeMo-Run and forks of components.
PRIVATE = {
    "torchx.cli.cmd_log": ("_prefix_line",),
    "torchx.components.dist": ("_TORCH_DEBUG_FLAGS", "_args_join", "_noquote"),
    "torchx.schedulers.docker_scheduler": ("_to_str",),
    "torchx.schedulers.local_scheduler": ("_LocalAppDef",),
    "torchx.specs": ("_named_resource_factories",),
    "torchx.specs.finder": ("_Component",),
    "torchx.util.log_tee_helpers": ("_find_role_replicas", "_prefix_line"),
}


def faces() -> Iterator[tuple[str, ModuleType]]:
    """Yields the modules of the facade that are faces of others."""
    import torchx

    for found in pkgutil.walk_packages(torchx.__path__, "torchx."):
        if found.name.endswith("__main__"):
            continue
        module = importlib.import_module(found.name)
        if type(module).__name__ == "_ForwardingModule":
            yield found.name, module


def names_of(name: str, module: ModuleType) -> list[str]:
    """Returns the names that a face should show, but for its sub-modules."""
    wanted = {n for modules in public_names.peers().values() for n in modules.get(name, ())}
    wanted.update(PRIVATE.get(name, ()), vars(module).get("__all__", ()))
    for source in vars(module).get("_sources", ())[:1]:
        wanted.update(vars(importlib.import_module(source)).get("__all__", ()))
    return sorted(n for n in wanted if not isinstance(getattr(module, n, module), ModuleType))


@cache
def defined_in(module: str) -> frozenset[str]:
    """Returns what a module's source defines at its top, as a type checker sees it."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        return frozenset()
    found: set[str] = set()
    for node in ast.parse(Path(spec.origin).read_text("utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return frozenset(found)


@cache
def definitions() -> dict[str, list[str]]:
    """Returns, by name, the modules of ours (no faces) that define it."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGES.glob("*/src/**/*.py")):
        parts = path.relative_to(path.parents[len(path.parts) - path.parts.index("src") - 2]).parts
        module = ".".join(parts).removesuffix(".py").removesuffix(".__init__")
        for name in defined_in(module) if "__main__" not in module else ():
            found.setdefault(name, []).append(module)
    return found


def home_of(name: str, value: Any) -> tuple[str, str] | None:
    """Returns the module that defines a value, and its name there; None if no source says so."""
    module = getattr(value, "__module__", None)
    own = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(own, str) or not own.isidentifier():
        module = own = ""
    found = getattr(sys.modules.get(module), own, None) is value
    if found and own in defined_in(module) and module.startswith("torchx"):
        return module, own
    # The data model first: a constant of it may have an equal one elsewhere.
    for candidate in sorted(definitions().get(name, ()), key=lambda m: "torchx_specs" not in m):
        try:
            same = getattr(importlib.import_module(candidate), name)
        except (ImportError, AttributeError):
            continue
        if same is value or (type(same) is type(value) and same == value):
            return candidate, name
    return (module, own) if found and not module.startswith("torchx") else None


def render(name: str, module: ModuleType) -> str:
    """Returns the text of a face's stub."""
    imports: dict[str, list[str]] = {}
    rest = []
    for own in names_of(name, module):
        try:
            value = getattr(module, own)
        except (AttributeError, ImportError):
            continue  # docs/public-names.md has the reason
        home = home_of(own, value)
        if home is not None and home[0] != name:
            # Only `x as x` makes a name of a stub public.
            shown = own if own == home[1] else f"_{own.strip('_')}_"
            imports.setdefault(home[0], []).append(f"{home[1]} as {shown}")
            if shown != own:
                rest.append(f"{own} = {shown}")
        elif inspect.isclass(value):  # defined in the face itself, on what is defined elsewhere
            bases = [home_of(base.__name__, base) for base in value.__bases__]
            for base_module, base_name in filter(None, bases):
                imports.setdefault(base_module, []).append(f"{base_name} as _{base_name}_")
            given = ", ".join(f"_{base[1]}_" for base in bases if base)
            rest.append(f"class {own}({given}): ...")
        elif callable(value):
            rest.append(f"{own}: Callable[..., Any]")
        else:
            rest.append(f"{own}: Any")
    lines = [HEAD]
    if any("Callable" in line for line in rest):
        lines.append("from collections.abc import Callable")
    if any("Any" in line for line in rest):
        lines.append("from typing import Any")
    if hasattr(module, "__path__"):
        beside = sorted(m.name for m in pkgutil.iter_modules(module.__path__) if m.name[0] != "_")
        lines += [f"from {name} import {m} as {m}" for m in beside]
    for home_module, ones in sorted(imports.items()):
        lines += [f"from {home_module} import {one}" for one in sorted(set(ones))]
    return "\n".join([*lines, *([""] if rest else []), *rest]) + "\n"


def main() -> int:
    warnings.simplefilter("ignore")
    if sys.argv[1:] not in (["write"], ["check"]):
        print(__doc__)
        return 2
    wrong = []
    for name, module in faces():
        path = Path(str(module.__file__)).with_suffix(".pyi")
        text = render(name, module)
        if not path.exists() or path.read_text("utf-8") != text:
            wrong.append(path.relative_to(ROOT))
            if sys.argv[1] == "write":
                path.write_text(text, "utf-8")
    if sys.argv[1] == "write":
        print(f"{len(wrong)} stubs written")
        return 0
    for path in wrong:
        print(f"{path} is not what tools/faces.py writes")
    print(f"{len(wrong)} stubs differ: run `python tools/faces.py write`" if wrong else "stubs: ok")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
