"""Tests of bad input: deleted apps, hostile names, garbage from services, and a full disk."""

from __future__ import annotations

import json
import re
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOSTILE_NAME = "train\x1b]52;c;cm0gLXJm\x07\u202egnp"
# The characters that a terminal obeys, except newlines and tabs.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
ANSWERS = {
    "bytes": bytes(range(256)) * 20,
    "other JSON": _HEAD + b'Content-Length: 18\r\n\r\n{"items":[1, [2]]}',
    "HTML": _HEAD + b"Content-Length: 15\r\n\r\n<html>\x1b]0;t\x07</>",
}


def error_of(done: subprocess.CompletedProcess[str]) -> str:
    """Return the line with the error of a command.

    Check that there is one such line, no traceback, and no control character in the output.
    """
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    errors = [line for line in lines if line.startswith("torchx: error: ")]
    assert len(errors) == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert _CONTROL.search(done.stdout + done.stderr.replace("\n", "")) is None
    return errors[0]


@pytest.fixture(scope="module", params=ANSWERS)
def server(request: pytest.FixtureRequest) -> Iterator[int]:
    """Yield the port of a server that gives the same answer to everything."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(ANSWERS[request.param])

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_address[1]
        found.shutdown()


@pytest.fixture
def deleted(torchx: Any) -> str:
    """Return the handle of a local app that was deleted."""
    done = torchx("run", "-s", "local_cwd", "--detach", "utils.sh", "true")
    handle = str(done.stdout.strip())
    assert torchx("delete", handle).returncode == 0
    return handle


@pytest.mark.parametrize(
    "words",
    [
        ("status", "@1"),
        ("describe", "@1"),
        ("wait", "@1"),
        ("log", "@1"),
        ("log", "-f", "@1"),
        ("exec", "@1", "--", "true"),
        ("shell", "@1"),
        ("forward", "@1", "80"),
        ("cp", "@1:file", "."),
    ],
    ids=" ".join,
)
def test_a_deleted_app_is_named(deleted: str, torchx: Any, words: tuple[str, ...]) -> None:
    done = torchx(*words)
    assert done.returncode == 1
    assert error_of(done).startswith(f"torchx: error: unknown app: {deleted} ")


@pytest.mark.parametrize("words", [("list", "-s"), ("status",)], ids=" ".join)
def test_a_cluster_that_answers_garbage_is_one_line(
    server: int, torchx: Any, environment: dict[str, str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server}"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    docker = f"tcp://127.0.0.1:{server}"
    environment.update(KUBECONFIG=str(kubeconfig), DOCKER_HOST=docker)
    environment["TORCHX_KUBERNETES_RETRY_SECONDS"] = "1"
    for scheduler, app_id in (("kubernetes", "default:train"), ("local_docker", "train")):
        last = scheduler if words[0] == "list" else f"{scheduler}://torchx/{app_id}"
        done = torchx(*words, last)
        assert done.returncode == 3, done.stderr
        assert len(error_of(done)) < 2000


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("scheduler", ["slurm", "lsf", "sge"])
def test_commands_of_a_cluster_that_print_garbage_are_one_line(
    torchx: Any, environment: dict[str, str], tmp_path: Path, scheduler: str, answer: str
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / "answer").write_bytes(ANSWERS[answer])
    for name in ("squeue", "sacct", "scontrol", "bjobs", "qstat", "qacct"):
        (programs / name).write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
        (programs / name).chmod(0o755)
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    done = torchx("list", "-s", scheduler)
    assert done.returncode == 3, done.stderr
    assert len(error_of(done)) < 2000
