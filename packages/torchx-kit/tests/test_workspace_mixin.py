"""Tests of the mixin through which schedulers use workspace builders."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import torchx_kit.plugin
from torchx_kit.workspace import BuilderWorkspaceMixin, tree_digest, workspace_files
from torchx_kit.workspace.builder import BuilderOutput, Built, BuiltReference, WorkspaceBuilder
from torchx_kit.workspace.dir_builder import DirBuilder
from torchx_kit.workspace.mixin import load_builder
from torchx_kit.workspace.working_directory import WorkingDirectory
from torchx_specs import AppDef, AppDryRunInfo, CfgVal, Role, StructuredOpts, Workspace, runopts
from torchx_specs.errors import PluginError, RequestError, WorkspaceError
from torchx_specs.hookspecs import WorkspacePlugin, hookimpl
from torchx_specs.plugins.manager import PluginManager, set_manager
from torchx_specs.schedulers import DescribeAppResponse, ListAppResponse, Scheduler
from torchx_specs.workspace.api import METADATA_KEY


class RecordingBuilder(WorkspaceBuilder):
    """A builder of images that records its calls."""

    def __init__(self, ready: bool = False) -> None:
        self.ready = ready
        self.calls: list[str] = []

    def opts(self) -> runopts:
        opts = runopts()
        opts.add("image_repo", type_=str, help="where images go")
        return opts

    def plan(
        self, role_image: str, workspace: Workspace, cfg: Mapping[str, CfgVal]
    ) -> BuiltReference | None:
        self.calls.append("plan")
        if cfg.get("image_repo") == "none":
            return None
        digest = tree_digest(workspace_files(workspace))[:8]
        image = f"{cfg.get('image_repo') or 'ws'}/{role_image}:{digest}"
        return BuiltReference(image, workspace, details=role_image)

    def build(self, plan: BuiltReference, cfg: Mapping[str, CfgVal]) -> Built:
        self.calls.append(f"build {plan.image} from {plan.details}")
        return Built(digest="sha256:built", ready=self.ready, details="layer")

    def push(self, plan: BuiltReference, built: Built, cfg: Mapping[str, CfgVal]) -> Built:
        self.calls.append(f"push {built.details} to {plan.image}")
        return Built(digest="sha256:pushed", ready=True)


@dataclasses.dataclass
class Opts(StructuredOpts):
    queue: str = "q"


class RecordingScheduler(BuilderWorkspaceMixin, Scheduler[Opts]):
    """A scheduler that records the requests that are submitted."""

    default_workspace_type: ClassVar[str] = "recording"

    def __init__(self) -> None:
        super().__init__("recording", "test")
        self.submitted: list[Any] = []

    def _submit_dryrun(self, app: AppDef, cfg: Opts) -> AppDryRunInfo[list[str]]:
        return AppDryRunInfo([role.image for role in app.roles], repr)

    def schedule(self, dryrun_info: AppDryRunInfo[list[str]]) -> str:
        self.build_pending(dryrun_info)
        self.submitted.append(dryrun_info.request)
        return "id"

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        return None

    def list(self, cfg: Mapping[str, CfgVal] | None = None) -> list[ListAppResponse]:
        return []

    def _cancel_existing(self, app_id: str) -> None:
        pass


Install = Callable[..., None]


@pytest.fixture
def install() -> Iterator[Install]:
    """Return a function that makes its arguments the only installed builders."""

    def make(**factories: Any) -> None:
        class Plugin:
            @hookimpl
            def torchx_workspaces(self) -> Iterator[WorkspacePlugin]:
                for name, factory in factories.items():
                    yield WorkspacePlugin(name, factory)

        manager = PluginManager(discover=False)
        manager.register(Plugin(), "test-builders")
        manager.register(torchx_kit.plugin, "torchx-kit")
        set_manager(manager)

    yield make
    set_manager(None)


@pytest.fixture
def builder(install: Install) -> RecordingBuilder:
    made = RecordingBuilder()
    install(recording=lambda: made)
    return made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/a.py").write_text("1")
    return tmp_path / "ws"


def job(project: Path, *names: str) -> AppDef:
    workspace = Workspace({str(project): ""})
    roles = [Role(name=n, image="base", workspace=workspace) for n in names or ("r",)]
    return AppDef(name="job", roles=roles)


def dry_run(scheduler: RecordingScheduler, app: AppDef, **cfg: CfgVal) -> AppDryRunInfo[Any]:
    """Return a dry run, as the runner makes it."""
    options = scheduler._resolve_cfg(cfg)
    scheduler.build_workspaces(app.roles, options)
    return scheduler.submit_dryrun(app, options)


class TestDryRun:
    def test_dry_run_only_plans(self, builder: RecordingBuilder, project: Path) -> None:
        info = dry_run(RecordingScheduler(), job(project))
        (image,) = info.request
        assert image.startswith("ws/base:")
        assert builder.calls == ["plan"]

    def test_image_depends_on_its_content(self, builder: RecordingBuilder, project: Path) -> None:
        first = dry_run(RecordingScheduler(), job(project)).request
        assert dry_run(RecordingScheduler(), job(project)).request == first
        (project / "a.py").write_text("2")
        assert dry_run(RecordingScheduler(), job(project)).request != first

    def test_roles_that_share_image_and_workspace_are_planned_once(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        app = job(project, "a", "b")
        app.roles.append(Role(name="c", image="other", workspace=app.roles[0].workspace))
        app.roles.append(Role(name="d", image="plain"))
        request = dry_run(RecordingScheduler(), app).request
        assert request[0] == request[1] != request[2]
        assert request[3] == "plain"
        assert builder.calls == ["plan", "plan"]

    def test_options_reach_the_builder(self, builder: RecordingBuilder, project: Path) -> None:
        request = dry_run(RecordingScheduler(), job(project), image_repo="reg.io/x").request
        assert request[0].startswith("reg.io/x/base:")

    def test_role_stays_unchanged_if_the_builder_plans_nothing(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        info = dry_run(RecordingScheduler(), job(project), image_repo="none")
        assert info.request == ["base"]
        assert info.app is not None
        assert info.app.roles[0].metadata == {}
        RecordingScheduler().build_pending(info)
        assert builder.calls == ["plan"]

    def test_planning_twice_starts_from_the_same_image(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        app = job(project)
        first = dry_run(RecordingScheduler(), app).request
        assert dry_run(RecordingScheduler(), app).request == first

    def test_roles_with_different_workspaces_cannot_share_a_folder(
        self, project: Path, tmp_path: Path
    ) -> None:
        class Fixed(RecordingScheduler):
            default_workspace_type = "dir"

        (tmp_path / "other").mkdir()
        app = job(project, "a", "b")
        app.roles[1].workspace = Workspace({str(tmp_path / "other"): ""})
        with pytest.raises(RequestError, match="roles a and b have different workspaces"):
            dry_run(Fixed(), app, job_dir=str(tmp_path / "job"))

    def test_missing_workspace_is_an_error(self, builder: RecordingBuilder, project: Path) -> None:
        with pytest.raises(WorkspaceError, match=r"does not exist: .*/nope"):
            dry_run(RecordingScheduler(), job(project / "nope"))


class TestSubmission:
    def test_schedule_builds_and_pushes_before_it_submits(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        scheduler = RecordingScheduler()
        info = dry_run(scheduler, job(project))
        scheduler.schedule(info)
        (image,) = info.request
        assert builder.calls == ["plan", f"build {image} from base", f"push layer to {image}"]
        assert scheduler.submitted == [[image]]

    def test_submit_builds_without_changing_the_app(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        app = AppDef("job", roles=[Role(name="r", image="base")])
        scheduler = RecordingScheduler()
        scheduler.submit(app, {}, workspace=str(project))
        assert [call.split()[0] for call in builder.calls] == ["plan", "build", "push"]
        assert app.roles[0].image == "base"

    def test_roles_that_share_an_image_build_it_once(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        scheduler = RecordingScheduler()
        scheduler.schedule(dry_run(scheduler, job(project, "a", "b", "c")))
        assert sum(call.startswith("build") for call in builder.calls) == 1

    def test_second_submission_builds_nothing(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        scheduler = RecordingScheduler()
        info = dry_run(scheduler, job(project))
        scheduler.schedule(info)
        calls = list(builder.calls)
        scheduler.schedule(info)
        assert builder.calls == calls
        assert len(scheduler.submitted) == 2

    def test_ready_image_is_not_pushed(self, install: Install, project: Path) -> None:
        made = RecordingBuilder(ready=True)
        install(recording=lambda: made)
        scheduler = RecordingScheduler()
        digests = scheduler.build_pending(dry_run(scheduler, job(project)))
        assert [call.split()[0] for call in made.calls] == ["plan", "build"]
        assert list(digests.values()) == ["sha256:built"]

    def test_image_for_a_job_on_this_machine_is_not_pushed(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        class Here(RecordingScheduler):
            workspace_remote = False

        scheduler = Here()
        scheduler.schedule(dry_run(scheduler, job(project)))
        assert [call.split()[0] for call in builder.calls] == ["plan", "build"]
        assert builder.remote is False

    def test_digest_is_kept_in_the_metadata(self, builder: RecordingBuilder, project: Path) -> None:
        scheduler = RecordingScheduler()
        info = dry_run(scheduler, job(project))
        assert scheduler.build_pending(info) == {info.request[0]: "sha256:pushed"}
        assert info.app is not None
        assert info.app.roles[0].metadata[METADATA_KEY] == {
            "type": "recording",
            "base": "base",
            "image": info.request[0],
            "digest": "sha256:pushed",
        }

    def test_pending_build_survives_a_copy_of_the_app(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        scheduler = RecordingScheduler()
        info = dry_run(scheduler, job(project))
        scheduler.build_pending(copy.deepcopy(info.app), {})
        assert [call.split()[0] for call in builder.calls] == ["plan", "build", "push"]

    def test_pending_build_survives_serialization(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        scheduler = RecordingScheduler()
        (role,) = dry_run(scheduler, job(project)).app.roles  # type: ignore[union-attr]
        read_again = Role(**{f.name: getattr(role, f.name) for f in dataclasses.fields(Role)})
        RecordingScheduler().build_pending([read_again], {})
        assert [call.split()[0] for call in builder.calls] == ["plan", "plan", "build", "push"]

    def test_changed_workspace_is_not_built_after_serialization(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        (role,) = dry_run(RecordingScheduler(), job(project)).app.roles  # type: ignore[union-attr]
        read_again = Role(**{f.name: getattr(role, f.name) for f in dataclasses.fields(Role)})
        (project / "a.py").write_text("changed")
        with pytest.raises(WorkspaceError, match="have changed since the dry run"):
            RecordingScheduler().build_pending([read_again], {})
        read_again.workspace = None
        with pytest.raises(WorkspaceError, match="the role has no workspace"):
            RecordingScheduler().build_pending([read_again], {})

    def test_replaced_image_is_not_built(self, builder: RecordingBuilder, project: Path) -> None:
        scheduler = RecordingScheduler()
        info = dry_run(scheduler, job(project))
        assert info.app is not None
        info.app.roles[0].image = "mine"
        assert scheduler.build_pending(info) == {}

    def test_failed_build_stays_pending(
        self, builder: RecordingBuilder, project: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: Any) -> Built:
            raise WorkspaceError("no daemon")

        scheduler = RecordingScheduler()
        info = dry_run(scheduler, job(project))
        monkeypatch.setattr(builder, "build", fail)
        with pytest.raises(WorkspaceError, match="no daemon"):
            scheduler.schedule(info)
        assert scheduler.submitted == []
        monkeypatch.undo()
        scheduler.schedule(info)
        assert scheduler.submitted == [info.request]

    def test_pinned_image_is_not_built_again(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        app = job(project)
        early = copy.deepcopy(app)
        scheduler = RecordingScheduler()
        dry_run(scheduler, early)
        scheduler.build_pending(early, {})
        app.roles[0].image = early.roles[0].image
        app.roles[0].workspace = None
        builder.calls.clear()
        scheduler.schedule(dry_run(scheduler, app))
        assert builder.calls == []
        assert scheduler.submitted == [[early.roles[0].image]]

    def test_dir_builder_copies_when_scheduled(self, project: Path, tmp_path: Path) -> None:
        job_dir = tmp_path / "job"
        scheduler = RecordingScheduler()
        cfg: dict[str, CfgVal] = {"workspace_type": "dir", "job_dir": str(job_dir)}
        info = dry_run(scheduler, job(project, "a", "b"), **cfg)
        assert info.request == [str(job_dir), str(job_dir)]
        assert not job_dir.exists()
        scheduler.schedule(info)
        assert (job_dir / "a.py").read_text() == "1"
        scheduler.schedule(info)


class TestChoiceOfBuilder:
    def test_options_of_all_builders_are_offered(self, builder: RecordingBuilder) -> None:
        opts = dict(RecordingScheduler().run_opts())
        assert list(opts) == [
            "queue",
            "workspace_type",
            "job_dir",
            "job_dir_links",
            "follow_links",
            "gitignore",
            "image_repo",
        ]
        assert opts["workspace_type"].default == "recording"
        assert "one of: recording, dir" in opts["workspace_type"].help

    def test_scheduler_definition_of_a_shared_option_wins(self, builder: RecordingBuilder) -> None:
        class Folders(RecordingScheduler):
            def _run_opts(self) -> runopts:
                opts = super()._run_opts()
                opts.add("job_dir", type_=str, help="the folder of the job")
                return opts

        assert dict(Folders().run_opts())["job_dir"].help == "the folder of the job"

    def test_builder_with_another_output_is_refused(
        self, builder: RecordingBuilder, project: Path
    ) -> None:
        class Containers(RecordingScheduler):
            workspace_outputs = frozenset({"image"})

        assert "job_dir" not in dict(Containers().run_opts())
        with pytest.raises(
            RequestError, match=r"'dir' builds an output of type 'folder'.*valid types: recording"
        ):
            dry_run(Containers(), job(project), workspace_type="dir")

    def test_load_builder_returns_plugins_and_the_builder_of_the_kit(
        self, builder: RecordingBuilder
    ) -> None:
        assert load_builder("recording") is builder
        assert isinstance(load_builder("dir"), DirBuilder)

    def test_unknown_builder_is_refused(self, builder: RecordingBuilder, project: Path) -> None:
        with pytest.raises(RequestError, match=r"unknown .*'recordin'; did you mean 'recording'\?"):
            dry_run(RecordingScheduler(), job(project), workspace_type="recordin")

    def test_missing_builder_names_the_command_that_installs_it(
        self, install: Install, project: Path
    ) -> None:
        install()
        with pytest.raises(RequestError, match="pip install torchx-workspace-docker"):
            dry_run(RecordingScheduler(), job(project), workspace_type="docker")

    def test_working_directory_is_not_uploaded_without_its_builder(
        self,
        install: Install,
        project: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        class Containers(RecordingScheduler):
            default_workspace_type = "docker"
            workspace_outputs = frozenset({"image"})

        install()
        monkeypatch.chdir(project)
        roles = [Role(name, "base", workspace=WorkingDirectory.now()) for name in ("a", "b")]
        scheduler = Containers()
        scheduler.submit(copy.deepcopy(AppDef("app", roles)), {})
        assert scheduler.submitted == [["base", "base"]]
        (message,) = caplog.messages
        assert "pip install torchx-workspace-docker" in message
        roles[0].workspace = Workspace({str(project): ""})
        with pytest.raises(RequestError, match="pip install torchx-workspace-docker"):
            scheduler.submit(AppDef("app", roles), {})

    def test_role_without_a_workspace_needs_no_builder(self, install: Install) -> None:
        install()
        app = AppDef("job", roles=[Role(name="r", image="base")])
        assert dry_run(RecordingScheduler(), app).request == ["base"]

    def test_plugin_may_replace_the_dir_builder(self, install: Install, project: Path) -> None:
        made = RecordingBuilder()
        install(dir=lambda: made)
        dry_run(RecordingScheduler(), job(project), workspace_type="dir")
        assert made.calls == ["plan"]

    @pytest.mark.parametrize(
        ("factory", "message"),
        [
            ("torchx_no_such_module:make", "cannot be loaded.*ModuleNotFoundError"),
            (lambda: 1 / 0, "failed: ZeroDivisionError"),
            (lambda: "rubbish", "is not a WorkspaceBuilder: 'rubbish'"),
        ],
    )
    def test_broken_builder_is_an_error_only_if_it_is_selected(
        self,
        install: Install,
        project: Path,
        caplog: pytest.LogCaptureFixture,
        factory: Any,
        message: str,
    ) -> None:
        made = RecordingBuilder()
        install(recording=lambda: made, broken=factory)
        scheduler = RecordingScheduler()
        with caplog.at_level(logging.WARNING):
            scheduler.schedule(dry_run(scheduler, job(project)))
            scheduler.run_opts()
        assert caplog.text.count("'broken' of test-builders") == 1
        with pytest.raises(PluginError, match=message):
            dry_run(scheduler, job(project), workspace_type="broken")

    def test_default_builder_definition_of_a_shared_option_wins(self, install: Install) -> None:
        class Same(RecordingBuilder):
            output: ClassVar[BuilderOutput] = "folder"

            def opts(self) -> runopts:
                opts = runopts()
                opts.add("image_repo", type_=str, help="not this one")
                return opts

        install(recording=RecordingBuilder, zother=Same)
        help_text = dict(RecordingScheduler().run_opts())["image_repo"].help
        assert help_text == "where images go"


def test_example_in_the_docstring_of_workspace_builder_works(tmp_path: Path, project: Path) -> None:
    import inspect
    import os
    import textwrap

    text = inspect.getdoc(WorkspaceBuilder) or ""
    code = textwrap.dedent(text[text.index("    import os") : text.index("Attributes:")])
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own docstring
    nfs = names["NfsBuilder"]()
    plan = nfs.plan("base", Workspace({str(project): ""}), {"nfs_root": str(tmp_path)})
    assert not os.path.exists(plan.image)
    assert nfs.build(plan, {}).ready
    assert nfs.build(plan, {}).ready
    assert (Path(plan.image) / "a.py").read_text() == "1"
