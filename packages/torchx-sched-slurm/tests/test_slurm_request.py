"""Requests: node groups, retries and containers."""

from __future__ import annotations

import subprocess

import pytest
from slurm_requests import directives, role, script_text

from torchx_sched_slurm.scheduler import (
    SlurmBatchRequest,
    SlurmReplicaRequest,
    SlurmScheduler,
)
from torchx_specs import BindMount, Resource, RetryPolicy, VolumeMount


class TestNodeGroups:
    def test_one_role_is_one_group(self, scheduler: SlurmScheduler) -> None:
        [found] = directives(script_text(scheduler, role(num_replicas=256)))
        assert found["--nodes"] == "256"
        assert found["--ntasks-per-node"] == "1"
        assert found["--job-name"] == "my_app"

    def test_roles_with_equal_requests_share_a_group(self, scheduler: SlurmScheduler) -> None:
        made = script_text(scheduler, role("a", num_replicas=2), role("b", num_replicas=3))
        [found] = directives(made)
        assert found["--nodes"] == "5"
        assert '"2 0 a"\n    "3 0 b"' in made

    def test_roles_with_different_requests_are_components(self, scheduler: SlurmScheduler) -> None:
        bigger = role("b", resource=Resource(cpu=8, gpu=0, memMB=64))
        first, second = directives(script_text(scheduler, role("a"), bigger, role("c")))
        assert (first["--nodes"], first["--cpus-per-task"]) == ("2", "2")
        assert (second["--nodes"], second["--mem"]) == ("1", "64")

    def test_replicas_per_node_reduces_the_nodes(self, scheduler: SlurmScheduler) -> None:
        [found] = directives(script_text(scheduler, role(num_replicas=5), replicas_per_node=2))
        assert (found["--nodes"], found["--ntasks"], found["--mem"]) == ("3", "5", "2048")


@pytest.mark.parametrize(
    ("extra", "replaced"),
    [
        ("mem-per-cpu=2G", ["--mem"]),
        ("mem-per-gpu=2G", ["--mem"]),
        ("gpus=4", ["--gpus-per-node"]),
        ("gres=gpu:a100:2", ["--gpus-per-node"]),
        ("gres=nvme:1", []),
        ("cpus-per-gpu=4", ["--cpus-per-task"]),
        ("ntasks-per-gpu=1", ["--gpus-per-node", "--ntasks-per-node"]),
        ("nice=7", []),
    ],
)
def test_directive_of_the_user_replaces_those_that_it_excludes(
    scheduler: SlurmScheduler, extra: str, replaced: list[str]
) -> None:
    derived = ("--mem", "--gpus-per-node", "--cpus-per-task", "--ntasks-per-node")
    job = role(resource=Resource(cpu=2, gpu=1, memMB=64))
    made = script_text(scheduler, job, extra=[extra])
    [found] = directives(made)
    name, _, value = extra.partition("=")
    assert found[f"--{name}"] == value
    assert sorted(set(derived) - found.keys()) == replaced
    step = made.partition("\nsrun ")[2]
    assert ("--cpus-per-task=2" in step) == ("--cpus-per-task" not in replaced)


def test_output_of_earlier_attempts_is_kept_unless_the_user_truncates_it(
    scheduler: SlurmScheduler,
) -> None:
    [default] = directives(script_text(scheduler, role()))
    [own] = directives(script_text(scheduler, role(), extra=["open-mode=truncate"]))
    assert (default["--open-mode"], own["--open-mode"]) == ("append", "truncate")


class TestRetries:
    def test_job_is_requeued_as_often_as_the_smallest_max_retries(
        self, scheduler: SlurmScheduler
    ) -> None:
        made = script_text(scheduler, role("a", max_retries=3), role("b", max_retries=2))
        assert "TORCHX_MAX_RETRIES=2" in made

    def test_replica_policy_restarts_the_replica_in_place(self, scheduler: SlurmScheduler) -> None:
        made = script_text(scheduler, role("a", max_retries=3, retry_policy=RetryPolicy.REPLICA))
        assert "TORCHX_MAX_RETRIES=0" in made
        assert '"1 3 a"' in made


