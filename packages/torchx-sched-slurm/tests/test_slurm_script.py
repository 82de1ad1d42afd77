"""The request and its script."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchx_sched_slurm import script
from torchx_sched_slurm.scheduler import (
    SlurmBatchRequest,
    SlurmReplicaRequest,
    SlurmScheduler,
    _apply_app_id_env,
    create_scheduler,
)
from torchx_specs import AppDef, BindMount, Resource, RetryPolicy, Role, VolumeMount, macros

# Hypothesis also generates strings from our sources, macros among them; a macro is substituted.
TEXT_WITHOUT_MACROS = st.text(
    st.characters(exclude_characters="\0", exclude_categories=("Cs",))
).filter(
    lambda text: not re.search(r"\$\{?(img_root|base_img_root|app_id|replica_id|rank0_env)", text)
)


def role(name: str = "trainer", **attributes: object) -> Role:
    values: dict[str, object] = {
        "image": "",
        "entrypoint": "python",
        "args": ["-m", "train"],
        "resource": Resource(cpu=2, gpu=0, memMB=1024),
    }
    return Role(name, **{**values, **attributes})  # type: ignore[arg-type]


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmScheduler:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.setenv("PATH", "")  # a dry run calls nobody
    monkeypatch.chdir(tmp_path)
    return create_scheduler("test", docker_client=None, experiment="ignored")


def text(scheduler: SlurmScheduler, *roles: Role, **cfg: object) -> str:
    info = scheduler.submit_dryrun(AppDef("my app", list(roles)), cfg)
    made: str = info.request.materialize()
    return made


def directives(made: str) -> list[dict[str, str]]:
    """The directives of each component."""
    components: list[dict[str, str]] = [{}]
    for line in re.findall(r"^#SBATCH (.*)$", made, re.M):
        if line == "hetjob":
            components.append({})
        else:
            name, _, value = line.partition("=")
            components[-1][name] = value
    return components


class TestNodeGroups:
    def test_one_role_is_one_group(self, scheduler: SlurmScheduler) -> None:
        [found] = directives(text(scheduler, role(num_replicas=256)))
        assert found["--nodes"] == "256"
        assert found["--ntasks-per-node"] == "1"
        assert found["--job-name"] == "my_app"

    def test_a_script_for_256_nodes_is_small_and_ascii(self, scheduler: SlurmScheduler) -> None:
        job = role(
            num_replicas=256,
            entrypoint="bash",
            args=["-c", "torchrun --rdzv_endpoint $${TORCHX_RANK0_HOST:=localhost}:29500 train.py"],
            env={"LOGLEVEL": "WARNING", "TORCHX_JOB_ID": f"slurm://torchx/{macros.app_id}"},
        )
        made = text(scheduler, job, partition="gpu", time="2:00:00")
        assert len(made) < 5000
        assert re.fullmatch(r"[\n -~]*", made)

    def test_the_size_of_a_script_does_not_depend_on_the_replicas(
        self, scheduler: SlurmScheduler
    ) -> None:
        sizes = {len(text(scheduler, role(num_replicas=n))) for n in (100, 999)}
        assert len(sizes) == 1

    def test_roles_that_are_alike_share_a_group(self, scheduler: SlurmScheduler) -> None:
        made = text(scheduler, role("a", num_replicas=2), role("b", num_replicas=3))
        [found] = directives(made)
        assert found["--nodes"] == "5"
        assert '"2 0 a"\n    "3 0 b"' in made

    def test_roles_that_differ_are_components(self, scheduler: SlurmScheduler) -> None:
        bigger = role("b", resource=Resource(cpu=8, gpu=0, memMB=64))
        first, second = directives(text(scheduler, role("a"), bigger, role("c")))
        assert (first["--nodes"], first["--cpus-per-task"]) == ("2", "2")
        assert (second["--nodes"], second["--mem"]) == ("1", "64")

    def test_replicas_share_nodes(self, scheduler: SlurmScheduler) -> None:
        [found] = directives(text(scheduler, role(num_replicas=5), replicas_per_node=2))
        assert (found["--nodes"], found["--ntasks"], found["--mem"]) == ("3", "5", "2048")


class TestOptions:
    @pytest.mark.parametrize(
        ("cfg", "wanted"),
        [
            ({"constraint": "a&b"}, {"--constraint": '"a&b"'}),
            ({"exclusive": True}, {"--exclusive": ""}),
            ({"signal": "B:USR1@60"}, {"--signal": "B:USR1@60"}),
            ({"extra": ["nice=7", "--begin=now+1hour", "hold"]}, {"--nice": "7", "--hold": ""}),
            ({"nodelist": "n[1-4]"}, {"--nodelist": '"n[1-4]"'}),
        ],
    )
    def test_become_directives(
        self, scheduler: SlurmScheduler, cfg: dict[str, object], wanted: dict[str, str]
    ) -> None:
        [found] = directives(text(scheduler, role(), **cfg))
        assert found.items() >= wanted.items()

    def test_of_the_job_are_on_the_command_line(self, scheduler: SlurmScheduler) -> None:
        cfg = {"account": "a", "comment": "b c", "mail-user": "me", "mail-type": "END"}
        info = scheduler.submit_dryrun(AppDef("x", [role()]), cfg)
        assert info.request.cmd == [
            *("sbatch", "--parsable", "--account=a"),
            *("--comment=b c", "--mail-type=END", "--mail-user=me"),
        ]
        assert str(info).startswith("sbatch --parsable --account=a")

    @pytest.mark.parametrize(
        ("cfg", "wanted"),
        [
            ({}, {"--gpus-per-node": "8"}),
            ({"gpu_type": "a100"}, {"--gpus-per-node": "a100:8"}),
            ({"gpu_option": "gres", "gpu_type": "h100"}, {"--gres": "gpu:h100:8"}),
            ({"gpu_option": "gpus-per-task"}, {"--gpus-per-task": "8"}),
            ({"replicas_per_node": 2}, {"--gpus-per-node": "16"}),
        ],
    )
    def test_gpus(
        self, scheduler: SlurmScheduler, cfg: dict[str, object], wanted: dict[str, str]
    ) -> None:
        job = role(resource=Resource(cpu=1, gpu=8, memMB=1))
        [found] = directives(text(scheduler, job, **cfg))
        assert found.items() >= wanted.items()

    @pytest.mark.parametrize(
        ("cfg", "words"),
        [
            ({"time": "soon"}, "option time: 'soon' is no time limit"),
            ({"time": "1:2:3:4"}, "option time"),
            ({"partition": "a\nb"}, "control character"),
            ({"gpu_option": "gpu-per-node"}, "did you mean 'gpus-per-node'"),
            ({"replicas_per_node": 0}, "less than 1"),
            ({"extra": ["nodes=3"]}, "num_replicas"),
            ({"extra": ["#SBATCH x"]}, "not of the form"),
            ({"container": "docker"}, "none of pyxis, apptainer"),
            ({"signal": "please"}, None),
            ({"signal": "USR1@soon"}, "option signal"),
        ],
    )
    def test_bad_ones(
        self, scheduler: SlurmScheduler, cfg: dict[str, object], words: str | None
    ) -> None:
        if words is None:
            return  # Slurm knows more signals than we do
        with pytest.raises(ValueError, match=re.escape(words)) as caught:
            text(scheduler, role(), **cfg)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "time", ["90", "90:30", "1:30:00", "2-12", "2-12:30", "2-12:30:15", "UNLIMITED"]
    )
    def test_times(self, scheduler: SlurmScheduler, time: str) -> None:
        assert directives(text(scheduler, role(), time=time))[0]["--time"] == time

    def test_all_problems_at_once(self, scheduler: SlurmScheduler) -> None:
        with pytest.raises(ValueError, match=r"option time.*no entrypoint") as caught:
            text(scheduler, Role("x", image=""), time="never")
        assert len(caught.value.problems) == 2  # type: ignore[attr-defined]

    def test_no_memory(self, scheduler: SlurmScheduler) -> None:
        assert "--mem" not in directives(text(scheduler, role(), nomem=True))[0]


class TestRetries:
    def test_of_the_whole_job(self, scheduler: SlurmScheduler) -> None:
        made = text(scheduler, role("a", max_retries=3), role("b", max_retries=2))
        assert "TORCHX_MAX_RETRIES=2" in made

    def test_of_a_replica(self, scheduler: SlurmScheduler) -> None:
        made = text(scheduler, role("a", max_retries=3, retry_policy=RetryPolicy.REPLICA))
        assert "TORCHX_MAX_RETRIES=0" in made
        assert '"1 3 a"' in made


class TestContainers:
    def test_pyxis(self, scheduler: SlurmScheduler) -> None:
        job = role(image="nvcr.io#pytorch:1", mounts=[BindMount("/data", "/d", read_only=True)])
        made = text(scheduler, job, container="pyxis")
        assert "--container-image=nvcr.io#pytorch:1" in made
        assert '--container-mounts="$PWD:$PWD",/data:/d:ro' in made

    def test_apptainer(self, scheduler: SlurmScheduler) -> None:
        job = role(
            image="ubuntu:24.04",
            mounts=[BindMount("/a b", "/d")],
            env={"PATH": "/opt/bin", "X": "1"},
            resource=Resource(cpu=1, gpu=1, memMB=1),
        )
        made = text(scheduler, job, container="apptainer")
        assert (
            "exec -- apptainer exec --nv --bind '/a b:/d' docker://ubuntu:24.04 python -m train"
            in made
        )
        assert "export APPTAINERENV_PATH=/opt/bin\n" in made
        assert "export PATH" not in made

    def test_volumes_are_refused(self, scheduler: SlurmScheduler) -> None:
        with pytest.raises(ValueError, match="bind mounts only"):
            text(scheduler, role(mounts=[VolumeMount("v", "/v")]), container="pyxis")

    def test_mounts_without_one_are_told_of(
        self, scheduler: SlurmScheduler, caplog: pytest.LogCaptureFixture
    ) -> None:
        text(scheduler, role(mounts=[BindMount("/a", "/b")]))
        assert "mounts are ignored without a container" in caplog.text


class TestWords:
    def run(self, lines: list[str], path: Path) -> list[str]:
        """Runs a role's function as the script does, with 7 as job and 3 as replica."""
        body = "\n".join(lines)
        path.write_text(f"role_0() {{\n{body}\n}}\n(role_0 7 3)\n", "ascii")
        done = subprocess.run(["/bin/bash", str(path)], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        return [w.decode("utf-8", "surrogateescape") for w in done.stdout.split(b"\0")[:-1]]

    PRINT = ("-c", 'printf "%s\\0" "$@"', "-")

    @settings(deadline=None)  # each starts a shell
    @given(st.lists(TEXT_WITHOUT_MACROS))
    def test_arrive_as_they_are(self, words: list[str]) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            lines = script.command_lines("/bin/bash", [*self.PRINT, *words, "end"], {}, "")
            assert self.run(lines, Path(folder, "s")) == [*words, "end"]

    @pytest.mark.parametrize(
        "name",
        [
            "A",
            "a.b",
            "UID",
            "IFS",
            "LANG",
            "LC_ALL",
            "SHLVL",
            "PWD",
            "RANDOM",
            "BASH_ENV",
            "PS4",
            "_x",
        ],
    )
    def test_variables_of_any_name_arrive(self, name: str, tmp_path: Path) -> None:
        value = "a 'b' $c\n"
        lines = script.command_lines("/usr/bin/env", ["-0"], {name: value}, "")
        assert f"{name}={value}" in self.run(lines, tmp_path / "s")

    def test_macros(self, tmp_path: Path) -> None:
        args = [macros.app_id, f"r{macros.replica_id}'", macros.img_root, "$${app_id}", "$x $$"]
        lines = script.command_lines("/bin/bash", [*self.PRINT, *args], {}, "/img")
        assert self.run(lines, tmp_path / "s") == ["7", "r3'", "/img", "${app_id}", "$x $$"]

    def test_nul_is_refused(self, scheduler: SlurmScheduler) -> None:
        with pytest.raises(ValueError, match=r"role 'trainer': args\[1\] holds a NUL"):
            text(scheduler, role(args=["a", "b\0c"]))

    def test_secrets_are_not_shown(self, scheduler: SlurmScheduler) -> None:
        info = scheduler.submit_dryrun(AppDef("x", [role(env={"HF_TOKEN": "hush"})]), {})
        assert "hush" not in str(info)
        assert "hush" in info.request.materialize()

    def test_apply_app_id_env(self) -> None:
        assert _apply_app_id_env("${app_id}") == '"$SLURM_JOB_ID"'
        assert _apply_app_id_env("id ${app_id}") == "'id '\"$SLURM_JOB_ID\""


def test_bash_reads_the_script(scheduler: SlurmScheduler) -> None:
    made = text(scheduler, role("it's", args=["x\ny", "'"]), role("b", num_replicas=2))
    done = subprocess.run(["/bin/bash", "-n"], input=made, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_requests_of_older_code() -> None:
    """Built by position, one replica each, as upstream's."""
    replica = SlurmReplicaRequest(
        "a-0", "echo", ["${app_id}"], {"x": "1"}, {"mem": "10"}, {"A": "b"}
    )
    batch = SlurmBatchRequest(["sbatch", "--parsable"], {"a-0": replica}, None, 2)
    assert directives(batch.materialize()) == [{"--job-name": "a-0", "--nodes": "1", "--mem": "10"}]
    sbatch, srun = replica.materialize()
    assert sbatch == "--job-name=a-0 --nodes=1 --mem=10"
    assert srun == '--x=1 echo "$1"'


def test_a_dry_run_leaves_nothing(scheduler: SlurmScheduler, tmp_path: Path) -> None:
    str(scheduler.submit_dryrun(AppDef("x", [role()]), {"job_dir": str(tmp_path / "job")}))
    assert list(tmp_path.iterdir()) == []
