"""Tests of the rules that every component follows, of ComponentTestCase and the default image."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import torchx_components
from torchx_components import dist, images, metrics, plugin, serve, utils
from torchx_components.component_test_base import ComponentTestCase
from torchx_components.images import IMAGE
from torchx_specs import component_args_from_str, materialize_appdef
from torchx_specs.components.help import component_help
from torchx_specs.components.signature import SourceExpression, read_signature
from torchx_specs.components.source import read_source
from torchx_specs.errors import (
    ComponentNotFoundException,
    ComponentTypeError,
    ComponentValidationException,
)
from torchx_specs.file_linter import get_fn_docstring, validate

COMPONENTS = {
    "dist.ddp": dist.ddp,
    "dist.spmd": dist.spmd,
    "dist.torchrun": dist.torchrun,
    "metrics.tensorboard": metrics.tensorboard,
    "serve.torchserve": serve.torchserve,
    "utils.binary": utils.binary,
    "utils.booth": utils.booth,
    "utils.copy": utils.copy,
    "utils.echo": utils.echo,
    "utils.hydra": utils.hydra,
    "utils.python": utils.python,
    "utils.sh": utils.sh,
    "utils.touch": utils.touch,
}
MODULES = [info.name for info in pkgutil.iter_modules(torchx_components.__path__)]

every_component = pytest.mark.parametrize("component", COMPONENTS.values(), ids=COMPONENTS)


def test_package_has_exactly_these_components() -> None:
    """Check all modules: each public function that returns an AppDef is a component."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"torchx_components.{name}")
        for attribute, value in vars(module).items():
            is_ours = inspect.isfunction(value) and value.__module__ == module.__name__
            if is_ours and not attribute.startswith("_"):
                returned = value.__annotations__.get("return", "")
                if returned.rpartition(".")[2] == "AppDef":
                    found[f"{name}.{attribute}"] = value
    assert found == COMPONENTS


@pytest.mark.parametrize("name", ["interpret", "train"])
def test_modules_without_components(name: str) -> None:
    module = importlib.import_module(f"torchx_components.{name}")
    assert len(module.__doc__ or "") > 100


def test_plugin_registers_the_plain_names() -> None:
    (record,) = plugin.torchx_components()
    assert (record.group, record.module) == ("", "torchx_components")
    assert record.problem() is None
    assert not record.replaces_builtins


@every_component
def test_component_passes_the_linter(component: Any) -> None:
    path = inspect.getsourcefile(component)
    assert path is not None
    assert validate(path, component.__name__) == []


@every_component
def test_the_source_has_the_signature_of_the_imported_component(component: Any) -> None:
    path = inspect.getsourcefile(component)
    assert path is not None
    found = read_source(path).signature(component.__name__)
    assert found is not None
    imported = read_signature(component)
    assert (found.names, found.returns_app, found.doc) == (imported.names, True, imported.doc)
    for one, other in zip(found.parameters, imported.parameters, strict=True):
        # defaults that are expressions are known only after an import
        default = one.default if isinstance(one.default, SourceExpression) else other.default
        assert one.converter is not None
        assert other.converter is not None
        assert one == other._replace(converter=one.converter, default=default)
        assert one.converter.choices == other.converter.choices


@every_component
def test_every_parameter_is_documented(component: Any) -> None:
    description, parameters = get_fn_docstring(component)
    assert description
    assert set(parameters) == set(inspect.signature(component).parameters)
    assert [name for name, text in parameters.items() if not text.strip()] == []
    shown = component_help(component)
    assert all(f"--{name}" in shown for name in parameters if "args" not in name) or (
        component is utils.hydra
    )


