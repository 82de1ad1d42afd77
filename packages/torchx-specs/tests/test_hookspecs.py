"""Every hook is documented by an example that runs, and each is tested here."""

from __future__ import annotations

import inspect
import sys
import types
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from torchx_specs import hookspecs
from torchx_specs.hookspecs import HOOKS, hookimpl
from torchx_specs.plugins.manager import PluginManager

HOOK_NAMES = sorted(name for name in vars(hookspecs) if name.startswith("torchx_"))

#: What the example of each hook gives: its name, and its factory.
EXAMPLES: dict[str, tuple[str, object]] = {
    "torchx_schedulers": ("acme", "acme_torchx.scheduler:create_scheduler"),
    "torchx_named_resources": ("gpu_x2", None),
    "torchx_components": ("acme", "acme_torchx.components"),
    "torchx_trackers": ("acme", "acme_torchx.tracker:create"),
    "torchx_commands": ("quota", "acme_torchx.quota:command"),
    "torchx_workspaces": ("nfs", "acme_torchx.nfs:NfsBuilder"),
    "torchx_pruners": ("nfs-copies", "acme_torchx.nfs:unused_copies"),
    "torchx_event_handlers": ("null", None),
}

#: The method of the manager that returns what a hook gives.
METHODS = {
    "torchx_schedulers": "schedulers",
    "torchx_named_resources": "named_resources",
    "torchx_components": "components",
    "torchx_trackers": "trackers",
    "torchx_commands": "commands",
    "torchx_workspaces": "workspaces",
    "torchx_pruners": "pruners",
    "torchx_event_handlers": "event_handlers",
}


def example(hook: str) -> str:
    """Return the code block in the documentation of a hook."""
    text = inspect.getdoc(getattr(hookspecs, hook)) or ""
    block: list[str] = []
    _, _, after = text.partition("::\n")
    for line in after.splitlines():
        if line and not line.startswith(" "):
            break
        block.append(line)
    return dedent("\n".join(block))


def run_example(hook: str) -> PluginManager:
    plugin = types.ModuleType(f"example_of_{hook}")
    exec(compile(example(hook), f"<example of {hook}>", "exec"), plugin.__dict__)  # noqa: S102
    manager = PluginManager(discover=False)
    manager.register(plugin, "example")
    return manager


def test_there_is_an_expectation_for_each_hook() -> None:
    assert sorted(HOOKS) == HOOK_NAMES
    assert sorted(EXAMPLES) == HOOK_NAMES
    assert sorted(METHODS) == HOOK_NAMES


@pytest.mark.parametrize("hook", HOOK_NAMES)
class TestEachHook:
    def test_its_example_runs_and_gives_a_usable_record(self, hook: str) -> None:
        manager = run_example(hook)
        records: Any = getattr(manager, METHODS[hook])()
        (record,) = records if isinstance(records, tuple) else records.values()
        assert manager.problems == []
        assert type(record) is HOOKS[hook]
        assert record.problem() is None
        name, factory = EXAMPLES[hook]
        assert record.name == name
        if factory is not None:
            assert getattr(record, "factory", None) or record.module == factory
        assert str(record.origin) == "example"

    def test_it_takes_nothing_and_says_what_it_yields(self, hook: str) -> None:
        function = getattr(hookspecs, hook)
        signature = inspect.signature(function)
        assert list(signature.parameters) == []
        assert signature.return_annotation == f"Iterable[{HOOKS[hook].__name__}]"
        assert list(function()) == []

    def test_its_documentation_says_what_the_factory_is(self, hook: str) -> None:
        text = inspect.getdoc(getattr(hookspecs, hook)) or ""
        assert text.splitlines()[0].strip()
        if hook != "torchx_components":
            assert "factory" in text
        kind = HOOKS[hook].kind
        assert kind


def test_the_named_resource_of_the_example() -> None:
    made = run_example("torchx_named_resources").named_resources()["gpu_x2"].load()()
    assert (made.cpu, made.gpu, made.memMB) == (16, 2, 122_000)


def test_the_event_handler_of_the_example() -> None:
    import logging

    factory = run_example("torchx_event_handlers").event_handlers()["null"].load()
    assert isinstance(factory(), logging.Handler)


class TestMarkers:
    """What we set is what pluggy's own markers set, so pluggy need not be imported for them."""

    @pytest.mark.parametrize(
        "options", [{}, {"tryfirst": True}, {"trylast": True}, {"specname": "x"}]
    )
    def test_hookimpl(self, options: dict[str, Any]) -> None:
        import pluggy

        def ours() -> None: ...
        def theirs() -> None: ...

        assert hookimpl(**options)(ours) is ours
        pluggy.HookimplMarker("torchx")(**options)(theirs)
        assert vars(ours) == vars(theirs)

    def test_hookimpl_without_parentheses(self) -> None:
        import pluggy

        def ours() -> None: ...
        def theirs() -> None: ...

        assert hookimpl(ours) is ours
        pluggy.HookimplMarker("torchx")(theirs)
        assert vars(ours) == vars(theirs)

    def test_hookspec(self) -> None:
        import pluggy

        def ours() -> None: ...
        def theirs() -> None: ...

        hookspecs.hookspec(ours)
        pluggy.HookspecMarker("torchx")(theirs)
        assert vars(ours) == vars(theirs)


def test_a_plugin_module_needs_one_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything the examples import, but what is theirs, comes from one module."""
    for hook in HOOK_NAMES:
        for line in example(hook).splitlines():
            if line.startswith("from torchx_specs"):
                module, names = line.removeprefix("from ").split(" import ")
                for name in names.split(", "):
                    assert hasattr(sys.modules[module], name), line
