"""Requests and their scripts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from torchx_sched_lsf.scheduler import (
    LsfBsub,
    LsfError,
    LsfOpts,
    LsfScheduler,
    cleanup_str,
    create_scheduler,
    get_bsub,
    get_command,
    get_docker_command,
    get_submit_script,
)
from torchx_specs import AppDef, BindMount, Resource, Role, VolumeMount, macros
from torchx_specs.errors import RequestError


def role(name: str = "main", **attributes: object) -> Role:
    values: dict[str, object] = {
        "image": "",
        "entrypoint": "python",
        "args": ["-m", "train"],
        "resource": Resource(cpu=2, gpu=0, memMB=64),
    }
    return Role(name, **{**values, **attributes})  # type: ignore[arg-type]


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LsfScheduler:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.setenv("PATH", "")  # a dry run runs no command
    monkeypatch.chdir(tmp_path)
    return create_scheduler("test", docker_client="ignored")


def text(scheduler: LsfScheduler, *roles: Role, **cfg: object) -> str:
    info = scheduler.submit_dryrun(AppDef("My App", list(roles)), cfg)
    made: str = info.request.materialize()
    return made


def submissions(made: str) -> list[str]:
    return re.findall(r"^    (submit \d.*)$", made, re.M)


class TestScript:
    def test_each_replica_is_a_job(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(num_replicas=2), role("b"), lsf_queue="q", time="1:30")
        app_id = re.findall(r"^tx_app=(\S+)$", made, re.M)[0]
        assert app_id.startswith("myapp-")
        options = '-q q -W 1:30 -n 2 -R "span[hosts=1] rusage[mem=$(memory 64)]"'
        assert submissions(made) == [f"submit {at} {options}" for at in ("0 0", "0 1", "1 0")]

    def test_project_is_the_users(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(), project="genomics")
        assert submissions(made)[0].startswith("submit 0 0 -P genomics ")
        assert "-P" not in text(scheduler, role())

    def test_script_is_valid_bash_in_ascii(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role("it's\n", args=["x\ny", "'", "é"]), jobdir="/a 'b'")
        done = subprocess.run(["/bin/bash", "-n"], input=made, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"[\n -~]*", made)

    def test_resource_requirement_without_memory(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(resource=Resource(cpu=-1, gpu=-1, memMB=-1)))
        assert submissions(made) == ["submit 0 0 -R 'span[hosts=1]'"]

    def test_gpus_are_requested(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(resource=Resource(cpu=1, gpu=2, memMB=1)))
        assert '-gpu "num=2$tx_per_host:mode=shared:j_exclusive=yes"' in made

    def test_docker_takes_variables_by_name(self, scheduler: LsfScheduler) -> None:
        job = role(
            image="ubuntu:24.04",
            env={"TOKEN_X": "hush hush", "a.b": "c"},
            mounts=[BindMount("/a b", "/c", read_only=True), VolumeMount("v", "/v")],
            port_map={"http": 80},
        )
        made = text(scheduler, job)
        assert "-e TOKEN_X" in made
        assert made.count("hush hush") == 1
        assert "-v '/a b:/c:ro'" in made
        assert "--mount type=volume,src=v,dst=/v" in made
        assert "--shm-size 64m" in made
        assert "--memory=67108864" in made
        assert "--entrypoint python --rm ubuntu:24.04 -m train" in made
        assert re.search(r'--name=myapp-\w+-main-"\$1"', made)

    def test_program_that_env_would_take_for_a_variable_is_an_error(
        self, scheduler: LsfScheduler
    ) -> None:
        assert "exec -- a=b -m" in text(scheduler, role(entrypoint="a=b"))
        with pytest.raises(RequestError, match=r"role 'main': entrypoint 'a=b' contains '='"):
            text(scheduler, role(entrypoint="a=b", env={"odd-name": "1"}))

    def test_directory_as_image_runs_without_a_container(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(image="/work", args=[macros.img_root]))
        assert "exec -- python /work\n" in made

    def test_apptainer_runs_the_image(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(image="ubuntu:24.04"), container="apptainer")
        assert "exec -- apptainer exec docker://ubuntu:24.04 python -m train\n" in made

    def test_apptainer_passes_the_path_to_the_container(self, scheduler: LsfScheduler) -> None:
        main = role(image="ubuntu:24.04", env={"PATH": "/opt/bin"})
        assert "export APPTAINERENV_PATH=/opt/bin" in text(scheduler, main, container="apptainer")
        assert "export PATH=/opt/bin" in text(scheduler, main, container="docker")

    def test_secrets_are_masked_in_dry_runs(self, scheduler: LsfScheduler) -> None:
        args = ["--api-key", "hush", "--password=hush", "--lr", "1"]
        secrets = {"env": {"HF_TOKEN": "hush"}, "args": args}
        cfg = {"setup": ["export WANDB_API_KEY=hush"]}
        info = scheduler.submit_dryrun(AppDef("x", [role(**secrets)]), cfg)
        assert "hush" not in str(info)
        assert "--api-key '***' '--password=***' --lr 1" in str(info)
        assert str(info).startswith("/bin/bash $BSUB_SCRIPT\n\n#-")

    @pytest.mark.parametrize(
        ("cfg", "message"),
        [
            ({"time": "soon"}, "option time"),
            ({"container": "podman"}, "not one of docker"),
            ({"lsf_queue": "a\nb"}, "control character"),
            ({"jobdir": "/a/%J"}, "%"),
        ],
    )
    def test_invalid_option_is_an_error(
        self, scheduler: LsfScheduler, cfg: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            text(scheduler, role(), **cfg)

    def test_missing_lsf_is_reported(self, scheduler: LsfScheduler) -> None:
        with pytest.raises(
            LsfError, match="LSF is not installed: there is no command bjobs on PATH"
        ):
            scheduler.list()


def test_cleanup_str() -> None:
    assert cleanup_str("-Ab c_1-é") == "abc_1-"


class TestUpstreamFunctions:
    def test_command_lines(self) -> None:
        cfg = LsfOpts(jobdir="/j d")
        job = role(image="i", env={"A": "b c"})
        line = get_docker_command("name", job, cfg)
        assert line.startswith("docker run --name=name")
        assert "-e 'A=b c' --entrypoint python --rm i -m train" in line
        assert get_command("n", job, cfg).endswith(" > '/j d/n.out' 2> '/j d/n.err'")
        assert "-m host" in get_bsub("app", "app-r-0", job, cfg, "app-r-0", "host")
        other = get_bsub("app", "app-r-1", job, {"lsf_queue": "q"}, "app-r-0", "host")
        assert "-w 'started(app-r-0)'" in other
        assert "-q q" in other
        app = AppDef("x", [job])
        made = get_submit_script("app", ["/bin/bash"], app, cfg, "host")
        assert made == LsfBsub("/j d", "app", app, cfg, ["/bin/bash"]).materialize("host")


@pytest.mark.parametrize("container", ["none", "docker", "apptainer"])
def test_secrets_are_read_on_the_host_and_passed_in_the_environment(container: str) -> None:
    role = Role("main", "image", entrypoint="sh", env={"HF_TOKEN": "${secret:hf/key}", "A": "b"})
    info = create_scheduler("t").submit_dryrun(AppDef("a", [role]), {"container": container})
    made = info.request.materialize()
    body = made[made.index("role_0() {") :].partition("\n}\n")[0]
    assert "    tx_secret HF_TOKEN hf key\n    export A=b\n" in body
    assert ("-e HF_TOKEN " in body) == (container == "docker")
    assert made.count("tx_secret() {") == 1
    assert "tx_secret HF_TOKEN hf key" in repr(info)