REQUIRED = inspect.Parameter.empty
# The parameters of each component: scripts and forks rely on their names, order and defaults.
SIGNATURES: dict[str, dict[str, Any]] = {
    "dist.ddp": {
        "script_args": REQUIRED,
        "script": None,
        "m": None,
        "image": IMAGE,
        "name": "/",
        "h": None,
        "cpu": 2,
        "gpu": 0,
        "memMB": 1024,
        "j": "1x2",
        "env": None,
        "metadata": None,
        "max_retries": 0,
        "rdzv_port": 29500,
        "rdzv_backend": "c10d",
        "rdzv_conf": None,
        "mounts": None,
        "debug": False,
        "tee": 3,
    },
    "dist.spmd": {
        "args": REQUIRED,
        "script": None,
        "m": None,
        "image": IMAGE,
        "name": "/",
        "h": "gpu.small",
        "j": "1x1",
        "env": None,
        "metadata": None,
        "max_retries": 0,
        "mounts": None,
        "debug": False,
    },
    "utils.echo": {"msg": "hello world", "image": IMAGE, "num_replicas": 1},
    "utils.touch": {"file": REQUIRED, "image": IMAGE},
    "utils.sh": {
        "args": REQUIRED,
        "image": IMAGE,
        "num_replicas": 1,
        "cpu": 1,
        "gpu": 0,
        "memMB": 1024,
        "h": None,
        "env": None,
        "max_retries": 0,
        "mounts": None,
        "entrypoint": None,
    },
    "utils.python": {
        "args": REQUIRED,
        "m": None,
        "c": None,
        "script": None,
        "image": IMAGE,
        "name": "torchx_utils_python",
        "cpu": 1,
        "gpu": 0,
        "memMB": 1024,
        "h": None,
        "num_replicas": 1,
        "mounts": None,
        "env": None,
        "max_retries": 0,
    },
    "utils.binary": {
        "args": REQUIRED,
        "entrypoint": REQUIRED,
        "name": "torchx_utils_binary",
        "num_replicas": 1,
        "cpu": 1,
        "gpu": 0,
        "memMB": 1024,
        "h": None,
    },
    "utils.copy": {"src": REQUIRED, "dst": REQUIRED, "image": IMAGE, "mounts": None},
    "utils.booth": {
        "x1": REQUIRED,
        "x2": REQUIRED,
        "trial_idx": 0,
        "tracker_base": "/tmp/torchx-util-booth",
        "image": IMAGE,
    },
    "utils.hydra": {"overrides": REQUIRED, "config_name": REQUIRED, "config_dir": ".torchx"},
    "serve.torchserve": {
        "model_path": REQUIRED,
        "management_api": REQUIRED,
        "image": IMAGE,
        "params": None,
        "dryrun": False,
    },
    "metrics.tensorboard": {
        "logdir": REQUIRED,
        "image": IMAGE,
        "timeout": 3600,
        "port": 6006,
        "start_on_file": "",
        "exit_on_file": "",
    },
}
SIGNATURES["dist.torchrun"] = SIGNATURES["dist.ddp"]


@pytest.mark.parametrize("name", COMPONENTS)
def test_signature_is_unchanged(name: str) -> None:
    parameters = inspect.signature(COMPONENTS[name]).parameters
    assert {key: value.default for key, value in parameters.items()} == SIGNATURES[name]
    assert list(parameters) == list(SIGNATURES[name])


WORDS: list[tuple[str, list[str], dict[str, Any], list[str]]] = [
    (
        "dist.ddp",
        [
            "--script",
            "t.py",
            "-j",
            "1:2x4",
            "--memMB",
            "8",
            "--env",
            "A=1,B=x=y",
            "--debug",
            "--gpu",
            "4",
            "--",
            "--lr",
            "0.1",
        ],
        {
            "script": "t.py",
            "j": "1:2x4",
            "memMB": 8,
            "env": {"A": "1", "B": "x=y"},
            "debug": True,
            "gpu": 4,
        },
        ["--lr", "0.1"],
    ),
    ("dist.spmd", ["-m", "a.b", "-h", "gpu.large", "-j", "2"], {"m": "a.b", "h": "gpu.large"}, []),
    ("utils.echo", ["--msg", "", "--num_replicas=3"], {"msg": "", "num_replicas": 3}, []),
    ("utils.sh", ["ls", "-l", "--", "x"], {"cpu": 1}, ["ls", "-l", "--", "x"]),
    ("utils.sh", ["--", "--image", "x"], {"image": IMAGE}, ["--image", "x"]),
    ("utils.python", ["-c", "print(1)", "--", "a"], {"c": "print(1)"}, ["a"]),
    ("utils.booth", ["--x1", "-1", "--x2", "2e3"], {"x1": -1.0, "x2": 2000.0}, []),
    ("utils.hydra", ["-cn", "job", "-cd", "conf", "a=1"], {"config_dir": "conf"}, ["a=1"]),
    (
        "serve.torchserve",
        ["--model_path", "m", "--management_api", "http://x", "--params", "model_name=a,port=1"],
        {"params": {"model_name": "a", "port": "1"}, "dryrun": False},
        [],
    ),
    ("metrics.tensorboard", ["--logdir", "x", "--timeout", "1.5"], {"timeout": 1.5}, []),
]


