"""Tests of the command ``torchx`` on the double of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired

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


def test_a_job_from_run_to_delete(torchx: Torchx, double: Double) -> None:
    done = torchx(
        "run", HERE, "--wait", "-s", "kubernetes", "-cfg", "job_api=batch",
        "utils.echo", "--image", IMAGE, "--msg", "hi $(HOME) $$", "--num_replicas", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    handle = HANDLE.search(done.stdout + done.stderr)
    assert handle is not None
    status = torchx("status", handle[0])
    assert "SUCCEEDED" in status.stdout
    log = torchx("log", handle[0])
    assert log.returncode == 0, log.stderr
    assert log.stdout.count("hi $(HOME) $$") == 2
    assert handle[0] in torchx("list", "-s", "kubernetes").stdout
    assert torchx("describe", handle[0]).returncode == 0
    assert torchx("delete", handle[0]).returncode == 0
    assert torchx("status", handle[0]).returncode == 1
    assert double.left() == []
    assert double.warnings() == []


def test_status_shows_why_a_job_failed(torchx: Torchx) -> None:
    done = torchx(
        "run", HERE, "--wait", "-s", "kubernetes", "utils.sh", "--image", IMAGE, "exit", "3"
    )  # fmt: skip
    assert done.returncode == 1
    handle = HANDLE.search(done.stdout + done.stderr)
    assert handle is not None
    status = torchx("status", handle[0])
    assert status.returncode == 0
    assert "FAILED" in status.stdout
    assert "exit code 3" in status.stdout


def test_status_shows_why_a_job_waits(torchx: Torchx, double: Double) -> None:
    _, handle = run(torchx, "utils.echo", "--image", "example.com/none:1", "--msg", "hi")
    wait_for(
        lambda: [e for e in double.objects("events") if e["message"] == "Error: ImagePullBackOff"]
    )
    status = torchx("status", handle)
    assert "PENDING" in status.stdout
    assert "Pull" in status.stdout
    assert "example.com/none:1" in status.stdout


def test_cancel(torchx: Torchx, double: Double) -> None:
    _, handle = run(torchx, "utils.sh", "--image", IMAGE, "sleep", "60")
    wait_for(lambda: [p for p in double.objects("pods") if p["status"]["phase"] == "Running"])
    assert torchx("cancel", handle).returncode == 0
    assert "CANCELLED" in torchx("status", handle).stdout
    wait_for(lambda: double.objects("pods") == [])
    assert torchx("cancel", "kubernetes://torchx/default:none").returncode == 0


def test_the_server_accepts_the_printed_dry_run(
    torchx: Torchx, double: Double, tmp_path: Path
) -> None:
    import yaml
    from double_client import Client

    before = double.counted()
    done = torchx(
        "run", HERE, "--dryrun", "-s", "kubernetes", "utils.echo", "--image", IMAGE, "--msg", "hi"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert double.counted() == before
    text = done.stdout[done.stdout.index("apiVersion") :]
    text = text[: text.index("=== ")] if "=== " in text else text
    documents = [one for one in yaml.safe_load_all(text) if one]
    objects = [item for one in documents for item in (one.get("items") or [one])]
    assert {one["kind"] for one in objects} == {"Job", "Service"}
    client = Client(str(double.path))
    for one in objects:
        group = "/api/v1" if one["apiVersion"] == "v1" else f"/apis/{one['apiVersion']}"
        path = f"{group}/namespaces/default/{one['kind'].lower()}s"
        code, answer, _ = client.raw("POST", f"{path}?fieldValidation=Strict", one)
        assert code == 201, answer


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


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["-cfg", "namespace=nowhere"], 2, "nowhere"),
        (["-cfg", "context=doubel"], 2, "did you mean 'double'"),
        (["-cfg", "job_api=bach"], 2, "did you mean 'batch'"),
        (["-cfg", "image_pull_secret=x"], 2, "did you mean"),
        (["-cfg", "job_api=volcano"], 2, "queue"),
    ],
)
def test_an_error_is_one_line(torchx: Torchx, words: list[str], code: int, told: str) -> None:
    done = torchx("run", HERE, "-s", "kubernetes", *words, "utils.echo", "--image", IMAGE)
    assert done.returncode == code, done.stderr
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_cluster_is_one_line(
    torchx: Torchx, environment: dict[str, str], double: Double
) -> None:
    double.revoke()
    done = torchx("run", HERE, "-s", "kubernetes", "utils.echo", "--image", IMAGE)
    assert done.returncode == 3
    assert "log in again" in done.stderr
    environment.pop("KUBECONFIG")
    done = torchx("list", "-s", "kubernetes")
    assert done.returncode == 3
    assert "no cluster is configured" in done.stderr
    assert "Traceback" not in done.stderr


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


@pytest.mark.parametrize("command", [("log", "-f"), ("wait",)], ids=" ".join)
def test_a_command_that_waits_shows_why_an_app_does_not_start(
    torchx: Torchx, double: Double, command: tuple[str, ...]
) -> None:
    double.play("image-pull-back-off")
    _, handle = run(torchx, "-cfg", "job_api=batch", "utils.echo", "--image", IMAGE)
    with pytest.raises(TimeoutExpired) as caught:
        torchx(*command, handle, timeout=25)
    assert "is still pending: echo/0: ImagePullBackOff" in (caught.value.stderr or b"").decode()


def test_logs_of_deleted_pods_stay_in_a_log_sink(
    torchx: Torchx, double: Double, tmp_path: Path
) -> None:
    config = tmp_path / "work" / ".torchxconfig"
    config.write_text(f"[log_sinks]\ndisk = file://{tmp_path}/copies\n")
    done, handle = run(
        torchx, "--wait", "utils.echo", "--image", IMAGE, "--msg", "kept", "--num_replicas", 2
    )
    assert done.returncode == 0, done.stderr
    assert torchx("delete", handle).returncode == 0
    log = torchx("log", handle)
    assert log.returncode == 0, log.stderr
    assert sorted(log.stdout.splitlines()) == ["echo/0 kept", "echo/1 kept"]
    assert f"{handle} no longer exists" in log.stderr
