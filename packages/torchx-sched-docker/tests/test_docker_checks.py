"""Tests of the check for ``torchx doctor``, without an engine."""

from __future__ import annotations

import sys

import pytest

from torchx_sched_docker.checks import check_engine


def test_without_the_library_one_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    [result] = check_engine({})
    assert result.level == "error"
    assert result.message.startswith("the docker library cannot be imported: ")
    assert result.remedy == "run: pip install docker"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/no/such/docker.sock", "No such file or directory"),
        (f"/{'long' * 40}/docker.sock", "AF_UNIX path too long"),
    ],
)
def test_an_engine_that_does_not_answer_is_an_error(
    monkeypatch: pytest.MonkeyPatch, path: str, reason: str
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    library, answer = check_engine({})
    assert library.level == "ok"
    assert library.message.endswith(f"engine at unix://{path}")
    assert answer.level == "error"
    assert answer.message == (
        "cannot reach the Docker Engine: no answer from the Docker Engine at"
        f" unix://{path} ({reason})"
    )
    assert "systemctl start docker" in answer.remedy


def test_a_forbidden_socket_names_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    from docker.errors import DockerException

    def refuse(*_: object, **__: object) -> None:
        raise DockerException("Error ... PermissionError(13, 'Permission denied')")

    monkeypatch.setattr("docker.client.DockerClient.version", refuse)
    _, answer = check_engine({})
    assert answer.level == "error"
    assert "usermod -aG docker" in answer.remedy
