"""Requests and their scripts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from torchx_kit.batch.errors import BatchError
from torchx_sched_lsf.options import LsfOpts
from torchx_sched_lsf.request import LsfRequest
from torchx_sched_lsf.scheduler import LsfScheduler, create_scheduler
from torchx_sched_lsf.system import Lsf
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


def options(scheduler: LsfScheduler, *roles: Role, **cfg: object) -> list[list[str]]:
    """Return the options of bsub for each replica."""
    request = scheduler.submit_dryrun(AppDef("My App", list(roles)), cfg).request
    return [list(job.options) for jobs in request.jobs("/x") for job in jobs]


class TestScript:
    def test_each_replica_is_a_job(self, scheduler: LsfScheduler) -> None:
        roles = [role(num_replicas=2), role("b")]
        found = options(scheduler, *roles, lsf_queue="q", time="1:30", project="genomics")
        expected = ["-P", "genomics", "-q", "q", "-W", "1:30", "-n", "2"]
        expected += ["-R", "span[hosts=1] rusage[mem=64MB/host]"]
        assert found == [expected] * 3
        shown = repr(scheduler.submit_dryrun(AppDef("My App", roles), {}))
        assert re.search(r"^bsub -H -J my-app-\w+-main-1 -o ", shown, re.M)
        assert re.search(r"<<< .*exec /bin/bash .*/script.* 0 1.*$", shown, re.M)

    def test_time_limit_with_a_unit_is_in_minutes(self, scheduler: LsfScheduler) -> None:
        assert options(scheduler, role(), time="90s")[0][:2] == ["-W", "2"]
        assert options(scheduler, role(), time="1-12:00")[0][:2] == ["-W", "2160"]

    def test_elements_of_an_array_wait_for_an_earlier_array(self) -> None:
        one = AppDef("a", [role()])
        cfg = LsfOpts(dependency="done(5)")
        request = LsfRequest(
            Lsf(), "a-x1", one, cfg, "/x", elements=[one] * 3, limit=2, previous="7"
        )
        [[job]] = request.jobs("/x")
        argv, stdin = Lsf().submission(job)
        assert argv[:3] == ["bsub", "-J", "a-x1-main-0[1-3]%2"]
        assert argv[argv.index("-w") + 1] == "(done(5)) && ended(7)"
        assert stdin == (b"unset LSB_NTRIES; exec /bin/bash /x/.torchx-lsf/a-x1/script 0 0\n")
        request.cfg = LsfOpts()
        argv, _ = Lsf().submission(request.jobs("/x")[0][0])
        assert argv[argv.index("-w") + 1] == "ended(7)"

    def test_other_jobs_start_after_replica_0_of_the_first_role(
        self, scheduler: LsfScheduler
    ) -> None:
        app = AppDef("app", [role(num_replicas=2), role("b")])
        request = scheduler.submit_dryrun(app, {"dependency": "done(5)"}).request
        jobs = [job for own in request.jobs("/x") for job in own]
        found = [argv[argv.index("-w") + 1] for argv, _ in map(Lsf().submission, jobs)]
        first = f'(done(5)) && started("{jobs[0].name}")'
        assert found == ["done(5)", first, first]

    def test_script_is_valid_bash_in_ascii(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role("it's\n", args=["x\ny", "'", "é"]), jobdir="/a 'b'")
        done = subprocess.run(["/bin/bash", "-n"], input=made, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"[\n -~]*", made)

    def test_resource_requirement_without_memory(self, scheduler: LsfScheduler) -> None:
        found = options(scheduler, role(resource=Resource(cpu=-1, gpu=-1, memMB=-1)))
        assert found == [["-R", "span[hosts=1]"]]

    def test_gpus_are_requested(self, scheduler: LsfScheduler) -> None:
        [found] = options(scheduler, role(resource=Resource(cpu=1, gpu=2, memMB=1)))
        assert found[-2:] == ["-gpu", "num=2/host:mode=shared:j_exclusive=yes"]

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
        assert re.search(r'--name=my-app-\w+-main-"\$1"', made)

    def test_program_that_env_would_take_for_a_variable_is_an_error(
        self, scheduler: LsfScheduler
    ) -> None:
        assert "exec -- a=b -m" in text(scheduler, role(entrypoint="a=b"))
        with pytest.raises(RequestError, match=r"role 'main': entrypoint 'a=b' contains '='"):
            text(scheduler, role(entrypoint="a=b", env={"odd-name": "1"}))

    def test_directory_as_image_runs_without_a_container(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(image="/work", args=[macros.img_root]))
        assert 'exec -- "$(command -v python || echo python3)" /work\n' in made

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
        assert str(info).startswith("bsub -J x-")

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
            BatchError, match="LSF is not installed: there is no command bjobs on PATH"
        ):
            scheduler.list()


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