@pytest.mark.parametrize(("name", "words", "values", "varargs"), WORDS)
def test_component_accepts_command_line_arguments(
    name: str, words: list[str], values: dict[str, Any], varargs: list[str]
) -> None:
    filled = component_args_from_str(COMPONENTS[name], words)
    given = {**filled.positional_args, **filled.kwargs}
    assert {key: given[key] for key in values} == values
    assert filled.var_args == varargs


def test_component_runs_from_a_command_line() -> None:
    app = materialize_appdef(utils.sh, ["--num_replicas", "2", "--", "echo", "a b"])
    assert app.roles[0].args == ["-c", "echo 'a b'"]


def test_signals_reach_the_program_of_utils_sh() -> None:
    block = "import signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [15])"
    program = f"{block}; print(flush=True); sys.exit(signal.sigwait([15]))"
    role = utils.sh(sys.executable, "-c", program).roles[0]
    argv = [role.entrypoint, *role.args]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        assert process.wait() == 15


@pytest.mark.parametrize("module", ["plugin", "utils", "dist"])
def test_import_loads_few_modules(module: str) -> None:
    """Check that an import loads no slow modules, which every dry run would have to load."""
    heavy = {"asyncio", "hydra", "importlib.metadata", "logging", "pathlib", "pluggy", "subprocess"}
    heavy |= {"torch", "unittest", "yaml"}
    code = (
        f"import sys, torchx_components.{module} as m;"
        f"getattr(m, 'echo', getattr(m, 'parse_nnodes', str))(*['1']);"
        f"print(*({heavy!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


class OurComponents(ComponentTestCase):
    """A test case like a user's; the next test runs it."""

    def test_validate(self) -> None:
        self.validate(utils, "echo")
        self.validate(dist, "ddp")
        assert Path(self.test_dir).is_dir()


def run_case(case: ComponentTestCase) -> list[str]:
    result = case.defaultTestResult()
    case.run(result)
    return [text for _, text in [*result.errors, *result.failures]]


def test_component_test_case_runs() -> None:
    case = OurComponents("test_validate")
    assert run_case(case) == []
    assert not Path(case.test_dir).exists()


BAD = """
    import torchx_specs as specs

    def untyped(a) -> specs.AppDef: ...
    def no_app(a: int) -> int: ...
    def strange(a: "Unknown") -> specs.AppDef: ...
    constant = 3
"""


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("nope", ComponentNotFoundException, "Function nope does not exist in .*bad.py"),
        ("constant", ComponentNotFoundException, "constant does not exist"),
        ("untyped", ComponentValidationException, "line 4: .*a"),
        ("no_app", ComponentValidationException, "line 5: .*AppDef"),
        ("strange", ComponentTypeError, "Unknown"),
    ],
)
def test_validate_reports_every_violation(
    name: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad_components_bad.py").write_text(textwrap.dedent(BAD))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("bad_components_bad")
    monkeypatch.delitem(sys.modules, "bad_components_bad")
    with pytest.raises(error, match=message):
        OurComponents().validate(module, name)


def test_package_docstring_names_every_component() -> None:
    text = torchx_components.__doc__ or ""
    assert [name for name in COMPONENTS if f".{name.partition('.')[2]}`" not in text] == []


def test_the_variable_replaces_the_published_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHX_IMAGE", raising=False)
    assert images.get_image() == images.PUBLISHED_IMAGE
    monkeypatch.setenv("TORCHX_IMAGE", "mine:1")
    assert images.get_image() == "mine:1"