class TestContainers:
    def test_pyxis_gets_enroots_name_of_an_image_in_a_registry(
        self, scheduler: SlurmScheduler
    ) -> None:
        job = role(image="ghcr.io/pytorch/torchx:0.7.0")
        name = "--container-image=ghcr.io#pytorch/torchx:0.7.0"
        assert name in script_text(scheduler, job, container="pyxis")
        assert name in script_text(scheduler, job, workspace_type="docker")

    def test_pyxis_mounts_the_working_directory(self, scheduler: SlurmScheduler) -> None:
        job = role(image="nvcr.io#pytorch:1", mounts=[BindMount("/data", "/d", read_only=True)])
        made = script_text(scheduler, job, container="pyxis")
        assert "--container-image=nvcr.io#pytorch:1" in made
        assert '--container-mounts="$tx_base:$tx_base",/data:/d:ro' in made

    def test_pyxis_mounts_the_secrets_of_roles_that_refer_to_them(
        self, scheduler: SlurmScheduler
    ) -> None:
        first = role(env={"HF_TOKEN": "${secret:hf}"}, image="a")
        made = script_text(scheduler, first, role("other", image="a"), container="pyxis")
        assert made.count('"$tx_base:$tx_base","$tx_secrets:$tx_secrets:ro"') == 1
        assert made.count("export tx_secrets=${TORCHX_HOME:-$HOME/.torchx}/secrets\n") == 1
        assert "    tx_secret HF_TOKEN hf\n" in made
        subprocess.run(["/bin/bash", "-n"], input=made, text=True, check=True)
        without = script_text(scheduler, role("other", image="a"), container="pyxis")
        assert "secret" not in without

    def test_apptainer_runs_the_image(self, scheduler: SlurmScheduler) -> None:
        job = role(
            image="ubuntu:24.04",
            mounts=[BindMount("/a b", "/d")],
            env={"PATH": "/opt/bin", "X": "1"},
            resource=Resource(cpu=1, gpu=1, memMB=1),
        )
        made = script_text(scheduler, job, container="apptainer")
        assert (
            "exec -- apptainer exec --nv --bind '/a b:/d' docker://ubuntu:24.04 python -m train"
            in made
        )
        assert "export APPTAINERENV_PATH=/opt/bin\n" in made
        assert "export PATH" not in made

    def test_volume_is_an_error(self, scheduler: SlurmScheduler) -> None:
        with pytest.raises(ValueError, match="role 'trainer': Pyxis supports only bind mounts"):
            script_text(scheduler, role(mounts=[VolumeMount("v", "/v")]), container="pyxis")

    def test_mounts_without_a_container_cause_a_warning(
        self, scheduler: SlurmScheduler, caplog: pytest.LogCaptureFixture
    ) -> None:
        script_text(scheduler, role(mounts=[BindMount("/a", "/b")]))
        assert "mounts are ignored without a container" in caplog.text


def test_request_built_by_position_as_in_upstream() -> None:
    """Upstream's TorchX makes one SlurmReplicaRequest for each replica, not for each role."""
    replica = SlurmReplicaRequest(
        "a-0", "echo", ["${app_id}"], {"x": "1"}, {"mem": "10"}, {"A": "b"}
    )
    batch = SlurmBatchRequest(["sbatch", "--parsable"], {"a-0": replica}, None, 2)
    assert directives(batch.materialize()) == [{"--job-name": "a-0", "--nodes": "1", "--mem": "10"}]
    sbatch, srun = replica.materialize()
    assert sbatch == ["--job-name=a-0", "--nodes=1", "--mem=10"]
    assert srun == ["--x=1", "--export=ALL,A=b", "echo", '"$SLURM_JOB_ID"']
