"""Tests that run the examples of upstream's documentation with their ``torchx`` imports.

``mission/examples.txt`` has the examples, each with its page and line in the documentation.
"""

from __future__ import annotations

import ast
import configparser
import doctest
import sys
import types
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from torchx.runner import Runner
from torchx.schedulers import Scheduler
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Stream
from torchx.specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    CfgVal,
    Resource,
    Role,
    _named_resource_factories,
    named_resources,
    runopts,
)

EXAMPLES = Path(__file__).parent / "mission" / "examples.txt"

#: Examples with errors. A test of TestErrata runs the corrected example, or a comment gives the
#: error; tests of macros, resources and options cover what these examples do.
ERRATA = {
    "specs-reference:292",
    "specs-reference:572",
    # Line 38 lacks a comma, 39 has a keyword in a list, and 43 has a set in place of a dict.
    "specs-reference-older:36",
    # Line 175 gives the role no image, and 177 uses an undefined session.
    "specs-reference-older:174",
    # Lines 207 and 208 lack required arguments of ``add``; no release has the method ``check``.
    "specs-reference-older:199",
    # Line 184 has ``...`` in place of parameters, which is a syntax error.
    "advanced-usage:181",
}


class Example(NamedTuple):
    page: str
    line: int
    kind: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def read_examples() -> Iterator[Example]:
    for part in EXAMPLES.read_text("utf-8").split("==== ")[1:]:
        head, _, text = part.partition("\n")
        where, kind = head.split()
        page, line = where.split(":")
        yield Example(page, int(line), kind, text)


ALL = list(read_examples())
RUNNABLE = [e for e in ALL if e.kind in ("python", "doctest") and e.where not in ERRATA]


