"""Tests of the dry run: of options, requests and checks."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from local_helpers import sh

from torchx_sched_local.request import LARGEST_SHOWN
from torchx_sched_local.scheduler import (
    CWDImageProvider,
    ImageProvider,
    LocalDirectoryImageProvider,
    LocalOpts,
    LocalScheduler,
    PopenRequest,
    ReplicaParam,
    _join_PATH,
    create_scheduler,
)
from torchx_specs import AppDef, BindMount, InvalidRunConfigException, Resource, Role
from torchx_specs.errors import RequestError


def request_for(*roles: Role, scheduler: LocalScheduler | None = None, **cfg) -> PopenRequest:
    scheduler = scheduler or create_scheduler("session")
    return scheduler.submit_dryrun(AppDef("app", list(roles)), cfg).request


def test_options_and_their_defaults() -> None:
    opts = create_scheduler("session").run_opts()
    assert opts.resolve({}) == {
        "log_dir": None,
        "prepend_cwd": False,
        "auto_set_cuda_visible_devices": False,
        "detach": False,
        "setup": None,
        "time": None,
        "requeue": False,
        "resume_dir": None,
        "max_node_failures": None,
        "max_total_time": None,
        "requeue_exit_codes": None,
        "follow_links": False,
        "gitignore": False,
        "fail_together": False,
    }
    assert "background" in str(opts)
    with pytest.raises(InvalidRunConfigException, match="log_dir"):
        opts.resolve({"log_dirr": "x"})


def test_request_has_the_paths_and_variables_of_each_replica(tmp_path: Path) -> None:
    request = request_for(
        sh("echo ${app_id} ${replica_id} ${img_root} ${rank0_env}", "a", num_replicas=2),
        log_dir=str(tmp_path),
    )
    app_id = request.app_id
    assert app_id.startswith("app-")
    assert request.log_dir == f"{tmp_path}/session/{app_id}"
    folders = [f"{request.log_dir}/a/0", f"{request.log_dir}/a/1"]
    assert request.role_log_dirs == {"a": folders}
    assert request.role_params["a"][1] == ReplicaParam(
        args=["sh", "-c", f"echo {app_id} 1 {os.getcwd()} TORCHX_RANK0_HOST"],
        env={
            "PATH": os.getcwd(),
            "TORCHX_RANK0_HOST": "localhost",
            "TORCHELASTIC_ERROR_FILE": f"{folders[1]}/error.json",
            "PET_LOG_DIR": f"{request.log_dir}/torchelastic/a",
        },
        stdout=f"{folders[1]}/stdout.log",
        stderr=f"{folders[1]}/stderr.log",
        combined=f"{folders[1]}/combined.log",
        cwd=os.getcwd(),
    )


def test_default_log_dir_is_in_torchx_home(home: Path) -> None:
    request = request_for(sh("true"))
    assert request.log_dir == f"{home}/local/session/{request.app_id}"


def test_relative_log_dir_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert request_for(sh("true"), log_dir="logs").log_dir.startswith(f"{tmp_path}/logs/session/")


def test_variables_of_the_role_take_precedence(tmp_path: Path) -> None:
    env = {"TORCHELASTIC_ERROR_FILE": "/mine.json", "PET_LOG_DIR": "/pet"}
    found = request_for(sh("true", env=env)).role_params["main"][0].env
    assert found["TORCHELASTIC_ERROR_FILE"] == "/mine.json"
    assert found["PET_LOG_DIR"] == "/pet"


@pytest.mark.parametrize(
    ("prepend", "expected"), [(False, "/extra:/mine:{cwd}"), (True, "{cwd}:/extra:/mine")]
)
def test_search_path_combines_extra_paths_role_and_working_directory(
    prepend: bool, expected: str
) -> None:
    scheduler = create_scheduler("session", extra_paths=["/extra", ""])
    role = sh("true", env={"PATH": "/mine"})
    request = request_for(role, scheduler=scheduler, prepend_cwd=prepend)
    assert request.role_params["main"][0].env["PATH"] == expected.format(cwd=os.getcwd())


def test_search_path_may_contain_macros() -> None:
    request = request_for(sh("true", env={"PATH": "/bin/${replica_id}"}, num_replicas=2))
    paths = [param.env["PATH"] for param in request.role_params["main"]]
    assert paths == [f"/bin/0:{os.getcwd()}", f"/bin/1:{os.getcwd()}"]


@pytest.mark.parametrize("has_own", [False, True])
def test_an_environment_that_is_not_active_is_in_the_search_path(
    has_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setattr(sys, "prefix", "/tool")
    if has_own:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / "pyvenv.cfg").touch()
    expected = f"{tmp_path}/.venv/bin" if has_own else "/tool/bin"
    role = sh("true", env={"PATH": "/mine"})
    [param] = request_for(role).role_params["main"]
    assert param.env["PATH"] == f"/mine:{expected}:{tmp_path}"
    monkeypatch.setenv("CONDA_PREFIX", "/conda")
    [param] = request_for(role).role_params["main"]
    assert param.env["PATH"] == f"/mine:{tmp_path}"


def test_an_environment_that_others_can_change_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv").chmod(0o777)
    (tmp_path / ".venv" / "pyvenv.cfg").touch()
    [param] = request_for(sh("true")).role_params["main"]
    assert param.env["PATH"] == str(tmp_path)
    assert ".venv is not used: other users can write to it" in caplog.text


def test_join_path_skips_empty_parts() -> None:
    assert _join_PATH(None, "", "/a:", ":/b", ":") == "/a:/b"
    assert _join_PATH(None) == ""


@pytest.mark.parametrize(
    ("name", "beginning"), [("dist.ddp_x", "dist.ddp_x-"), ("a/../b c", "a_.._b_c-"), ("..", "x-")]
)
def test_app_names_cannot_leave_the_log_dir(name: str, beginning: str, home: Path) -> None:
    info = create_scheduler("a/b").submit_dryrun(AppDef(name, [sh("true")]), {})
    assert info.request.app_id.startswith(beginning)
    assert os.path.dirname(info.request.log_dir) == f"{home}/local/a_b"


def test_role_names_cannot_leave_the_log_dir_and_stay_different(home: Path) -> None:
    request = request_for(sh("true", "../x"), sh("true", "x"), sh("true", "a/b"), sh("true", "a_b"))
    folders = [os.path.dirname(dirs[0]) for dirs in request.role_log_dirs.values()]
    assert all(os.path.dirname(folder) == request.log_dir for folder in folders)
    assert len(set(folders)) == 4
    assert os.path.basename(folders[1]) == "x"


def test_empty_session_has_no_folder(home: Path) -> None:
    info = create_scheduler("").submit_dryrun(AppDef("app", [sh("true")]), {})
    assert info.request.log_dir == f"{home}/local/{info.request.app_id}"


def test_long_names_become_valid_file_names() -> None:
    request = request_for(sh("true", "r" * 300))
    assert all(len(part) < 255 for part in request.role_log_dirs["r" * 300][0].split("/"))


def test_printed_request_masks_secrets() -> None:
    env = {"HF_TOKEN": "t0p", "DB_PASSWORD": "s3cret", "MONKEY": "banana", "TOKENIZERS": "1"}
    info = create_scheduler("session").submit_dryrun(AppDef("app", [sh("true", env=env)]), {})
    text = str(info)
    assert "t0p" not in text
    assert "s3cret" not in text
    assert "banana" in text
    assert "'TOKENIZERS': '1'" in text
    assert info.request.role_params["main"][0].env["HF_TOKEN"] == "t0p"


def test_printed_request_is_a_python_literal() -> None:
    import ast

    info = create_scheduler("session").submit_dryrun(AppDef("app", [sh("true")]), {})
    assert set(ast.literal_eval(str(info))) == {
        "app_id",
        "log_dir",
        "role_params",
        "role_log_dirs",
    }


@pytest.mark.parametrize(
    ("role", "problem"),
    [
        (Role("r", ""), "role 'r': no entrypoint"),
        (Role("r", "", entrypoint="a", args=["ok", "b\0"]), r"args\[1\] contains a NUL"),
        (Role("r", "", entrypoint="a", args=["\ud800"]), r"args\[0\] contains a lone surrogate"),
    ],
)
def test_invalid_role_is_a_request_error(role: Role, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        request_for(role)


def test_no_resource_is_needed_and_mounts_are_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    role = sh("true", mounts=[BindMount("/a", "/b")])
    create_scheduler("session")._validate(AppDef("app", [role]), "local_cwd", LocalOpts())
    assert "local_cwd runs without containers: the mounts of role 'main'" in caplog.text


def test_image_may_be_a_folder(tmp_path: Path) -> None:
    scheduler = create_scheduler("s", image_provider_class=LocalDirectoryImageProvider)
    role = Role("main", image=str(tmp_path), entrypoint="./run.sh", args=["${img_root}"])
    param = request_for(role, scheduler=scheduler).role_params["main"][0]
    assert param.cwd == str(tmp_path)
    assert param.args == ["./run.sh", str(tmp_path)]
    with pytest.raises(RequestError, match="image '/no/such' is not a folder"):
        request_for(Role("main", image="/no/such", entrypoint="x"), scheduler=scheduler)


def test_custom_image_provider_makes_the_parameters(tmp_path: Path) -> None:
    class Provider(ImageProvider):
        def __init__(self, cfg) -> None:
            assert cfg.get("log_dir") == "/logs"

        def fetch(self, image: str) -> str:
            return f"/fetched/{image}"

        def get_replica_param(self, img_root, role, stdout=None, stderr=None, combined=None):
            param = super().get_replica_param(img_root, role, stdout, stderr, combined)
            param.args.append("extra")
            return param

    scheduler = create_scheduler("s", image_provider_class=Provider)
    role = Role("main", image="i", entrypoint="bin/x", args=["${replica_id}"], num_replicas=2)
    params = request_for(role, scheduler=scheduler, log_dir="/logs").role_params["main"]
    assert params[1].args == ["/fetched/i/bin/x", "1", "extra"]
    assert params[1].cwd is None
    assert params[1].env["TORCHX_RANK0_HOST"] == "localhost"
    assert params[1].stdout.endswith("/main/1/stdout.log")
    assert role.args == ["${replica_id}"]


def test_deleted_working_directory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(RequestError, match="working directory was deleted"):
        request_for(sh("true"))


def gpus(count: int, name: str, replicas: int = 1) -> Role:
    role = sh("true", name, num_replicas=replicas)
    role.resource = Resource(cpu=1, gpu=count, memMB=1)
    return role


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bin" / "nvidia-smi"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nfor i in 0 1 2 3; do echo GPU $i: fake; done\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")


def visible(request: PopenRequest) -> dict[str, list[str | None]]:
    return {
        role: [param.env.get("CUDA_VISIBLE_DEVICES") for param in params]
        for role, params in request.role_params.items()
    }


@pytest.mark.usefixtures("four_gpus")
def test_gpus_are_divided_among_replicas() -> None:
    request = request_for(
        gpus(1, "a", 2), gpus(0, "b"), gpus(2, "c"), auto_set_cuda_visible_devices=True
    )
    assert visible(request) == {"a": ["0", "1"], "b": [None], "c": ["2,3"]}


@pytest.mark.usefixtures("four_gpus")
def test_requesting_too_many_gpus_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    request = request_for(gpus(5, "a"), auto_set_cuda_visible_devices=True)
    assert visible(request) == {"a": [None]}
    assert "requests 5 GPUs, but this machine has 4" in caplog.text


@pytest.mark.usefixtures("four_gpus")
def test_requesting_gpus_without_the_option_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert visible(request_for(gpus(1, "a"))) == {"a": [None]}
    assert "auto_set_cuda_visible_devices" in caplog.text


def test_requesting_gpus_on_a_machine_without_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    request_for(gpus(1, "a"))
    assert "requests 1 GPUs, but this machine has none" in caplog.text


def test_machine_without_nvidia_smi_has_no_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert create_scheduler("s")._cuda_device_count() == 0


def test_cache_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="cache_size"):
        LocalScheduler("s", CWDImageProvider, cache_size=0)


def test_the_text_of_a_large_request_shows_the_first_replicas() -> None:
    info = create_scheduler("test").submit_dryrun(
        AppDef("big", [sh("true", num_replicas=LARGEST_SHOWN + 7, env={"HF_TOKEN": "t0p"})]), {}
    )
    text = str(info)
    assert text.count("'combined':") == LARGEST_SHOWN
    # This remark is in the list of processes and in the list of folders.
    assert text.count("... 7 more replicas; `-o json` shows all") == 2
    assert "t0p" not in text
    assert len(info.request.role_params["main"]) == LARGEST_SHOWN + 7
    small = AppDef("small", [sh("true", num_replicas=LARGEST_SHOWN)])
    assert "more replicas" not in str(create_scheduler("test").submit_dryrun(small, {}))
