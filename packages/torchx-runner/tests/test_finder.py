"""Tests of finding, naming, checking and listing components, and of reading their source."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchx_runner.components import finder
from torchx_specs import (
    AppDef,
    ComponentError,
    ComponentNotFoundException,
    ComponentValidationException,
    PluginError,
)
from torchx_specs.file_linter import ComponentFunctionValidator, LinterMessage
from torchx_specs.hookspecs import ComponentPlugin

HEAD = "from torchx_specs import AppDef\n"
GOOD = (
    HEAD
    + 'def {name}(x: int = 1) -> AppDef:\n    """Does {name}."""\n    return AppDef("{name}")\n'
)


@pytest.fixture
def lib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder on sys.path; modules imported from it are removed at the end."""
    folder = tmp_path / "lib"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    before = set(sys.modules)
    yield folder
    here = {path.stem for path in folder.iterdir()}
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in here:
            del sys.modules[name]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def acme(lib: Path) -> Path:
    """Write a package with valid and invalid components; return the folder of the package."""
    write(
        lib,
        {
            "acme/__init__.py": GOOD.format(name="top"),
            "acme/train.py": GOOD.format(name="ddp")
            + GOOD.format(name="_private")
            + "def helper(x: int) -> int:\n    return x\n"
            + "class Klass:\n    def __init__(self, n: int = 1) -> None: ...\n"
            + "    def build(self) -> AppDef:\n        return AppDef('klass')\n"
            + "class Plain:\n    pass\n",
            "acme/sub/__init__.py": "",
            "acme/sub/serve.py": GOOD.format(name="http"),
            "acme/imports.py": "from acme.train import ddp, helper\nfrom os.path import join\n",
            "acme/broken.py": "import no_such_module_anywhere\n",
            "acme/syntax.py": "def f(:\n",
            "acme/__main__.py": "raise SystemExit('ran as a program')\n",
            "acme/folder/inside.py": GOOD.format(name="hidden"),
        },
    )
    return lib


def registered(plugins: Any, *groups: tuple[str, str], **options: Any) -> None:
    kind = {key: options.pop(key, False) for key in ("replaces_builtins", "builtin")}
    records = [ComponentPlugin(group, module, **kind) for group, module in groups]
    plugins.add("torchx_components", *records, **options)


# -- names of components


@pytest.mark.parametrize(
    ("group", "prefix"), [("acme", "acme."), ("a.b", "a.b."), ("", ""), ("_", ""), ("_0", "")]
)
def test_component_names_consist_of_group_module_and_function(
    acme: Path, plugins: Any, group: str, prefix: str
) -> None:
    registered(plugins, (group, "acme"))
    assert set(finder.list_components().components) == {
        f"{prefix}top",
        f"{prefix}train.ddp",
        f"{prefix}train.Klass",
        f"{prefix}sub.serve.http",
        f"{prefix}imports.ddp",
    }
    for name in ("top", "train.ddp", "sub.serve.http"):
        component = finder.get_component(prefix + name)
        assert component.name == prefix + name
        assert component.fn_name == name.rpartition(".")[2]
        assert component.fn().name == component.fn_name
        assert component.description == f"Does {component.fn_name}."
        assert component.validation_errors == []


def test_group_may_be_a_single_module(acme: Path, plugins: Any) -> None:
    registered(plugins, ("t", "acme.train"))
    assert set(finder.get_components()) == {"t.ddp", "t.Klass"}


def test_lookup_imports_only_the_named_module(acme: Path, plugins: Any) -> None:
    registered(plugins, ("acme", "acme"))
    finder.get_component("acme.sub.serve.http")
    assert {name for name in sys.modules if name.startswith("acme")} == {
        "acme",
        "acme.sub",
        "acme.sub.serve",
    }


def test_class_with_build_is_a_component(acme: Path, plugins: Any) -> None:
    registered(plugins, ("acme", "acme"))
    component = finder.get_component("acme.train.Klass")
    assert component.fn(n=2).name == "klass"


def test_private_function_is_found_by_name_but_not_listed(acme: Path, plugins: Any) -> None:
    registered(plugins, ("acme", "acme"))
    assert finder.get_component("acme.train._private").fn().name == "_private"


# -- broken modules