class FakeCluster(Scheduler[Mapping[str, CfgVal]]):
    """A fake scheduler that records submitted apps; its jobs succeed immediately."""

    submitted: list[tuple[AppDef, Mapping[str, CfgVal]]] = []
    cancelled: list[str] = []

    def __init__(self, session_name: str, **kwargs: object) -> None:
        super().__init__("fake", session_name)

    def _run_opts(self) -> runopts:
        opts = runopts()
        for name in ("namespace", "image_repo", "queue"):
            opts.add(name, type_=str, help="")
        return opts

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDryRunInfo[AppDef]:
        return AppDryRunInfo(app, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[AppDef]) -> str:
        self.submitted.append((dryrun_info.request, dryrun_info.cfg))
        return f"{dryrun_info.request.name}_{len(self.submitted)}"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        roles = [Role("trainer", "i")]
        return DescribeAppResponse(app_id=app_id, state=AppState.SUCCEEDED, roles=roles)

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        return []

    def _cancel_existing(self, app_id: str) -> None:
        self.cancelled.append(app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: Any = None,
        until: Any = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        return [f"{role_name}/{k} of {app_id}\n"]


#: Names that the examples use without defining them.
PRELUDE = """
import torchx.specs as specs
from torchx.specs import *
from torchx.specs import named_resources
from torchx.runner import get_runner
runner = get_runner()
app = AppDef("given", roles=[Role("trainer", "i", entrypoint="true", resource=resource(cpu=1))])
app_handle = "kubernetes://torchx/given_1"
"""


@pytest.fixture(autouse=True)
def cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[list[tuple[AppDef, Mapping[str, CfgVal]]]]:
    """Fake the schedulers ``kubernetes`` and ``local_cwd``; yield their submissions."""
    monkeypatch.setitem(sys.modules, "examples", types.ModuleType("examples"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    FakeCluster.submitted, FakeCluster.cancelled = [], []
    factories: Any = dict.fromkeys(("kubernetes", "local_cwd"), FakeCluster)
    monkeypatch.setattr("torchx.runner.get_runner", lambda **_: Runner("torchx", factories))
    monkeypatch.setitem(sys.modules, "setuptools", fake_setuptools())
    for name in ("gpu_x_1", "gpu_x2"):
        _named_resource_factories[name] = lambda: Resource(cpu=16, gpu=2, memMB=122_000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield FakeCluster.submitted
    named_resources.reset()


def fake_setuptools() -> types.ModuleType:
    module = types.ModuleType("setuptools")
    module.calls = []  # type: ignore[attr-defined]
    module.setup = lambda **options: module.calls.append(options)  # type: ignore[attr-defined]
    return module


def run(example: Example, names: dict[str, Any]) -> None:
    """Run an example; assert each comparison that is a statement of its own."""
    text = example.text
    if example.where == "quick-reference:298":
        # The first part is the content of my_component.py.
        Path("my_component.py").write_text(text.partition("# Launch it:")[0])
    if example.kind == "doctest":
        parsed = doctest.DocTestParser().get_doctest(text, names, example.where, None, example.line)
        report: list[str] = []
        results = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(
            parsed, out=report.append, clear_globs=False
        )
        names.update(parsed.globs)
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


def names_before(example: Example) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "examples"}
    exec(PRELUDE, names)  # noqa: S102
    if example.page == "quick-reference":
        return names
    for earlier in RUNNABLE:
        if earlier.page == example.page and earlier.line < example.line:
            run(earlier, names)
    return names


#: An example with ``roles=[...]``; :meth:`TestResultsOfExamples.test_submit` inserts roles.
PLACEHOLDER = "quick-reference:117"


@pytest.mark.parametrize(
    "example", [e for e in RUNNABLE if e.where != PLACEHOLDER], ids=lambda e: e.where
)
def test_the_example_runs(example: Example) -> None:
    run(example, names_before(example))


def example_at(where: str) -> Example:
    (example,) = [e for e in ALL if e.where == where]
    return example


def test_no_example_is_missing() -> None:
    assert Counter(example.page for example in ALL) == {
        "specs": 1,
        "specs-reference": 21,
        "specs-reference-older": 7,
        "quick-reference": 23,
        "advanced-usage": 20,
    }
    assert len(RUNNABLE) == 59


Submitted = list[tuple[AppDef, Mapping[str, CfgVal]]]


class TestResultsOfExamples:
    def test_submit(self, cluster: Submitted) -> None:
        example = example_at(PLACEHOLDER)
        names = names_before(example)
        names["AppDef"] = lambda name, roles: AppDef(name, [*names["app"].roles])
        run(example, names)
        (ddp, cfg), (direct, _) = cluster
        assert ddp.roles[0].num_replicas == 2
        assert cfg["namespace"] == "default"
        assert direct.name == "my_job"
        assert names["app_handle"] == "kubernetes://torchx/my_job_2"

    def test_cancel_and_delete(self, cluster: Submitted) -> None:
        example = example_at("quick-reference:198")
        names = names_before(example)
        run(example, names)
        # The app has succeeded, so cancel does nothing; delete cancels once.
        assert FakeCluster.cancelled == ["given_1"]

    def test_log_lines(self, capsys: pytest.CaptureFixture[str]) -> None:
        example = example_at("quick-reference:206")
        run(example, names_before(example))
        assert capsys.readouterr().out == "trainer/0 of given_1\n"

    def test_custom_component(self, cluster: Submitted) -> None:
        example = example_at("quick-reference:298")
        run(example, names_before(example))
        by_name, by_call = (app.roles[0] for app, _ in cluster)
        assert by_name.args == by_call.args == ["-m", "my_train"]
        assert by_name.resource.gpu == by_call.resource.gpu == 2

    def test_scheduler_config(self, cluster: Submitted) -> None:
        example = example_at("quick-reference:419")
        run(example, names_before(example))
        ((_, cfg),) = cluster
        assert cfg["image_repo"] == "my-registry.example.com/images"

    def test_setup(self) -> None:
        example = example_at("advanced-usage:24")
        run(example, names_before(example))
        ((options),) = sys.modules["setuptools"].calls
        assert options["entry_points"]["torchx.named_resources"] == [
            "gpu_x2 = my_module.resources:gpu_x2"
        ]

    def test_scheduler_plugin(self) -> None:
        """quick-reference:563: the skeleton of a scheduler works as a scheduler."""
        example = example_at("quick-reference:563")
        names = names_before(example)
        run(example, names)
        scheduler = names["create_scheduler"]("session", experiment="x")
        app = AppDef("job", roles=[Role("r", "i", entrypoint="echo", args=["hi"])])
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
        names = names_before(example_at("quick-reference:625"))
        run(example_at("quick-reference:563"), names)
        run(example_at("quick-reference:625"), names)
        base = names["MyScheduler"]
        mixed = type("Mixed", (names["MyWorkspaceMixin"], base), {})("session")
        required = {key: opt.is_required for key, opt in mixed.run_opts()}
        assert required == {"cluster": False, "artifact_store": True}
        seen: list[dict[str, str]] = []
        real = mixed._submit_dryrun

        def look(app: AppDef, cfg: Any) -> Any:
            seen.append(app.roles[0].env)
            return real(app, cfg)

        mixed._submit_dryrun = look
        app = AppDef("job", roles=[Role("r", "i")])
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
        run(example._replace(text="\n".join(lines)), names_before(example) | {"List": list})

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
        role = Role("r", "img")
        from torchx.specs.overlays import set_overlay

        set_overlay(role, "my_scheduler", "JobSpec", {"priority": 1})
        app = AppDef("a", roles=[role])
        request = names["MyScheduler"]()._submit_dryrun(app, {})
        assert request == {"image": "img", "priority": 1}
        set_overlay(role, "my_scheduler", "JobSpec", {"env": {}})
        with pytest.raises(ValueError, match="env"):
            names["MyScheduler"]()._submit_dryrun(app, {})
