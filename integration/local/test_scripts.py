"""``torchx run`` runs scripts, modules and commands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from torchx_components import dist, utils
from torchx_runner import get_runner
from torchx_runner.scripts import check_scripts
from torchx_specs import AppDef
from torchx_specs.errors import RequestError

Torchx = Callable[..., "CompletedProcess[str]"]

SCRIPT = """
import json, os, sys
print("saw", json.dumps([*sys.argv[1:], os.path.basename(sys.argv[0])]))
"""
WORDS = ["--lr", "0.3", "--", "-m", "a b", "", "$HOME", "é"]


@pytest.mark.gate
@pytest.mark.parametrize(
    ("run", "name"),
    [
        (["train.py"], "train"),
        (["--replicas", "1", "--cpu", "1", "-m", "package.train"], "train"),
        (["--name", "mine", "./train.py"], "mine"),
        (["--", "python3", "train.py"], "python3"),
    ],
)
def test_arguments_reach_the_program_unchanged(
    torchx: Torchx, tmp_path: Path, run: list[str], name: str
) -> None:
    work = tmp_path / "work"
    (work / "package").mkdir()
    for script in (work / "train.py", work / "package" / "train.py"):
        script.write_text(SCRIPT)
    done = torchx("run", "-s", "local_cwd", *run, *WORDS)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if " saw " in line]
    assert json.loads(line.partition(" saw ")[2]) == [*WORDS, "train.py"]
    assert done.stdout.startswith(f"local_cwd://torchx/{name}-")


def test_dry_run_shows_the_component_of_a_script(torchx: Torchx, tmp_path: Path) -> None:
    (tmp_path / "work" / "train.py").write_text(SCRIPT)
    done = torchx(
        *("run", "-s", "local_docker", "--dryrun", "-o", "json", "--mounts", "/data:/in:ro"),
        *("--gpu", "1", "--max-retries", "2", "train.py", "--x"),
    )
    assert done.returncode == 0, done.stderr
    [role] = json.loads(done.stdout)["app"]["roles"]
    assert role["args"] == ["train.py", "--x"]
    assert role["resource"]["gpu"] == 1
    assert role["max_retries"] == 2
    [mount] = role["mounts"]
    assert (mount["src_path"], mount["dst_path"], mount["read_only"]) == ("/data", "/in", True)


@pytest.mark.gate
class TestMissingScripts:
    """Scripts and modules that are not where the job runs."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "here.py").touch()
        (tmp_path / "trainers").mkdir()
        for name in ("__init__.py", "main.py"):
            (tmp_path / "trainers" / name).touch()
        monkeypatch.chdir(tmp_path)

    def check(self, scheduler: str, *arguments: str, workspace: str = "", **cfg: Any) -> None:
        with get_runner() as runner:
            component = ["utils.python", *arguments]
            if "-j" in arguments:
                component[0] = "dist.ddp"
            info = runner.dryrun_component(component[0], component[1:], scheduler, cfg, workspace)
            check_scripts(runner.scheduler(scheduler), [info])

    @pytest.mark.parametrize(
        "program", ["--script nope.py", "--script=a/nope.py", "-m trainers.no"]
    )
    @pytest.mark.parametrize("scheduler", ["local_cwd", "slurm", "lsf", "sge", "htcondor"])
    def test_is_an_error_where_no_image_can_have_it(self, scheduler: str, program: str) -> None:
        with pytest.raises(RequestError, match=r"'.*no.*' is not in .*; correct the path"):
            self.check(scheduler, *program.split(), "--image", "")

    def test_is_an_error_if_it_is_not_in_the_workspace_that_is_copied(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        project = tmp_path / "project"
        project.mkdir()
        (project / "there.py").touch()
        self.check("local_cwd", "--script", "there.py", workspace="~/project")
        with pytest.raises(RequestError, match=rf"'here\.py' is not in {project}; correct"):
            self.check("local_cwd", "--script", "here.py", workspace="~/project")

    def test_script_of_torchrun_is_checked(self) -> None:
        with pytest.raises(RequestError, match=r"script 'nope\.py' is not in"):
            self.check("slurm", "-j", "1x1", "--script", "nope.py", workspace=".")

    @pytest.mark.parametrize(
        ("scheduler", "cfg"),
        [
            ("slurm", {"container": "apptainer"}),
            ("slurm", {"setup": ["cd /shared"]}),
            ("lsf", {}),
            ("kubernetes", {"image_repo": "r.acme/a"}),
        ],
    )
    def test_is_a_warning_where_an_image_may_have_it(
        self, scheduler: str, cfg: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        arguments = ["--script", "nope.py", "--image", "r.acme/base:1"]
        self.check(scheduler, *arguments, workspace=os.getcwd(), **cfg)
        assert "script 'nope.py' is not in" in caplog.text

    @pytest.mark.parametrize(
        ("scheduler", "program"),
        [
            ("local_cwd", "--script here.py"),
            ("local_cwd", "--script /opt/app/main.py"),
            ("local_cwd", "--script ${app_id}.py"),
            ("local_cwd", "-m trainers.main"),
            ("local_cwd", "-m trainers"),
            ("local_cwd", "-m json.tool"),
            ("local_cwd", "-c pass -- --script nope.py"),
            ("kubernetes", "--script nope.py"),
        ],
    )
    def test_others_are_accepted(
        self, scheduler: str, program: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.check(scheduler, *program.split())
        assert "is not in" not in caplog.text

    @pytest.mark.parametrize(
        "app",
        [
            dist.ddp(script="nope.py", image=""),
            dist.spmd(m="trainers.nope", image=""),
            utils.python(script="nope.py", image=""),
            AppDef(
                "two",
                roles=[
                    *dist.ddp(script="here.py", image="").roles,
                    *utils.python(script="nope.py", image="").roles,
                ],
            ),
        ],
        ids=["ddp", "spmd", "python", "second role"],
    )
    def test_is_an_error_in_an_app_made_in_python(self, app: AppDef) -> None:
        with get_runner() as runner:
            info = runner.dryrun(app, "local_cwd")
            with pytest.raises(RequestError, match=r"nope.* is not in"):
                runner.schedule(info)

    def test_of_changed_arguments_are_not_checked(self, caplog: pytest.LogCaptureFixture) -> None:
        app = utils.python(script="nope.py", image="")
        app.roles[0].args = ["here.py"]
        with get_runner() as runner:
            check_scripts(runner.scheduler("local_cwd"), [runner.dryrun(app, "local_cwd")])
        assert "is not in" not in caplog.text

    def test_is_an_error_before_any_of_many_apps_is_submitted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
        apps = [utils.python(script=name, image="") for name in ("here.py", "nope.py")]
        with get_runner() as runner:
            infos = [runner.dryrun(app, "local_cwd", {"detach": True}) for app in apps]
            with pytest.raises(RequestError, match=r"script 'nope\.py' is not in"):
                list(runner.schedule_many(infos))
            assert runner.list("local_cwd") == []

    def test_is_an_error_of_a_sweep_before_its_submission(
        self, torchx: Torchx, tmp_path: Path
    ) -> None:
        (tmp_path / "work" / "here.py").touch()
        done = torchx(
            *("sweep", "run", "-s", "local_cwd", "--grid", "script=here.py,nope.py"),
            *("utils.python", "--num_replicas", "1"),
        )
        assert done.returncode == 2
        assert "script=nope.py: script 'nope.py' is not in" in done.stderr
        assert "nope" not in torchx("list", "-s", "local_cwd").stdout

    def test_in_a_section_of_the_configuration_is_an_error(
        self, torchx: Torchx, tmp_path: Path
    ) -> None:
        work = tmp_path / "work"
        (work / ".torchxconfig").write_text("[component:utils.python]\nscript = nope.py\n")
        done = torchx("run", "-s", "local_cwd", "utils.python")
        assert done.returncode == 2
        assert "script 'nope.py' is not in" in done.stderr
