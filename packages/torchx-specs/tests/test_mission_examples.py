"""Tests that run upstream's documented examples of ``torchx.specs`` with ``torchx_specs``.

``mission/examples.txt`` has the examples, each with its page and line in the documentation. The
tests of the distribution ``torchx`` run the examples that need the runner or the command.
"""

from __future__ import annotations

import ast
import configparser
import doctest
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, List, NamedTuple

import pytest

import torchx_specs
from torchx_specs import Resource, _named_resource_factories, named_resources
from torchx_specs.plugins.manager import PluginManager, set_manager

EXAMPLES = Path(__file__).parent / "mission" / "examples.txt"

OURS = {
    "torchx.specs": "torchx_specs",
    "torchx.schedulers": "torchx_specs.schedulers",
    "torchx.workspace": "torchx_specs.workspace",
    "torchx.tracker.api": "torchx_specs.trackers.api",
}


class Example(NamedTuple):
    page: str
    line: int
    kind: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def read_examples() -> list[Example]:
    examples = []
    for part in EXAMPLES.read_text("utf-8").split("==== ")[1:]:
        head, _, text = part.partition("\n")
        where, kind = head.split()
        page, line = where.split(":")
        examples.append(Example(page, int(line), kind, text))
    return examples


ALL = read_examples()

#: Examples with errors. A test of TestErrata runs the corrected example, or a comment gives the
#: error; tests of macros, resources and options cover what these examples do.
ERRATA = {
    "specs-reference:292",
    "specs-reference:572",
    # Line 38 lacks a comma, 39 has a keyword in a list, and 43 has a set in place of a dict.
    "specs-reference-older:36",
    # Line 126 annotates a factory with Dict; it returns a Resource.
    "specs-reference-older:122",
    # Line 175 gives the role no image, and 177 uses an undefined session.
    "specs-reference-older:174",
    # Lines 207 and 208 lack required arguments of ``add``; no release has the method ``check``.
    "specs-reference-older:199",
    # Line 184 has ``...`` in place of parameters, which is a syntax error.
    "advanced-usage:181",
}


def needs_more_than_specs(example: Example) -> bool:
    return any(word in example.text for word in ("runner", "torchx.cli", "setuptools"))


def in_ours(text: str) -> str:
    for theirs, ours in OURS.items():
        text = text.replace(f"{theirs} ", f"{ours} ").replace(f"{theirs}.", f"{ours}.")
        text = text.replace(f"import {theirs} as", f"import {ours} as")
    return text


RUN_HERE = [
    example
    for example in ALL
    if example.kind in ("python", "doctest")
    and example.where not in ERRATA
    and not needs_more_than_specs(example)
]


def run(example: Example, names: dict[str, Any]) -> None:
    """Run an example; assert each comparison that is a statement of its own."""
    text = in_ours(example.text)
    if example.kind == "doctest":
        parsed = doctest.DocTestParser().get_doctest(text, names, example.where, None, example.line)
        report: list[str] = []
        flags = doctest.ELLIPSIS
        results = doctest.DocTestRunner(optionflags=flags).run(
            parsed, out=report.append, clear_globs=False
        )
        names.update(parsed.globs)
        assert results.attempted > 0
        assert results.failed == 0, "".join(report)
        return
    tree = ast.parse(text)
    tree.body = [
        ast.copy_location(ast.Assert(node.value, None), node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Compare)
        else node
        for node in tree.body
    ]
    exec(compile(tree, example.where, "exec"), names)  # noqa: S102 - upstream's examples


