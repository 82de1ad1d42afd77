"""Tests of the command ``torchx`` on the double of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from k8s_apps import IMAGE
from k8s_double.handle import Double

from patience import wait_for

Torchx = Callable[..., "CompletedProcess[str]"]
HANDLE = re.compile(r"kubernetes(?:_mcad)?://torchx/default:[a-z0-9-]+")


@pytest.fixture
def environment(environment: dict[str, str], double: Double) -> dict[str, str]:
    """Environment of a user whose kubeconfig names the double."""
    return {**environment, "KUBECONFIG": str(double.path)}


# without a workspace, the command does not build an image of the working directory
HERE = "--workspace="


def run(torchx: Torchx, *words: object) -> tuple[CompletedProcess[str], str]:
    done = torchx("run", HERE, "-s", "kubernetes", *words)
    handle = HANDLE.search(done.stdout + done.stderr)
    assert handle is not None, done.stderr
    return done, handle[0]


def test_logs_of_many_pods_use_a_bounded_pool(torchx: Torchx, double: Double) -> None:
    count = 256
    double.play("pretended", lines=["first", "second"], seconds=4)
    _, handle = run(
        torchx, "utils.sh", "--image", IMAGE, "--num_replicas", count, "true"
    )  # fmt: skip
    wait_for(lambda: len(double.objects("pods")) == count)
    assert torchx("wait", "--until", "RUNNING", handle).returncode == 0
    log = torchx("log", handle)
    assert log.returncode == 0, log.stderr
    assert log.stdout.count("first") == count
    assert log.stdout.count("second") == count
    assert double.streams()["most"] <= 100


def test_volcano_and_mcad_by_name(torchx: Torchx, double: Double) -> None:
    double.play_operator("jobs.batch.volcano.sh", pods=True)
    double.play_operator("appwrappers.workload.codeflare.dev", pods=True)
    for words in (
        ["-s", "kubernetes", "-cfg", "queue=default"],
        ["-s", "kubernetes_mcad"],
    ):
        done = torchx("run", HERE, "--wait", *words, "utils.echo", "--image", IMAGE, "--msg", "hi")
        assert done.returncode == 0, done.stderr
        handle = HANDLE.search(done.stdout + done.stderr)
        assert handle is not None
        assert torchx("log", handle[0]).stdout.count("hi") == 1


def test_logs_of_deleted_pods_stay_in_a_log_sink(
    torchx: Torchx, double: Double, tmp_path: Path
) -> None:
    config = tmp_path / "work" / ".torchxconfig"
    config.write_text(f"[log_sink:disk]\nurl = file://{tmp_path}/copies\n")
    done, handle = run(
        torchx, "--wait", "utils.echo", "--image", IMAGE, "--msg", "kept", "--num_replicas", 2
    )
    assert done.returncode == 0, done.stderr
    assert torchx("delete", handle).returncode == 0
    log = torchx("log", handle)
    assert log.returncode == 0, log.stderr
    assert sorted(log.stdout.splitlines()) == ["echo/0 kept", "echo/1 kept"]
    assert f"{handle} no longer exists" in log.stderr