def test_broken_module_does_not_hide_others(
    acme: Path, plugins: Any, caplog: pytest.LogCaptureFixture
) -> None:
    registered(plugins, ("acme", "acme"))
    listing = finder.list_components()
    assert "acme.train.ddp" in listing.components
    told = {p.module: str(p) for p in listing.problems}
    assert set(told) == {"acme.broken", "acme.syntax"}
    assert told["acme.broken"] == (
        "components of acme.broken (acme 1.0): acme.broken: cannot be loaded:"
        " ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    )
    assert "syntax.py:1: SyntaxError" in told["acme.syntax"]
    assert finder.get_components().keys() == listing.components.keys()
    assert "no_such_module_anywhere" in caplog.text


def test_an_invalid_component_is_a_problem_and_a_helper_is_not(
    lib: Path, plugins: Any, caplog: pytest.LogCaptureFixture
) -> None:
    text = GOOD.format(name="fine") + (
        "def untyped(n) -> AppDef:\n    return fine()\n\ndef helper(n) -> int:\n    return n\n"
    )
    write(lib, {"mixed.py": text})
    registered(plugins, ("m", "mixed"), distribution="acme")
    listing = finder.list_components()
    assert list(listing.components) == ["m.fine"]
    (problem,) = map(str, listing.problems)
    assert problem.startswith("components of mixed (acme 1.0): m.untyped is left out: ")
    assert "Missing type annotation for argument 'n' in function 'untyped'" in problem
    assert finder.get_components().keys() == listing.components.keys()
    assert "m.untyped is left out" in caplog.text


def test_lookup_in_a_broken_module_is_an_error(acme: Path, plugins: Any) -> None:
    registered(plugins, ("acme", "acme"))
    with pytest.raises(ComponentError, match=r"acme\.broken of acme 1\.0: cannot be loaded"):
        finder.get_component("acme.broken.x")


def test_missing_registered_module_is_a_problem(lib: Path, plugins: Any) -> None:
    write(lib, {"fine.py": GOOD.format(name="f")})
    registered(plugins, ("gone", "no_such_package"), ("fine", "fine"))
    listing = finder.list_components()
    assert list(listing.components) == ["fine.f"]
    assert [p.module for p in listing.problems] == ["no_such_package"]
    with pytest.raises(ComponentError, match="No module named 'no_such_package'"):
        finder.get_component("gone.x")


def test_module_that_calls_sys_exit_is_a_problem(lib: Path, plugins: Any) -> None:
    write(lib, {"pkg/__init__.py": "", "pkg/ends.py": "import sys; sys.exit('bye')"})
    registered(plugins, ("p", "pkg"))
    assert "SystemExit: bye" in finder.list_components().problems[0].message


# -- components of several plugins


@pytest.fixture
def two(lib: Path) -> Path:
    write(
        lib,
        {
            "one/__init__.py": "",
            "one/utils.py": GOOD.format(name="echo") + GOOD.format(name="only_one"),
            "two/__init__.py": "",
            "two/utils.py": GOOD.format(name="echo"),
        },
    )
    return lib


def test_conflicting_component_names_are_an_error(two: Path, plugins: Any) -> None:
    registered(plugins, ("", "one"), distribution="dist-one")
    registered(plugins, ("", "two"), distribution="dist-two")
    with pytest.raises(PluginError) as error:
        finder.get_component("utils.echo")
    assert "dist-one 1.0" in str(error.value)
    assert "dist-two 1.0" in str(error.value)
    listing = finder.list_components()
    assert list(listing.components) == ["utils.only_one"]
    assert "registered by" in listing.problems[0].message
    assert finder.get_component("two.utils:echo").fn.__module__ == "two.utils"


def test_a_missing_built_in_component_names_its_distribution(two: Path, plugins: Any) -> None:
    with pytest.raises(ComponentNotFoundException, match="run: pip install torchx-components"):
        finder.get_component("dist.ddp")
    registered(plugins, ("", "one"))
    with pytest.raises(ComponentNotFoundException, match="run: pip install torchx-components"):
        finder.get_component("dist.ddp")
    with pytest.raises(ComponentNotFoundException, match=r"no component 'utils\.copy'; "):
        finder.get_component("utils.copy")


def test_deliberate_override_wins(two: Path, plugins: Any) -> None:
    registered(plugins, ("", "one"), distribution="dist-one")
    registered(plugins, ("", "two"), distribution="dist-two", tryfirst=True)
    assert finder.get_component("utils.echo").fn.__module__ == "two.utils"
    listing = finder.list_components()
    assert listing.components["utils.echo"].fn.__module__ == "two.utils"
    assert listing.problems == []


def test_last_group_of_a_distribution_wins(two: Path, plugins: Any) -> None:
    registered(plugins, ("_0", "one"), ("_1", "two"))
    assert finder.get_component("utils.echo").fn.__module__ == "two.utils"
    assert finder.get_components()["utils.echo"].fn.__module__ == "two.utils"


def test_module_registered_twice_is_not_a_conflict(two: Path, plugins: Any) -> None:
    registered(plugins, ("", "one"), distribution="a")
    registered(plugins, ("_", "one"), ("again", "one"), distribution="b")
    assert set(finder.get_components()) == {
        "utils.echo",
        "utils.only_one",
        "again.utils.echo",
        "again.utils.only_one",
    }
    assert finder.get_component("utils.echo").fn.__module__ == "one.utils"


def test_group_with_replaces_builtins_hides_the_builtins(two: Path, plugins: Any) -> None:
    registered(plugins, ("", "one"), distribution="ours", builtin=True)
    registered(plugins, ("mine", "two"), distribution="mine", replaces_builtins=True)
    assert set(finder.get_components()) == {"mine.utils.echo"}
    with pytest.raises(ComponentNotFoundException):
        finder.get_component("utils.echo")


def test_group_with_replaces_builtins_hides_no_other_plugin(two: Path, plugins: Any) -> None:
    registered(plugins, ("new", "one"), distribution="newer")
    registered(plugins, ("mine", "two"), distribution="mine", replaces_builtins=True)
    assert "new.utils.echo" in finder.get_components()


# -- components that no plugin registers


@pytest.mark.parametrize("name", ["acme.train:ddp", "acme.train.ddp", "acme.sub.serve.http"])
def test_importable_modules_need_no_plugin(acme: Path, name: str) -> None:
    component = finder.get_component(name)
    assert component.name == name
    assert isinstance(component.fn(), AppDef)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("acme.train.dpp", "did you mean 'acme.train.ddp'"),
        ("acme.trian.ddp", "did you mean 'acme.train.ddp'"),
        ("ddp", "no component 'ddp'"),
        ("acme.train:dpp", "did you mean 'ddp'"),
        ("acme.tran:ddp", "no module 'acme.tran' on sys.path"),
        ("acme.folder:hidden", "acme.folder is a folder without __init__.py, not a module"),
        ("acme.train:", "give a component as"),
        (":ddp", "give a component as"),
        ("acme.train:not a name", "give a component as"),
        ("", "must be a str"),
        ("acme.train.join", "no component 'acme.train.join'"),
        ("...", "no component '...'"),
    ],
)
def test_unknown_name_is_an_error_with_the_nearest_name(
    acme: Path, plugins: Any, name: str, text: str
) -> None:
    registered(plugins, ("acme", "acme"))
    with pytest.raises(ComponentNotFoundException) as error:
        finder.get_component(name)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_imported_function_is_not_a_component_of_the_module(acme: Path, plugins: Any) -> None:
    registered(plugins, ("acme", "acme"))
    with pytest.raises(ComponentError):
        finder.get_component("acme.imports.join")


