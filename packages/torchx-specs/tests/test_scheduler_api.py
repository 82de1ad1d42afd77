"""Tests of the contract between the runner and a scheduler."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import pytest

from torchx_specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    CfgVal,
    InvalidRunConfigException,
    Resource,
    Role,
    StructuredOpts,
    Workspace,
    runopts,
)
from torchx_specs.schedulers import (
    DescribeAppResponse,
    ListAppResponse,
    Scheduler,
    Stream,
)
from torchx_specs.schedulers.logs import LogQuery
from torchx_specs.workspace import WorkspaceMixin

T = TypeVar("T", bound=Mapping[str, Any])


@dataclass
class Opts(StructuredOpts):
    queue: str = "default"
    """Where to wait."""
    max_hours: int | None = None


class InMemoryScheduler(Scheduler[T]):
    """A fake scheduler that keeps submitted requests in a dict."""

    def __init__(self, session_name: str = "test") -> None:
        super().__init__("memory", session_name)
        self.apps: dict[str, Any] = {}
        self.cancelled: list[str] = []

    def _submit_dryrun(self, app: AppDef, cfg: T) -> AppDryRunInfo[Any]:
        return AppDryRunInfo({"app": app.name, "cfg": cfg, "seen": []}, repr)

    def schedule(self, dryrun_info: AppDryRunInfo[Any]) -> str:
        app_id = f"app-{len(self.apps)}"
        self.apps[app_id] = dryrun_info
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return DescribeAppResponse(app_id) if app_id in self.apps else None

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        return [ListAppResponse(app_id, AppState.RUNNING) for app_id in self.apps]

    def _cancel_existing(self, app_id: str) -> None:
        self.cancelled.append(app_id)


class Typed(InMemoryScheduler[Opts]):
    pass


class Untyped(InMemoryScheduler[Mapping[str, CfgVal]]):
    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.add("queue", type_=str, help="", default="default")
        return opts


class Bare(InMemoryScheduler):  # type: ignore[type-arg]
    pass


class RecordingRole(Role):
    def pre_proc(self, scheduler: str, dryrun_info: AppDryRunInfo[Any]) -> AppDryRunInfo[Any]:
        request = {**dryrun_info.request, "seen": [*dryrun_info.request["seen"], self.name]}
        return AppDryRunInfo({**request, "scheduler": scheduler}, repr)


def app() -> AppDef:
    return AppDef("job", roles=[RecordingRole("a", "i"), RecordingRole("b", "i")])


class TestOptions:
    def test_of_a_class(self) -> None:
        assert [key for key, _ in Typed().run_opts()] == ["queue", "max_hours"]
        info = Typed().submit_dryrun(app(), {"maxHours": 3})
        assert info.cfg == Opts("default", 3)
        assert info.request["cfg"] == Opts("default", 3)

    def test_an_instance_of_the_class_is_taken_as_it_is(self) -> None:
        opts = Opts("q")
        assert Typed().submit_dryrun(app(), opts).cfg is opts

    def test_of_a_subclass(self) -> None:
        class Sub(Typed):
            pass

        assert Sub().submit_dryrun(app(), {}).cfg == Opts()

    def test_of_another_class_in_a_subclass(self) -> None:
        @dataclass
        class Other(StructuredOpts):
            other: int = 1

        class Sub(InMemoryScheduler[Other]):
            pass

        assert Sub().submit_dryrun(app(), {}).cfg == Other()

    def test_as_a_dict(self) -> None:
        assert Untyped().submit_dryrun(app(), {}).cfg == {"queue": "default"}

    def test_none(self) -> None:
        assert len(Bare().run_opts()) == 0
        assert Bare().submit_dryrun(app(), {}).cfg == {}

    @pytest.mark.parametrize("scheduler", [Typed(), Untyped()])
    def test_an_unknown_one(self, scheduler: Scheduler[Any]) -> None:
        with pytest.raises(InvalidRunConfigException, match="did you mean 'queue'"):
            scheduler.submit_dryrun(app(), {"queu": "x"})


class TestSubmit:
    def test_a_dry_run_asks_each_role_in_order(self) -> None:
        job = app()
        info = Typed().submit_dryrun(job, {})
        assert info.request["seen"] == ["a", "b"]
        assert info.request["scheduler"] == "memory"
        assert info.app is job

    def test_submit_schedules(self) -> None:
        scheduler = Typed()
        job = app()
        before = copy.deepcopy(job)
        app_id = scheduler.submit(job, {"queue": "q"})
        assert scheduler.apps[app_id].cfg == Opts("q")
        assert job == before

    def test_a_workspace_where_none_is_taken(self) -> None:
        with pytest.raises(ValueError, match="memory takes no workspace, got: /ws"):
            Typed().submit(app(), {}, workspace="/ws")

    def test_a_workspace_is_the_first_role_s(self) -> None:
        built: list[tuple[str, Workspace | None]] = []

        class WithWorkspace(WorkspaceMixin[None], Typed):
            def caching_build_workspace_and_update_role(
                self, role: Role, cfg: Mapping[str, CfgVal], build_cache: dict[object, object]
            ) -> None:
                built.append((role.name, role.workspace))

        WithWorkspace().submit(app(), {}, workspace="/ws")
        WithWorkspace().submit(app(), {}, workspace=Workspace({"/ws": "x"}))
        WithWorkspace().submit(app(), {})
        assert built == [("a", Workspace({"/ws": ""})), ("a", Workspace({"/ws": "x"}))]


class TestApps:
    def test_existence(self) -> None:
        scheduler = Typed()
        app_id = scheduler.submit(app(), {})
        assert scheduler.exists(app_id)
        assert not scheduler.exists("nope")

    def test_cancel_and_delete(self) -> None:
        scheduler = Typed()
        app_id = scheduler.submit(app(), {})
        scheduler.cancel("nope")
        scheduler.delete("nope")
        assert scheduler.cancelled == []
        scheduler.cancel(app_id)
        scheduler.delete(app_id)
        assert scheduler.cancelled == [app_id, app_id]

    def test_logs_are_no_duty(self) -> None:
        with pytest.raises(NotImplementedError, match="cannot read logs"):
            Typed().log_iter("x", "r", 0, None, datetime.min, datetime.max, False, Stream.STDOUT)

    def test_a_method_of_a_mixin_is_found_from_every_subclass(self) -> None:
        class ReadsLogs:
            def log_iter(self, *args: Any) -> list[str]:
                return ["line\n"]

        class Base(ReadsLogs, Bare):
            pass

        class Derived(Base):
            pass

        for scheduler in (Base(), Derived()):
            assert scheduler.features.logs
            assert scheduler.app_logs.read("app-0", "main", 0, LogQuery()) == ["line\n"]
            assert scheduler.log_iter("app-0", "main") == ["line\n"]

    def test_defaults(self) -> None:
        assert Typed().describe_native("x") is None
        Typed().close()
        Typed()._pre_build_validate(app(), "memory", Opts())

    def test_a_role_needs_a_resource(self) -> None:
        job = AppDef("j", roles=[Role("a", "i", resource=Resource(1, 0, 1)), Role("b", "i")])
        with pytest.raises(ValueError, match="No resource for role: b"):
            Typed()._validate(job, "memory", Opts())
        job.roles.pop()
        Typed()._validate(job, "memory")


class TestResponses:
    def test_describe(self) -> None:
        response = DescribeAppResponse()
        assert (response.app_id, response.state) == ("<NOT_SET>", AppState.UNSUBMITTED)
        assert (response.num_restarts, response.msg) == (-1, "<NONE>")
        assert (response.structured_error_msg, response.ui_url) == ("<NONE>", None)
        assert (response.metadata, response.roles_statuses, response.roles) == ({}, [], [])

    def test_list(self) -> None:
        one = ListAppResponse("a", AppState.RUNNING)
        assert (one.app_handle, one.name) == ("<NOT_SET>", "")
        assert len({one, ListAppResponse("a", AppState.RUNNING)}) == 1
        assert one != ListAppResponse("a", AppState.FAILED)

    def test_streams(self) -> None:
        assert [s.value for s in Stream] == ["stdout", "stderr", "combined"]
        assert Stream("stderr") is Stream.STDERR
        assert Stream.STDERR == "stderr"
        assert str(Stream.STDERR) == "Stream.STDERR"


class OlderMixin(WorkspaceMixin[dict[str, str]]):
    """Implements the method that mixins for older releases implement."""

    def __init__(self) -> None:
        super().__init__()
        self.built: list[str] = []

    def build_workspace_and_update_role(
        self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
    ) -> None:
        self.built.append(workspace)
        role.image = f"built-from-{len(self.built)}"


class TestOlderWorkspaces:
    def test_one_folder(self) -> None:
        roles = [Role("a", "i", workspace=Workspace({"/ws": ""})), Role("b", "i")]
        mixin = OlderMixin()
        mixin.build_workspaces(roles, {})
        assert mixin.built == ["/ws"]
        assert [r.image for r in roles] == ["built-from-1", "i"]
        assert mixin.build_pending(roles) == {}

    def test_several_are_merged_first(self, tmp_path: Any) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a/x").write_text("1")
        (tmp_path / "b").write_text("2")
        seen: list[str] = []

        class Looks(OlderMixin):
            def build_workspace_and_update_role(
                self, role: Role, workspace: str, cfg: Mapping[str, CfgVal]
            ) -> None:
                import os

                for folder, _, files in os.walk(workspace):
                    seen.extend(os.path.relpath(f"{folder}/{f}", workspace) for f in files)

        workspace = Workspace({f"{tmp_path}/a": "lib", f"{tmp_path}/b": "c/d"})
        Looks().build_workspaces([Role("a", "i", workspace=workspace)], {})
        assert sorted(seen) == ["c/d", "lib/x"]

    def test_neither_hook(self) -> None:
        class Neither(WorkspaceMixin[None]):
            pass

        role = Role("a", "i", workspace=Workspace({"/ws": ""}))
        with pytest.raises(NotImplementedError, match="Neither implements neither"):
            Neither().build_workspaces([role], {})
        with pytest.raises(NotImplementedError, match="does not push"):
            Neither().dryrun_push_images(AppDef("a"), {})
        with pytest.raises(NotImplementedError, match="does not push"):
            Neither().push_images(None)