#: Names that the examples use without defining them.
PRELUDE = """
from typing import List, Dict
from torchx_specs import *
import torchx_specs as specs
"""


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Provide the resources that examples use, and a module ``examples``; load no plugins."""
    monkeypatch.setitem(sys.modules, "examples", types.ModuleType("examples"))
    set_manager(PluginManager(discover=False))
    for name in ("aws_p3.2xlarge", "aws_p3.8xlarge", "aws_t3.medium", "aws_m5.2xlarge"):
        _named_resource_factories[name] = lambda: Resource(cpu=8, gpu=1, memMB=61_000)
    _named_resource_factories["gpu_x_1"] = lambda: Resource(cpu=2, memMB=64 * 1024, gpu=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # get_named_resources is deprecated
        yield
    named_resources.reset()


def names_before(example: Example) -> dict[str, Any]:
    """Return the names that the earlier examples of the same page have defined."""
    names: dict[str, Any] = {"__name__": "examples"}
    exec(PRELUDE, names)  # noqa: S102
    for earlier in RUN_HERE:
        if earlier.page == example.page and earlier.line < example.line:
            run(earlier, names)
    return names


@pytest.mark.parametrize("example", RUN_HERE, ids=lambda e: e.where)
def test_example(example: Example) -> None:
    run(example, names_before(example))


def test_all_examples_are_there() -> None:
    counts = {page: sum(e.page == page for e in ALL) for page in {e.page for e in ALL}}
    assert counts == {
        "specs": 1,
        "specs-reference": 21,
        "specs-reference-older": 7,
        "quick-reference": 23,
        "advanced-usage": 20,
    }
    assert len(RUN_HERE) == 44
    assert {e.where for e in ALL} >= ERRATA


def example_at(where: str) -> Example:
    (example,) = [e for e in ALL if e.where == where]
    return example


class TestWhatTheExamplesDo:
    """Tests of the results of examples that do not show a result themselves."""

    def test_scheduler_plugin(self) -> None:
        """quick-reference:563: the skeleton of a scheduler works as a scheduler."""
        example = example_at("quick-reference:563")
        names = names_before(example)
        run(example, names)
        scheduler = names["create_scheduler"]("session", experiment="x")
        app = torchx_specs.AppDef(
            "job", roles=[torchx_specs.Role("r", "i", entrypoint="echo", args=["hi"])]
        )
        info = scheduler.submit_dryrun(app, {"cluster": "c"})
        assert (info.request.job_name, info.request.cmd) == ("job", ["echo", "hi"])
        assert str(info) == "MyRequest(job_name='job', cmd=['echo', 'hi'])"
        assert info.cfg == {"cluster": "c"}
        assert scheduler.submit(app, {}) == "job-id-123"
        assert scheduler.exists("x")
        scheduler.cancel("x")
        assert scheduler.list() == []

    def test_workspace_plugin(self) -> None:
        """quick-reference:625: the mixin adds its option to a scheduler, and builds workspaces."""
        names = names_before(example_at("quick-reference:656"))
        base = names["MyScheduler"]
        mixed = type("Mixed", (names["MyWorkspaceMixin"], base), {})("session")
        required = {key: opt.is_required for key, opt in mixed.run_opts()}
        assert required == {"cluster": False, "artifact_store": True}
        seen: list[dict[str, str]] = []
        real = mixed._submit_dryrun

        def look(app: torchx_specs.AppDef, cfg: Any) -> Any:
            seen.append(app.roles[0].env)
            return real(app, cfg)

        mixed._submit_dryrun = look
        app = torchx_specs.AppDef("job", roles=[torchx_specs.Role("r", "i")])
        mixed.submit(app, {"artifact_store": "s3://x"}, workspace="/ws")
        assert seen == [{"WORKSPACE_URL": "s3://x/r"}]

    def test_toml(self) -> None:
        """quick-reference:739: the page has the entry-point groups that the bridges read."""
        text = example_at("quick-reference:739").text
        parser = configparser.ConfigParser()
        parser.read_string(text)
        groups = [section.split('"')[1] for section in parser.sections()]
        assert groups == [
            "torchx.schedulers",
            "torchx.named_resources",
            "torchx.components",
            "torchx.tracker",
            "torchx.cli.cmds",
        ]


class TestErrata:
    """Tests of examples with errors; each docstring gives the page, the line and the error."""

    def test_a_list_option_is_a_list(self) -> None:
        """specs-reference:304 expects the text "v1" for the list FOO; the value is ["v1"]."""
        example = example_at("specs-reference:292")
        lines = example.text.splitlines()
        assert lines[304 - 292] == 'opts.cfg_from_str("FOO=v1") == {"FOO": "v1"}'
        lines[304 - 292] = 'opts.cfg_from_str("FOO=v1") == {"FOO": ["v1"]}'
        run(example._replace(text="\n".join(lines)), names_before(example) | {"List": List})

    def test_a_dry_run_returns_its_info(self) -> None:
        """specs-reference:591 returns a request, not an AppDryRunInfo; 577 calls a function that
        the page does not define.
        """
        example = example_at("specs-reference:572")
        assert example.text.splitlines()[591 - 572].strip() == "return base_request"
        assert "build_request_from_role" in example.text.splitlines()[577 - 572]
        names = names_before(example)
        names["Scheduler"] = object  # the page does not import Scheduler
        names["build_request_from_role"] = lambda role: {"image": role.image}
        run(example, names)
        role = torchx_specs.Role("r", "img")
        from torchx_specs.overlays import set_overlay

        set_overlay(role, "my_scheduler", "JobSpec", {"priority": 1})
        app = torchx_specs.AppDef("a", roles=[role])
        request = names["MyScheduler"]()._submit_dryrun(app, {})
        assert request == {"image": "img", "priority": 1}
        set_overlay(role, "my_scheduler", "JobSpec", {"env": {}})
        with pytest.raises(ValueError, match="env"):
            names["MyScheduler"]()._submit_dryrun(app, {})


SIGNATURES: list[tuple[Callable[..., Any] | type, str]] = [
    (
        torchx_specs.AppDef,
        (
            "(name: 'str', roles: 'list[Role]' = <factory>,"
            " metadata: 'dict[str, str]' = <factory>) -> None"
        ),
    ),
    (
        torchx_specs.resource,
        (
            "(cpu: 'int | None' = None, gpu: 'int | None' = None, memMB: 'int | None' = None,"
            " h: 'str | None' = None) -> 'Resource'"
        ),
    ),
    (torchx_specs.parse_app_handle, "(app_handle: 'AppHandle') -> 'ParsedAppHandle'"),
    (
        torchx_specs.BindMount,
        "(src_path: 'str', dst_path: 'str', read_only: 'bool' = False) -> None",
    ),
    (torchx_specs.VolumeMount, "(src: 'str', dst_path: 'str', read_only: 'bool' = False) -> None"),
    (
        torchx_specs.DeviceMount,
        "(src_path: 'str', dst_path: 'str', permissions: 'str' = 'rwm') -> None",
    ),
]


@pytest.mark.parametrize(("what", "signature"), SIGNATURES)
def test_signatures(what: Callable[..., Any], signature: str) -> None:
    assert str(inspect.signature(what)) == signature