# -- rules for valid components


RULES = (
    HEAD
    + '''
import functools
from dataclasses import dataclass

def plain(x: int, *rest: str, key: "str | None" = None) -> AppDef: ...
def quoted() -> "AppDef": ...
def bare(x, y: int) -> AppDef: ...
def no_return(x: int): ...
def wrong_return(x: int) -> int: ...
def unsupported(x: bytes) -> AppDef: ...
def any_name(**kwargs: str) -> AppDef: ...
async def later() -> AppDef: ...

def decorator(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)
    return wrapper

def careless(fn):
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)
    return wrapper

@decorator
def decorated(x: int = 3) -> AppDef: ...

@careless
def hidden_signature(x: int = 3) -> AppDef: ...

class Built:
    """What it builds."""
    def __init__(self, x: int) -> None:
        self.x = x
    def build(self) -> AppDef:
        return AppDef(str(self.x))

@dataclass
class Data:
    x: int
    def build(self) -> AppDef:
        return AppDef(str(self.x))

class Inherits(Built): ...
class NoBuild:
    def __init__(self, x: int) -> None: ...
class BareClass:
    def __init__(self, x) -> None: ...
    def build(self) -> AppDef: ...

value = "text"
made = lambda: AppDef("made")
'''
)


@pytest.fixture
def rules(cwd: Path) -> None:
    (cwd / "rules.py").write_text(RULES)


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("name", ["plain", "quoted", "decorated", "Built", "Data", "Inherits"])
def test_valid_components(name: str) -> None:
    assert finder.get_component(f"rules.py:{name}").validation_errors == []


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("name", ["Built", "Data", "Inherits"])
def test_class_components_have_the_constructors_signature(name: str) -> None:
    import inspect

    fn = finder.get_component(f"rules.py:{name}").fn
    assert list(inspect.signature(fn).parameters) == ["x"]
    assert fn(7).name == "7"
    assert fn.__name__ == name


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize(
    ("name", "texts"),
    [
        ("bare", ["rules.py:8: ", "'x'"]),
        ("no_return", ["rules.py:9: ", "AppDef"]),
        ("wrong_return", ["rules.py:10: ", "'int'"]),
        ("unsupported", ["rules.py:11: ", "bytes"]),
        ("any_name", ["rules.py:12: ", "kwargs"]),
        ("later", ["rules.py:13: ", "async"]),
        ("NoBuild", ["NoBuild", "build"]),
        ("BareClass", ["'x'"]),
        ("value", ["value is a str, not a function"]),
        ("made", ["AppDef"]),
    ],
)
def test_invalid_components(name: str, texts: list[str]) -> None:
    with pytest.raises(ComponentValidationException) as error:
        finder.get_component(f"rules.py:{name}")
    assert str(error.value).startswith(f"component rules.py:{name} is not valid: ")
    assert [text for text in texts if text not in str(error.value)] == []


