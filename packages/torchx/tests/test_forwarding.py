"""Tests of modules that forward their attributes to other modules."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from types import ModuleType
from unittest import mock

import pytest

import torchx
import torchx_specs
from torchx._forward import _ForwardingModule

# Modules that forward to distributions on which torchx does not depend.
OPTIONAL = ("torchx.testing.", "torchx.notebook", "torchx.tracker.mlflow")


def module_names() -> list[str]:
    found = pkgutil.walk_packages(torchx.__path__, "torchx.")
    return [m.name for m in found if not m.name.endswith("__main__")]


def _forwarded(module: ModuleType) -> Iterable[str]:
    return vars(module).get("_names", ()) if isinstance(module, _ForwardingModule) else ()


@pytest.mark.parametrize("name", module_names())
def test_every_module_imports(name: str) -> None:
    assert importlib.import_module(name).__name__ == name


@pytest.mark.parametrize(
    "name", [n for n in module_names() if not n.startswith(OPTIONAL) and "_scheduler" not in n]
)
def test_every_name_that_a_module_lists_exists(name: str) -> None:
    module = importlib.import_module(name)
    for attribute in getattr(module, "__all__", None) or _forwarded(module):
        assert hasattr(module, attribute), attribute


@pytest.mark.parametrize("name", ["AppDef", "Role", "Resource", "runopts", "macros", "resource"])
def test_a_name_is_the_same_object_everywhere(name: str) -> None:
    import torchx.specs as specs

    assert getattr(specs, name) is getattr(torchx_specs, name)
    assert getattr(importlib.import_module("torchx.specs.api"), name) is getattr(specs, name)


def test_star_import_brings_the_documented_names() -> None:
    namespace: dict[str, object] = {}
    exec("from torchx.specs import *", namespace)  # noqa: S102 - the statement is the test
    assert namespace["AppDef"] is torchx_specs.AppDef
    assert callable(namespace["parse_mounts"])


def test_a_patch_at_the_older_path_takes_effect_and_is_undone() -> None:
    from torchx_specs.options import run_options

    original = run_options.runopts.resolve
    with mock.patch("torchx.specs.api.runopts.resolve", return_value={"patched": 1}):
        assert torchx_specs.runopts().resolve({}) == {"patched": 1}
    assert run_options.runopts.resolve is original

    plain = importlib.import_module("torchx_kit.names.ids").make_unique
    with mock.patch("torchx.schedulers.ids.make_unique", lambda name: name + "-0"):
        from torchx_kit.names import ids

        assert ids.make_unique("a") == "a-0"
    assert importlib.import_module("torchx_kit.names.ids").make_unique is plain


@pytest.mark.parametrize("name", ["lsf", "kubernetes", "local", "docker"])
def test_a_patched_function_is_replaced_where_a_back_end_calls_it(name: str) -> None:
    from torchx_specs import AppDef, Resource, Role

    module = importlib.import_module(f"torchx.schedulers.{name}_scheduler")
    role = Role("r", "image", entrypoint="echo", resource=Resource(1, 0, 100))
    with closing(module.create_scheduler("session")) as scheduler:
        with mock.patch.object(module, "make_unique", return_value="fixed-1"):
            assert "fixed-1" in str(scheduler.submit_dryrun(AppDef("a", [role]), {}))
        assert "fixed-1" not in str(scheduler.submit_dryrun(AppDef("a", [role]), {}))


def test_patched_factories_are_those_of_a_runner() -> None:
    from torchx.runner import get_runner

    factories = {"own": mock.Mock()}
    with (
        mock.patch("torchx.runner.api.get_scheduler_factories", return_value=factories),
        get_runner() as runner,
    ):
        assert runner.scheduler_backends() == ["own"]
    with get_runner() as runner:
        assert "local_cwd" in runner.scheduler_backends()


def test_monkeypatch_of_pytest_is_undone() -> None:
    from torchx_kit.names import ids

    plain = ids.make_unique
    for _ in range(2):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("torchx.schedulers.ids.make_unique", lambda name: name + "-0")
            assert ids.make_unique("a") == "a-0"
        assert ids.make_unique is plain


def test_an_unknown_name_is_an_attribute_error_and_an_import_error() -> None:
    import torchx.specs.api as api

    with pytest.raises(AttributeError, match=r"torchx\.specs\.api.*no_such_name"):
        _ = api.no_such_name
    with pytest.raises(ImportError, match="no_such_name"):
        exec("from torchx.specs.api import no_such_name")  # noqa: S102 - the statement is the test


def test_submodules_are_reachable_as_attributes() -> None:
    code = "import torchx.specs as s; s.api.AppDef; s.builders.make_app_handle; s.overlays.PUT"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_specs_loads_no_plugin() -> None:
    code = (
        "import sys, torchx.specs as s\n"
        "s.AppDef('a', [s.Role('r', 'i', resource=s.Resource(1, 0, 1))])\n"
        "bad = {'pluggy', 'yaml', 'asyncio', 'torchx_runner', 'torchx_resources_aws'}\n"
        "assert not bad & set(sys.modules), bad & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_dry_run_info_has_public_and_private_attributes() -> None:
    from torchx.specs import AppDef, AppDryRunInfo

    info: AppDryRunInfo[str] = AppDryRunInfo("request", str)
    app = AppDef("a")
    info._app = app
    info._cfg = {"x": 1}
    info._scheduler = "s"
    assert (info.app, info.cfg, str(info)) == (app, {"x": 1}, "request")
    info.app = None
    assert info._app is None


def test_a_missing_distribution_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torchx import _forward

    module = type(sys)("torchx.schedulers.absent_scheduler")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    _forward.forward_backend(
        module.__name__, "no_such_distribution.scheduler", extra="x", distribution="torchx-absent"
    )
    with pytest.raises(torchx_specs.PluginError, match=r"pip install 'torchx\[x\]'"):
        module.create_scheduler("session", foo=1)
    with pytest.raises(ImportError, match=r"AbsentScheduler.*pip install 'torchx\[x\]'"):
        _ = module.AbsentScheduler


@pytest.mark.parametrize("name", ["ray", "gcp_batch"])
def test_a_scheduler_that_no_release_has_says_what_to_use_instead(name: str) -> None:
    module = importlib.import_module(f"torchx.schedulers.{name}_scheduler")
    message = f"no scheduler '{name}'; use the scheduler 'kubernetes'"
    with pytest.raises(torchx_specs.PluginError, match=message):
        module.create_scheduler("session")
    with pytest.raises(ImportError, match=message):
        _ = module.AbsentScheduler


def test_the_default_image_comes_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = "import torchx; print(torchx.IMAGE)"
    monkeypatch.setenv("TORCHX_IMAGE", "mine:1")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "mine:1"
    monkeypatch.delenv("TORCHX_IMAGE")
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "ghcr.io/pytorch/torchx:0.7.0"
