"""Tests of the dry run: checks, copies, environment variables, workspaces."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import pytest

from torchx_kit.workspace import BuilderWorkspaceMixin, Built, BuiltReference, WorkspaceBuilder
from torchx_runner import Runner
from torchx_runner.workspaces import pin_workspace_images
from torchx_specs import (
    AppDef,
    AppDryRunInfo,
    CfgVal,
    InvalidRunConfigException,
    RequestError,
    Role,
    UnknownSchedulerException,
    Workspace,
    macros,
    runopts,
)
from torchx_specs.hookspecs import WorkspacePlugin
from torchx_specs.workspace import WorkspaceMixin

NewRole = Callable[..., Role]


def problems_of(error: pytest.ExceptionInfo[RequestError]) -> list[str]:
    return list(error.value.problems)


# -- requests with one problem


ROLE_PROBLEMS: dict[str, tuple[dict[str, Any], str]] = {
    "no entrypoint": ({"entrypoint": ""}, "no entrypoint"),
    "missing entrypoint": ({"entrypoint": "<MISSING>"}, "no entrypoint"),
    "entrypoint type": ({"entrypoint": 7}, "entrypoint must be a str, got 7"),
    "entrypoint NUL": ({"entrypoint": "a\0b"}, "entrypoint contains a NUL"),
    "image type": ({"image": None}, "image must be a str, got None"),
    "zero replicas": ({"num_replicas": 0}, "num_replicas is 0; it must be 1 or more"),
    "negative replicas": ({"num_replicas": -1}, "num_replicas is -1; it must be 1 or more"),
    "too many replicas": (
        {"num_replicas": 10_000_000},
        "num_replicas is 10000000; it must be 100000 or less",
    ),
    "replicas type": ({"num_replicas": "2"}, "num_replicas must be an int, got '2'"),
    "replicas bool": ({"num_replicas": True}, "num_replicas must be an int, got True"),
    "min replicas": ({"num_replicas": 2, "min_replicas": 3}, "min_replicas is 3; it must be 2"),
    "min replicas type": ({"min_replicas": 1.5}, "min_replicas must be an int, got 1.5"),
    "negative min replicas": ({"min_replicas": -1}, "min_replicas is -1; it must be 0 or more"),
    "negative retries": ({"max_retries": -1}, "max_retries is -1; it must be 0 or more"),
    "retries type": ({"max_retries": None}, "max_retries must be an int, got None"),
    "args type": ({"args": "echo hi"}, "args must be a list of str, got 'echo hi'"),
    "an arg's type": ({"args": ["a", 1]}, "args[1] must be a str, got 1"),
    "an arg with NUL": ({"args": ["a\0"]}, "args[0] contains a NUL"),
    "env type": ({"env": [("A", "b")]}, "env must be a dict of str to str"),
    "env value type": ({"env": {"A": 1}}, "env['A'] must be a str, got 1"),
    "env value None": ({"env": {"A": None}}, "env['A'] must be a str, got None"),
    "env value NUL": ({"env": {"A": "\0"}}, "env['A'] contains a NUL"),
    "env name": ({"env": {"=B": "c"}}, "env has '=B', which is not a valid variable name"),
    "empty env name": ({"env": {"": "c"}}, "env has '', which is not a valid variable name"),
    "resource type": ({"resource": "gpu.small"}, "write resource(h='gpu.small')"),
}


@pytest.mark.parametrize(("changes", "text"), ROLE_PROBLEMS.values(), ids=ROLE_PROBLEMS)
def test_invalid_role_is_an_error_with_its_field(
    runner: Runner, new_role: NewRole, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(RequestError) as error:
        runner.dryrun(AppDef("job", [new_role("ok"), new_role("bad", **changes)]), "fake")
    assert any(p.startswith("role 'bad': ") and text in p for p in problems_of(error))
    assert not any("'ok'" in p for p in problems_of(error))


def test_secrets_are_refused_with_all_other_problems_before_anything_is_built(
    runner: Runner, scheduler: Any, new_role: NewRole
) -> None:
    role = new_role("a", entrypoint="", args=["${secret:hf}"], env={"HF_TOKEN": "${secret:hf}"})
    with pytest.raises(RequestError) as error:
        runner.dryrun(AppDef("job", [role]), "fake")
    assert problems_of(error) == [
        "role 'a': no entrypoint; set Role.entrypoint to the program to run",
        (
            "role 'a': args[0] contains ${secret:hf}; a reference to a secret must be the whole"
            " value of a variable in env, which the program can read"
        ),
        (
            "role 'a': env['HF_TOKEN'] refers to the secret 'hf', but the scheduler fake does not"
            " resolve references to secrets; read the secret in the program instead"
        ),
    ]
    assert scheduler.calls == []


def test_a_scheduler_of_another_class_resolves_no_secrets(new_role: NewRole) -> None:
    class Minimal:
        def run_opts(self) -> runopts:
            return runopts()

        def _resolve_cfg(self, cfg: Any) -> Any:
            return cfg

        def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None: ...

        def _validate(self, app: AppDef, scheduler: str, cfg: Any) -> None: ...

    runner = Runner("s", {"old": lambda session, **_: Minimal()})  # type: ignore[arg-type,return-value]
    with pytest.raises(RequestError, match="the scheduler old does not resolve references"):
        runner.dryrun(AppDef("job", [new_role("a", env={"A": "${secret:hf}"})]), "old")


def test_invalid_app_is_a_value_error(runner: Runner) -> None:
    with pytest.raises(ValueError, match="no roles"):
        runner.dryrun(AppDef("job"), "fake")


@pytest.mark.parametrize(
    ("app", "text"),
    [
        (None, "expected an AppDef, got a NoneType"),
        ({"name": "x"}, "expected an AppDef, got a dict"),
        (AppDef("job", [None]), "roles[0] must be a Role, got a NoneType"),  # type: ignore[list-item]
        (AppDef("job", None), "roles must be a list of Role, got None"),  # type: ignore[arg-type]
        (AppDef("job", [Role("", "img", entrypoint="e")]), "roles[0] needs a name, got ''"),
        (AppDef(3, []), "the app's name must be a str, got 3"),  # type: ignore[arg-type]
    ],
)
def test_object_that_is_no_app_is_an_error(runner: Runner, app: Any, text: str) -> None:
    with pytest.raises(RequestError) as error:
        runner.dryrun(app, "fake")
    assert text in str(error.value)


@pytest.mark.parametrize("owner", ["app 'app1'", "role 'role1'"])
def test_data_that_is_nested_too_deeply_is_an_error(
    runner: Runner, new_role: NewRole, owner: str
) -> None:
    data: Any = {}
    for _ in range(300):
        data = {"a": data}
    role = new_role(name="role1", metadata=data if "role" in owner else {})
    app = AppDef("app1", roles=[role], metadata=data if "app" in owner else {})
    with pytest.raises(RequestError, match=f"^{owner}: metadata is nested deeper than 100 levels"):
        runner.dryrun(app, "fake")


def test_duplicate_role_name_is_an_error(runner: Runner, new_role: NewRole) -> None:
    with pytest.raises(RequestError, match="2 roles are named 'a'; give each") as error:
        runner.dryrun(AppDef("job", [new_role("a"), new_role("b"), new_role("a")]), "fake")
    assert len(problems_of(error)) == 1


def test_missing_resource_is_reported_by_the_scheduler(runner: Runner, new_role: NewRole) -> None:
    app = AppDef("job", [Role("main", "img", entrypoint="e")])
    with pytest.raises(ValueError, match="No resource for role: main"):
        runner.dryrun(app, "fake")


def test_unknown_scheduler_is_an_error_with_the_nearest_name(runner: Runner, app: AppDef) -> None:
    with pytest.raises(UnknownSchedulerException, match="unknown scheduler 'fakw'; did you mean"):
        runner.dryrun(app, "fakw")


@pytest.mark.parametrize(
    ("cfg", "key", "text"),
    [
        ({"quue": "x"}, "quue", "did you mean 'queue'"),
        ({"priority": "high"}, "priority", "must be of type: int, but was: high (str)"),
        ({"jobTags": "a"}, "job_tags", "must be of type: list"),
    ],
)
def test_wrong_option_raises_its_own_exception(
    runner: Runner, app: AppDef, cfg: dict[str, CfgVal], key: str, text: str
) -> None:
    with pytest.raises(InvalidRunConfigException) as error:
        runner.dryrun(app, "fake", cfg)
    assert text in str(error.value)
    assert error.value.cfg_key == key


# -- requests with several problems


def test_all_problems_are_one_error(runner: Runner, scheduler: Any, new_role: NewRole) -> None:
    app = AppDef(
        "job", [new_role("a", num_replicas=0, max_retries=-2), Role("b", "img", entrypoint="e")]
    )
    with pytest.raises(RequestError) as error:
        runner.dryrun(app, "fake", {"quue": "x", "priority": "high"})
    assert [p.split(",")[0] for p in problems_of(error)] == [
        "role 'a': num_replicas is 0; it must be 1 or more",
        "role 'a': max_retries is -2; it must be 0 or more",
        "Unknown run option `quue`. did you mean 'queue'? Valid options are: job_tags",
        "Run option: priority",
        "No resource for role: b. Did you forget to attach resource to the role",
    ]
    assert scheduler.calls == []


def test_invalid_app_and_unknown_scheduler_are_one_error(runner: Runner) -> None:
    with pytest.raises(RequestError) as error:
        runner.dryrun(AppDef("job"), "nope")
    assert len(problems_of(error)) == 2


def test_several_wrong_options_are_one_option_error(runner: Runner, app: AppDef) -> None:
    given: dict[str, CfgVal] = {"a": 1, "b": 2, "priority": "x", "jobTags": 3}
    with pytest.raises(InvalidRunConfigException) as error:
        runner.dryrun(app, "fake", given)
    assert [p.partition(".")[0].partition(",")[0] for p in error.value.problems] == [
        "Unknown run option `a`",
        "Unknown run option `b`",
        "Run option: priority",
        "Run option: job_tags",
    ]
    assert given == {"a": 1, "b": 2, "priority": "x", "jobTags": 3}


def test_all_missing_required_options_are_reported(app: AppDef, fake_scheduler_class: Any) -> None:
    class Demanding(fake_scheduler_class):  # type: ignore[misc]
        def _run_opts(self) -> runopts:
            opts = runopts()
            for name, type_ in (("s", str), ("n", int), ("l", list[str])):
                opts.add(name, type_=type_, required=True, help="h")
            return opts

    runner = Runner("t", {"fake": lambda name, **kw: Demanding(name)})
    with pytest.raises(InvalidRunConfigException) as error:
        runner.dryrun(app, "fake", {"n": "x"})
    assert len(error.value.problems) == 3


# -- the scheduler's own checks


class Recording:
    """A mixin of the fake scheduler: records its checks, and rejects roles by their names.

    The check before a build rejects the role ``early``, and the check after it the role ``late``.
    """

    calls: list[Any]

    def _pre_build_validate(self, app: AppDef, scheduler: str, cfg: Any) -> None:
        self.calls.append(("pre_build", scheduler, dict(cfg)))
        if "early" in app:
            raise ValueError("too early")

    def _validate(self, app: AppDef, scheduler: str, cfg: Any = None) -> None:
        self.calls.append(("validate", [role.image for role in app.roles]))
        if "late" in app:
            raise ValueError("too late")


class FakeWorkspaceMixin(WorkspaceMixin[None]):
    """A mixin that builds by replacing the image, as older plugins do."""

    calls: list[Any]

    def caching_build_workspace_and_update_role(
        self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
    ) -> None:
        self.calls.append(("build", role.name, str(role.workspace)))
        role.image += "-built"


@pytest.fixture
def builder(fake_scheduler_class: Any) -> Any:
    class Builder(Recording, FakeWorkspaceMixin, fake_scheduler_class):  # type: ignore[misc]
        pass

    return Builder("test")


@pytest.fixture
def building_runner(builder: Any) -> Runner:
    return Runner("test", {"fake": lambda name, **kw: builder})


def test_checks_come_before_the_build_and_the_last_one_after_it(
    building_runner: Runner, builder: Any, app: AppDef
) -> None:
    building_runner.dryrun(app, "fake", {"queue": "q"}, workspace="/proj")
    options = {"queue": "q", "priority": None, "job_tags": None}
    assert builder.calls == [
        ("pre_build", "fake", options),
        ("build", "main", "/proj"),
        ("validate", ["img-built"]),
        ("submit_dryrun", "job", options),
    ]


def test_nothing_is_built_if_anything_is_wrong(
    building_runner: Runner, builder: Any, new_role: NewRole
) -> None:
    app = AppDef("job", [new_role("early"), new_role("b", max_retries=-1)])
    with pytest.raises(RequestError) as error:
        building_runner.dryrun(app, "fake", workspace="/proj")
    assert [p[:9] for p in problems_of(error)] == ["role 'b':", "too early"]
    assert [call[0] for call in builder.calls] == ["pre_build"]


def test_checks_without_a_workspace_are_one_error(
    building_runner: Runner, builder: Any, new_role: NewRole
) -> None:
    with pytest.raises(RequestError) as error:
        building_runner.dryrun(AppDef("job", [new_role("early"), new_role("late")]), "fake")
    assert problems_of(error) == ["too early", "too late"]


@pytest.mark.parametrize(
    ("name", "workspace", "says"),
    [("early", None, "too early"), ("late", None, "too late"), ("late", "/proj", "too late")],
)
def test_value_error_of_a_check_becomes_a_request_error(
    building_runner: Runner, new_role: NewRole, name: str, workspace: str | None, says: str
) -> None:
    with pytest.raises(RequestError) as error:
        building_runner.dryrun(AppDef("job", [new_role(name)]), "fake", workspace=workspace)
    assert problems_of(error) == [says]
    assert type(error.value.__cause__) is ValueError


def test_validate_of_an_older_plugin_is_called_with_two_arguments(
    app: AppDef, fake_scheduler_class: Any
) -> None:
    class Older(fake_scheduler_class):  # type: ignore[misc]
        def _validate(self, app: AppDef, scheduler: str) -> None:
            self.calls.append(("validate", scheduler))

    scheduler = Older("test")
    Runner("test", {"fake": lambda name, **kw: scheduler}).dryrun(app, "fake")
    assert ("validate", "fake") in scheduler.calls


def test_other_exception_of_a_check_is_passed_on(app: AppDef, fake_scheduler_class: Any) -> None:
    class Broken(fake_scheduler_class):  # type: ignore[misc]
        def _validate(self, app: AppDef, scheduler: str, cfg: Any = None) -> None:
            raise ZeroDivisionError("mine")

    runner = Runner("test", {"fake": lambda name, **kw: Broken(name)})
    with pytest.raises(ZeroDivisionError):
        runner.dryrun(app, "fake")


# -- the caller's app and options, which stay unchanged


def test_dryrun_does_not_change_the_app(
    building_runner: Runner, new_role: NewRole, cwd: Path
) -> None:
    app = AppDef("job", [new_role(workspace=Workspace({"/proj": ""}), metadata={"a": {"b": "c"}})])
    before = copy.deepcopy(app)
    info = building_runner.dryrun(app, "fake", workspace="/other", parent_run_id="p")
    assert app == before
    assert info.app is not None
    assert info.app.roles[0].image == "img-built"
    info.app.roles[0].metadata["a"]["b"] = "changed"
    assert app == before
    assert list(cwd.iterdir()) == []


def test_dryrun_does_not_change_the_options(runner: Runner, app: AppDef) -> None:
    cfg: dict[str, CfgVal] = {"jobTags": ["a"]}
    info = runner.dryrun(app, "fake", cfg)
    assert cfg == {"jobTags": ["a"]}
    assert info.cfg == {"job_tags": ["a"], "queue": "default", "priority": None}


def test_overrides_are_resolved_in_the_copy_only(
    building_runner: Runner, new_role: NewRole
) -> None:
    asked: list[str] = []

    def image() -> str:
        asked.append("image")
        return "lazy"

    own_env = {"A": "b"}
    role = new_role(overrides={"image": image, "env": lambda: own_env})
    info = building_runner.dryrun(AppDef("job", [role]), "fake", workspace="/proj")
    assert info.app is not None
    assert info.app.roles[0].image == "lazy-built"
    assert info.app.roles[0].env["A"] == "b"
    assert "TORCHX_JOB_ID" in info.app.roles[0].env
    assert info.app.roles[0].overrides == {}
    assert role.image == "lazy"
    assert own_env == {"A": "b"}
    assert asked == ["image"]


def test_dryrun_info_has_app_options_and_scheduler(runner: Runner, app: AppDef) -> None:
    info = runner.dryrun(app, "fake", {"queue": "q"})
    assert info._scheduler == "fake"
    assert info.app is not None
    assert info.app.name == "job"
    assert info.request == {"app": "job", "queue": "q"}


def test_pre_proc_of_a_role_may_change_the_request(runner: Runner) -> None:
    class Urgent(Role):
        def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
            dryrun_info.request["urgent"] = scheduler
            return dryrun_info

    from torchx_specs import Resource

    app = AppDef("job", [Urgent("main", "img", entrypoint="e", resource=Resource(1, 0, 1))])
    assert runner.dryrun(app, "fake").request["urgent"] == "fake"


# -- workspaces


def test_workspace_argument_replaces_that_of_the_first_role(
    building_runner: Runner, builder: Any, new_role: NewRole, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    app = AppDef(
        "job",
        [
            new_role("a", workspace=Workspace({"/a": ""})),
            new_role("b", workspace=Workspace({"/b": ""})),
            new_role("c"),
        ],
    )
    building_runner.dryrun(app, "fake", workspace=Workspace({"/x": "sub"}))
    assert [c[1:] for c in builder.calls if c[0] == "build"] == [("a", "/x:sub"), ("b", "/b")]
    assert "role a: workspace /a is replaced with /x:sub" in caplog.text


@pytest.mark.parametrize("workspace", [None, "", Workspace({})])
def test_roles_keep_their_workspaces_without_an_argument(
    building_runner: Runner, builder: Any, new_role: NewRole, workspace: Any
) -> None:
    app = AppDef("job", [new_role(workspace=Workspace({"/a": ""}))])
    building_runner.dryrun(app, "fake", workspace=workspace)
    assert ("build", "main", "/a") in builder.calls


def test_malformed_workspace_is_reported_with_other_problems(
    building_runner: Runner, builder: Any, new_role: NewRole
) -> None:
    with pytest.raises(RequestError) as error:
        building_runner.dryrun(AppDef("job", [new_role(max_retries=-1)]), "fake", workspace="[1, 2")
    assert len(problems_of(error)) == 2
    assert "[1, 2" in problems_of(error)[1]


def test_ignored_workspace_is_a_warning(
    runner: Runner, app: AppDef, caplog: pytest.LogCaptureFixture
) -> None:
    info = runner.dryrun(app, "fake", workspace="/proj")
    assert info.app is not None
    assert info.app.roles[0].image == "img"
    assert (
        "scheduler fake does not support workspaces; the workspace of role main is ignored"
        in caplog.text
    )


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_ignored_working_directory_is_not_a_warning(
    runner: Runner, app: AppDef, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    runner.dryrun(app, "fake", workspace=form.format(os.getcwd()))
    runner.dryrun(app, "fake", workspace=".")
    assert "workspace" not in caplog.text


def test_build_workspace_returns_images_to_pin(
    building_runner: Runner, builder: Any, new_role: NewRole
) -> None:
    workspace = Workspace({"/a": ""})
    app = AppDef("job", [new_role("a", workspace=workspace), new_role("b")])
    before = copy.deepcopy(app)
    assert building_runner.build_workspace(app, "fake") == {("img", workspace): "img-built"}
    assert building_runner.build_workspace(app.roles[0], "fake") == "img-built"
    assert building_runner.build_workspace(app.roles[1], "fake") is None
    assert app == before


def test_build_workspace_builds_planned_images(
    new_role: NewRole, fake_scheduler_class: Any
) -> None:
    class Planner(FakeWorkspaceMixin, fake_scheduler_class):  # type: ignore[misc]
        def build_pending(self, job: Any, cfg: Any = None) -> dict[str, str]:
            self.calls.append(("pending", [role.image for role in job]))
            return {}

    scheduler = Planner("test")
    runner = Runner("test", {"fake": lambda name, **kw: scheduler})
    runner.build_workspace(new_role(workspace=Workspace({"/a": ""})), "fake")
    assert scheduler.calls == [("build", "main", "/a"), ("pending", ["img-built"])]


def test_build_workspace_leaves_out_builds_that_change_more_than_the_image(
    new_role: NewRole, fake_scheduler_class: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Uploader(WorkspaceMixin[None], fake_scheduler_class):  # type: ignore[misc]
        def caching_build_workspace_and_update_role(
            self, role: Role, cfg: Any, build_cache: Any
        ) -> None:
            role.env["WORKSPACE_URL"] = "s3://"

    runner = Runner("test", {"fake": lambda name, **kw: Uploader(name)})
    role = new_role(workspace=Workspace({"/a": ""}))
    assert runner.build_workspace(role, "fake") is None
    assert runner.build_workspace(AppDef("job", [role]), "fake") == {}
    assert "role main: its workspace build changes more than the image" in caplog.text


class FakeBuilder(WorkspaceBuilder):
    """A builder that records its calls, and builds nothing."""

    calls: ClassVar[list[str]] = []

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference:
        self.calls.append("plan")
        return BuiltReference(f"{role_image}-planned", workspace)

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        self.calls.append(f"build {plan.image}")
        return Built("sha256:1", ready=True)


def test_dry_run_plans_images_without_building(
    plugins: Any, new_role: NewRole, fake_scheduler_class: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Modern(BuilderWorkspaceMixin, fake_scheduler_class):  # type: ignore[misc]
        default_workspace_type = "acme"

    monkeypatch.setattr(FakeBuilder, "calls", [])
    plugins.add("torchx_workspaces", WorkspacePlugin("acme", FakeBuilder))
    runner = Runner("test", {"fake": Modern})
    workspace = Workspace({"/a": ""})
    app = AppDef("job", [new_role(workspace=workspace)])
    info = runner.dryrun(app, "fake")
    assert info.app is not None
    assert info.app.roles[0].image == "img-planned"
    assert FakeBuilder.calls == ["plan"]
    assert runner.build_workspace(app, "fake") == {("img", workspace): "img-planned"}
    assert FakeBuilder.calls == ["plan", "plan", "build img-planned"]


def test_build_workspace_without_support_builds_nothing(runner: Runner, new_role: NewRole) -> None:
    role = new_role(workspace=Workspace({"/a": ""}))
    assert runner.build_workspace(role, "fake") is None
    assert runner.build_workspace(AppDef("job", [role]), "fake") == {}


# -- the environment of the job


def env_of(info: AppDryRunInfo[Any], role: int = 0) -> dict[str, str]:
    assert info.app is not None
    return info.app.roles[role].env


def test_job_and_session_are_set_in_every_role(
    runner: Runner, new_role: NewRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_INTERNAL_SESSION_ID", "s-1")
    info = runner.dryrun(AppDef("job", [new_role("a", env={"A": "b"}), new_role("b")]), "fake")
    own = {"TORCHX_JOB_ID": f"fake://test/{macros.app_id}", "TORCHX_INTERNAL_SESSION_ID": "s-1"}
    own["TORCHX_NUM_REPLICAS"] = "1"
    assert env_of(info, 0) == {"A": "b", **own, "TORCHX_ROLE": "a"}
    assert env_of(info, 1) == {**own, "TORCHX_ROLE": "b"}


def test_job_and_session_win_over_the_role(runner: Runner, new_role: NewRole) -> None:
    role = new_role(env={"TORCHX_JOB_ID": "x", "TORCHX_INTERNAL_SESSION_ID": "y"})
    env = env_of(runner.dryrun(AppDef("job", [role]), "fake"))
    assert env["TORCHX_JOB_ID"].startswith("fake://test/")
    assert env["TORCHX_INTERNAL_SESSION_ID"] != "y"


@pytest.mark.parametrize(
    ("argument", "launcher", "role_env", "expected"),
    [
        (None, None, None, None),
        ("arg", None, None, "arg"),
        (None, "env", None, "env"),
        ("arg", "env", None, "arg"),
        (None, "env", "role", "role"),
        ("arg", "env", "role", "arg"),
        (None, "", None, None),
    ],
)
def test_precedence_of_the_parent_run(
    runner: Runner,
    new_role: NewRole,
    monkeypatch: pytest.MonkeyPatch,
    argument: str | None,
    launcher: str | None,
    role_env: str | None,
    expected: str | None,
) -> None:
    if launcher is not None:
        monkeypatch.setenv("TORCHX_PARENT_RUN_ID", launcher)
    env = {} if role_env is None else {"TORCHX_PARENT_RUN_ID": role_env}
    info = runner.dryrun(AppDef("job", [new_role(env=env)]), "fake", parent_run_id=argument)
    assert env_of(info).get("TORCHX_PARENT_RUN_ID") == expected


def test_variable_name_with_an_equals_sign_is_split(
    runner: Runner, new_role: NewRole, caplog: pytest.LogCaptureFixture
) -> None:
    app = AppDef("job", [new_role(env={"A=1": "2", "B": "c=d"})])
    env = env_of(runner.dryrun(app, "fake"))
    assert (env["A"], env["B"], "A=1" in env) == ("1=2", "c=d", False)
    assert (
        "the name of env variable 'A=1' contains '=': the job sees 'A', with '1=' before"
        in caplog.text
    )
    assert app.roles[0].env == {"A=1": "2", "B": "c=d"}


def test_trackers_are_set_unless_the_role_sets_them(
    runner: Runner, new_role: NewRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_TRACKERS", "t1, t2")
    monkeypatch.setenv("TORCHX_TRACKER_T1_CONFIG", "c1")
    roles = [new_role("a"), new_role("b", env={"TORCHX_TRACKERS": "mine"})]
    info = runner.dryrun(AppDef("job", roles), "fake")
    assert env_of(info, 0)["TORCHX_TRACKERS"] == "t1,t2"
    assert env_of(info, 0)["TORCHX_TRACKER_T1_CONFIG"] == "c1"
    assert env_of(info, 1)["TORCHX_TRACKERS"] == "mine"


def test_trackers_come_from_the_configuration(
    runner: Runner, app: AppDef, cwd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchx_runner import get_configured_trackers

    (cwd / ".torchxconfig").write_text(
        "[torchx:tracker]\nt-1 =\nmine = my.tracker:create\n"
        "[tracker:t-1]\nconfig = 100%\n[tracker:mine]\nconfig = c2\n"
    )
    assert get_configured_trackers() == {"t-1": "100%", "my.tracker:create": "c2"}
    env = env_of(runner.dryrun(app, "fake"))
    assert env["TORCHX_TRACKERS"] == "t-1,my.tracker:create"
    assert env["TORCHX_TRACKER_T_1_CONFIG"] == "100%"
    monkeypatch.setenv("TORCHX_TRACKERS", "other")
    monkeypatch.setenv("TORCHX_TRACKER_T_1_CONFIG", "from env")
    assert get_configured_trackers() == {"other": None}
    monkeypatch.delenv("TORCHX_TRACKERS")
    assert get_configured_trackers()["t-1"] == "from env"


def test_pinned_roles_use_the_built_images() -> None:
    workspace = Workspace({"/ws": ""})
    job = AppDef(
        "a",
        roles=[
            Role("a", "i", workspace=workspace),
            Role("b", "other", workspace=workspace),
            Role("c", "i"),
        ],
    )
    pinned = pin_workspace_images(job, {("i", workspace): "built"})
    assert [(r.image, r.workspace) for r in pinned.roles] == [
        ("built", None),
        ("other", workspace),
        ("i", None),
    ]
    assert job.roles[0].image == "i"


def test_a_dry_run_enters_the_checks_once(runner: Runner, new_role: NewRole) -> None:
    runner.scheduler("fake")
    entered: list[str] = []

    def record(frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename != name:
            caller = caller.f_back
        if event == "call" and caller is None and name.endswith(("_checks.py", "nesting.py")):
            entered.append(frame.f_code.co_name)

    sys.setprofile(record)
    try:
        runner.dryrun(AppDef("a", [new_role()]), "fake")
    finally:
        sys.setprofile(None)
    assert [name for name in entered if name != "is_too_deep"] == ["check_request"]
    assert len(entered) == 1 + len(vars(AppDef("a"))) + len(vars(new_role()))  # once a field