@pytest.mark.usefixtures("rules")
def test_source_is_read_if_the_signature_is_hidden() -> None:
    assert finder.get_component("rules.py:hidden_signature").validation_errors == []


class NoUnderscores(ComponentFunctionValidator):
    def validate(self, app_specs_func_def: Any) -> list[LinterMessage]:
        if "_" in app_specs_func_def.name:
            return [self._gen_linter_message("has an underscore", app_specs_func_def)]
        return []


@pytest.mark.usefixtures("rules")
def test_given_validators_replace_the_rules() -> None:
    assert finder.get_component("rules.py:plain", [NoUnderscores()]).validation_errors == []
    assert finder.get_component("rules.py:bare", []).validation_errors == []
    with pytest.raises(ComponentValidationException, match="has an underscore"):
        finder.get_component("rules.py:wrong_return", [NoUnderscores()])


def test_given_validators_apply_to_listings(acme: Path, plugins: Any) -> None:
    registered(plugins, ("acme", "acme"))

    class NoClasses(NoUnderscores):
        def validate(self, app_specs_func_def: Any) -> list[LinterMessage]:
            upper = app_specs_func_def.name[0].isupper()
            return [self._gen_linter_message("", app_specs_func_def)] if upper else []

    assert "acme.train.Klass" not in finder.get_components([NoClasses()])
    assert "acme.train.ddp" in finder.get_components([NoClasses()])


# -- the finder classes


def test_module_finder_returns_invalid_components(acme: Path) -> None:
    found = finder.ModuleComponentsFinder("acme.train", "g").find(None)
    assert {c.name: bool(c.validation_errors) for c in found} == {
        "g.ddp": False,
        "g.helper": True,
        "g.Klass": False,
    }


def test_module_finder_takes_a_module(acme: Path) -> None:
    found = finder.ModuleComponentsFinder(importlib.import_module("acme.sub"), "").find(None)
    assert [c.name for c in found] == ["serve.http"]


def test_a_namespace_package_can_be_registered_itself(lib: Path, plugins: Any) -> None:
    write(
        lib,
        {
            "space/part.py": GOOD.format(name="f"),
            "space/deeper/inside.py": GOOD.format(name="g"),
        },
    )
    registered(plugins, ("s", "space"))
    assert list(finder.get_components()) == ["s.part.f"]


def test_custom_finder(acme: Path, cwd: Path) -> None:
    (cwd / "own.py").write_text(GOOD.format(name="f"))
    [component] = finder.CustomComponentsFinder("own.py", "f").find(None)
    assert (component.name, component.fn_name) == ("own.py:f", "f")


def test_packages_and_namespace_packages_are_distinguished(acme: Path) -> None:
    top, sub, serve, folder = map(
        importlib.import_module, ("acme", "acme.sub", "acme.sub.serve", "acme.folder")
    )
    assert [finder.is_package(m) for m in (top, sub, serve, folder)] == [True, True, False, False]
    assert finder.is_namespace_package(folder)
    assert not finder.is_namespace_package(sub)
    assert finder.module_relname(serve, relative_to=top) == "sub.serve"
    assert finder.module_relname(top, relative_to=top) == ""
    with pytest.raises(ValueError, match="is not in package"):
        finder.module_relname(top, relative_to=sub)


# -- source code of components


def test_source_has_the_imports_it_needs(lib: Path, plugins: Any) -> None:
    write(
        lib,
        {
            "src.py": '"""Doc."""\nimport os\nfrom typing import (\n    Any,\n    List,\n)\n'
            + HEAD
            + "def other() -> AppDef: ...\n\n\nimport json\n\n"
            + "@staticmethod\ndef f(x: int = 1) -> AppDef:\n    return AppDef('f')\n\nimport sys\n"
        },
    )
    registered(plugins, ("s", "src"))
    assert finder.get_builtin_source("src.f") == (
        "import os\nfrom typing import (\n    Any,\n    List,\n)\n"
        "from torchx_specs import AppDef\nimport json\n\n\n"
        "@staticmethod\ndef f(x: int = 1) -> AppDef:\n    return AppDef('f')\n"
    )


def test_source_of_a_class(acme: Path) -> None:
    assert finder.get_builtin_source("acme.train:Klass").splitlines()[-1].endswith("('klass')")


def test_source_of_a_missing_component_is_an_error(plugins: Any) -> None:
    with pytest.raises(ComponentNotFoundException):
        finder.get_builtin_source("nope")
