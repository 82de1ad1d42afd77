"""Tests of the modules that an import loads, and of the names that load modules later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import torchx_specs

SOURCE = str(Path(torchx_specs.__file__).parents[1])
#: Modules that importing torchx_specs must not load. (The module dataclasses loads inspect.)
HEAVY = [
    "pluggy",
    "yaml",
    "fsspec",
    "asyncio",
    "subprocess",
    "importlib.metadata",
    "logging",
    "json",
    "pathlib",
    "typing_extensions",
    "tempfile",
    "shutil",
    "socket",
    "difflib",
]


def loaded_by(code: str, *names: str) -> set[str]:
    """Run code in a fresh interpreter, and return the names of the modules that it loaded."""
    program = (
        f"import sys; sys.path.insert(0, {SOURCE!r})\n"
        f"{code}\n"
        f"print(*[name for name in {list(names)!r} if name in sys.modules])"
    )
    # -S ignores the .pth files in site-packages, which load modules themselves.
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_the_package_alone() -> None:
    own = [
        "torchx_specs.model.app",
        "torchx_specs.model.resources",
        "torchx_specs.plugins",
        "dataclasses",
    ]
    assert loaded_by("import torchx_specs", *HEAVY, *own) == set()


@pytest.mark.parametrize(
    "code",
    [
        "from torchx_specs import AppDef, Role, Resource, macros, runopts, AppState, AppStatus",
        "from torchx_specs import AppDryRunInfo, parse_app_handle, Workspace, BindMount",
        "from torchx_specs import StructuredOpts, CapabilityKey, parse_mounts",
        "from torchx_specs import AppStatusError, TorchXError, resource, named_resources",
        "from torchx_specs.schedulers import Scheduler, DescribeAppResponse",
        "from torchx_specs.workspace import WorkspaceMixin",
        "from torchx_specs.trackers.api import TrackerBase",
        "from torchx_specs.hookspecs import SchedulerPlugin, hookimpl",
        "from torchx_specs.plugins.manager import PluginManager",
        "import torchx_specs.overlays, torchx_specs.settings",
    ],
)
def test_imports(code: str) -> None:
    assert loaded_by(code, *HEAVY) == set()


USES = """
from torchx_specs import AppDef, Resource, Role, macros, resource, runopts
app = AppDef("job", roles=[Role("r", "i", args=[macros.app_id], resource=resource(cpu=1))])
macros.Values("", "id", "0").apply(app.roles[0])
opts = runopts()
opts.add("a", type_=int, default=1, help="")
opts.resolve(opts.cfg_from_str("a=2"))
Resource(cpu=1, gpu=0, memMB=1)
"""


def test_making_a_job_loads_no_plugin() -> None:
    assert loaded_by(USES, *HEAVY, "torchx_specs.plugins.manager") == set()


def test_the_manager_loads_pluggy_once_a_hook_is_asked_for() -> None:
    code = "from torchx_specs.plugins.manager import get_manager; manager = get_manager()"
    assert loaded_by(code, "pluggy") == set()


def test_every_public_name_is_there() -> None:
    for name in torchx_specs.__all__:
        assert getattr(torchx_specs, name) is not None
    assert set(torchx_specs.__all__) <= set(dir(torchx_specs))


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'torchx_specs' has no attribute 'Rolle'"):
        torchx_specs.Rolle  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("package", ["torchx_specs", "workspace"])
def test_type_checking_imports_match_the_lazy_names(package: str) -> None:
    """Check that the imports under TYPE_CHECKING name exactly the lazy names."""
    import ast
    import importlib

    module = importlib.import_module(
        package if package == "torchx_specs" else f"torchx_specs.{package}"
    )
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text("utf-8"))
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    static = {
        (node.module, alias.asname or alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(name for _, name in static) == sorted(module.__all__)
    for source, name in static:
        assert getattr(importlib.import_module(str(source)), name) is getattr(module, name)


def test_no_module_is_named_like_a_public_name() -> None:
    """Check this, because a module with a public name would hide this name once it is imported."""
    folder = Path(SOURCE) / "torchx_specs"
    for init in folder.rglob("__init__.py"):
        package = init.parent.relative_to(folder.parent).as_posix().replace("/", ".")
        names = {p.stem for p in init.parent.iterdir() if p.suffix == ".py" or p.is_dir()}
        public = set(getattr(sys.modules.get(package), "__all__", ()))
        assert not names & public, package
