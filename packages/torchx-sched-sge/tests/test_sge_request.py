"""The native request: options of qsub, the script, and refusals of the dry run."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from torchx_kit.batch.names import JobName, make_app_id, role_names
from torchx_kit.batch.request import BatchRequest
from torchx_sched_sge.options import SgeOpts
from torchx_sched_sge.scheduler import create_scheduler
from torchx_sched_sge.system import Sge
from torchx_specs import AppDef, Resource, Role
from torchx_specs.errors import RequestError
from torchx_specs.model.mounts import BindMount


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.chdir(tmp_path)


def main(**fields: Any) -> Role:
    fields = {"image": "", "entrypoint": "true", **fields}
    return Role("main", **fields)


def request(*roles: Role, **options: Any) -> BatchRequest:
    return BatchRequest(
        Sge(), "app-x", AppDef("app", list(roles)), SgeOpts(**options), "/shared/a b"
    )


@pytest.mark.parametrize(
    ("resource", "options", "expected"),
    [
        (Resource(cpu=1, gpu=0, memMB=0), {}, []),
        (Resource(cpu=-1, gpu=-1, memMB=-1), {}, []),
        (
            Resource(cpu=4, gpu=2, memMB=1000),
            {},
            ["-pe", "smp", "4", "-l", "mem_free=1000M,gpu=2"],
        ),
        (
            Resource(cpu=3, gpu=0, memMB=1000),
            {"memory": "h_vmem", "memory_per_slot": True, "pe": "threads"},
            ["-pe", "threads", "3", "-l", "h_vmem=334M"],
        ),
        (Resource(cpu=1, gpu=0, memMB=1000), {"memory": ""}, []),
        (Resource(cpu=1, gpu=0, memMB=0), {"time": "1h30m"}, ["-l", "h_rt=5400"]),
        (
            Resource(cpu=1, gpu=0, memMB=0),
            {"queue": "all.q", "project": "p", "time": "1:00:00", "extra": ["-R", "y"]},
            ["-q", "all.q", "-P", "p", "-l", "h_rt=1:00:00", "-R", "y"],
        ),
    ],
)
def test_options_of_qsub(resource: Resource, options: dict[str, Any], expected: list[str]) -> None:
    assert Sge().options(main(resource=resource), SgeOpts(**options)) == expected


def test_each_role_is_a_held_array_job() -> None:
    app = request(main(num_replicas=3), Role("Other One", image="", entrypoint="true"))
    jobs = [job for [job] in app.jobs("/shared/a b")]
    (first, _), (second, _) = map(Sge().submission, jobs)
    assert first[:8] == ["qsub", "-terse", "-h", "-N", "app-x-main", "-t", "1-3", "-wd"]
    assert second[4:7] == ["app-x-other_one", "-t", "1-1"]
    script = "/shared/a b/.torchx-sge/app-x/script"
    assert second[-7:] == ["-b", "y", "-shell", "n", "/bin/bash", script, "1"]


def test_script_is_valid_bash() -> None:
    role = main(env={"A": "it's", "a.b": "1"}, args=["${replica_id}", "\n"], num_replicas=2)
    text = request(role, main(image="ubuntu:24.04", env={"PATH": "/opt"})).materialize()
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    assert "export A='it'\\''s'" in text
    assert "apptainer exec docker://ubuntu:24.04 true" in text
    assert "export APPTAINERENV_PATH=/opt" in text


def test_dry_run_masks_secrets() -> None:
    text = repr(request(main(env={"API_TOKEN": "hunter2"})))
    assert "hunter2" not in text
    assert text.startswith("qsub -terse -N app-x-main ")


def test_dry_run_shows_the_current_directory_as_a_variable() -> None:
    app = AppDef("app", [main()])
    text = repr(create_scheduler("test").submit_dryrun(app, {}).request)
    assert ' -wd "$PWD" ' in text
    assert ' "$PWD"/.torchx-sge/app-' in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "1x"}, "option time: '1x' is not a time limit; use 2h, seconds or hours:minutes"),
        ({"container": "docker"}, "option container: 'docker' is not one of apptainer, none$"),
        ({"pe": "a b"}, "option pe: 'a b' is not a name"),
        ({"gpu": ""}, "option gpu: '' is not a name"),
        ({"queue": "a\nb"}, r"option queue: 'a\\nb' contains a control character"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        create_scheduler("test").submit_dryrun(AppDef("app", [main()]), options)


def test_mounts_without_a_container_are_refused() -> None:
    app = AppDef("app", [main(mounts=[BindMount("/a", "/b")])])
    with pytest.raises(RequestError, match="role 'main': mounts need a container"):
        create_scheduler("test").submit_dryrun(app, {})


@pytest.mark.parametrize("name", ["3d", "My App!", "-", "", "x" * 300, "späť"])
def test_app_ids_are_valid_names_of_jobs(name: str) -> None:
    app_id = make_app_id(name)
    assert app_id[0].isalpha() or app_id[0] == "_"
    assert set(app_id) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    [role] = role_names(["Some Role"]).values()
    assert JobName.parse(str(JobName(app_id, role))) == (app_id, role, None)


def test_qsub_gets_the_variables_that_name_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_TASK_ID", "JOB_ID"):
        monkeypatch.setenv(name, "1")
    assert {*request(main()).hidden_variables()} == {"SGE_TASK_ID", "JOB_ID"}
