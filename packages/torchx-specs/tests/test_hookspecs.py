"""Tests of the hooks' docstrings: each has an example, and the example runs."""

from __future__ import annotations

import inspect
import types
from textwrap import dedent
from typing import Any

import pytest

from torchx_specs import hookspecs
from torchx_specs.hookspecs import HOOKS, TrackerPlugin, hookimpl
from torchx_specs.plugins import markers
from torchx_specs.plugins.manager import PluginManager

HOOK_NAMES = sorted(name for name in vars(hookspecs) if name.startswith("torchx_"))

#: The name and the factory of the record that each hook's example yields.
EXAMPLES: dict[str, tuple[str, object]] = {
    "torchx_schedulers": ("acme", "acme_torchx.scheduler:create_scheduler"),
    "torchx_named_resources": ("gpu_x2", None),
    "torchx_components": ("acme", "acme_torchx.components"),
    "torchx_trackers": ("acme", "acme_torchx.tracker:create"),
    "torchx_commands": ("quota", "acme_torchx.quota:command"),
    "torchx_workspaces": ("nfs", "acme_torchx.nfs:NfsBuilder"),
    "torchx_checks": ("acme:quota", "acme_torchx.checks:quota"),
    "torchx_pruners": ("nfs-copies", "acme_torchx.nfs:unused_copies"),
    "torchx_event_handlers": ("null", None),
    "torchx_log_sinks": ("acme", "acme_torchx.sink:AcmeSink"),
    "torchx_notifiers": ("pager", "acme_torchx.pager:create"),
    "torchx_supervisors": ("kubernetes", "acme_torchx.supervisor:AcmeSupervisor"),
    "torchx_hosts": ("bastion", "acme_torchx.bastion:create_host"),
}

#: The manager's method that returns the records of each hook.
METHODS = {
    "torchx_schedulers": "schedulers",
    "torchx_named_resources": "named_resources",
    "torchx_components": "components",
    "torchx_trackers": "trackers",
    "torchx_commands": "commands",
    "torchx_workspaces": "workspaces",
    "torchx_checks": "checks",
    "torchx_pruners": "pruners",
    "torchx_event_handlers": "event_handlers",
    "torchx_log_sinks": "log_sinks",
    "torchx_notifiers": "notifiers",
    "torchx_supervisors": "supervisors",
    "torchx_hosts": "hosts",
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

    def test_its_example_needs_one_import_from_a_module_of_torchx_specs(self, hook: str) -> None:
        lines = example(hook).splitlines()
        assert [line for line in lines if line.startswith("from torchx_specs.")] == [
            f"from torchx_specs.hookspecs import {HOOKS[hook].__name__}, hookimpl"
        ]

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
    """Tests that our markers set the same attributes as pluggy's, without importing pluggy."""

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

        def ours() -> list[Any]: ...  # type: ignore[empty-body]
        def theirs() -> None: ...

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(markers, "HOOKS", {})
            hookspecs.hookspec(TrackerPlugin)(ours)
            assert {"ours": TrackerPlugin} == markers.HOOKS
        pluggy.HookspecMarker("torchx")(theirs)
        assert vars(ours) == vars(theirs)
