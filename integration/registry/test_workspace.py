"""Tests of images with a workspace, built in a registry without an engine, and by an engine."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import registry as registry_service
from docker_engine import BUSYBOX
from images import check_content, docker, make, make_base, tags, uploads
from registry_double import RegistryDouble, answer

from torchx_kit.progress import Step, show_progress
from torchx_kit.workspace import Built
from torchx_specs.errors import BackendError, TorchXError, WorkspaceError
from torchx_workspace_docker.registry import connection


def test_image_built_without_an_engine_contains_the_workspace(
    registry_name: str, base: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = f"{registry_name}/jobs/patched"
    with monkeypatch.context() as context:
        context.setenv("DOCKER_HOST", "unix:///no/such/socket")
        image, built = make(base, workspace, image_repo=repository)
    assert image.startswith(f"{repository}:")
    docker("pull", "-q", image)
    check_content(image, workspace)
    assert f"{repository}@{built.digest}" in docker(
        "inspect", "--format", "{{.RepoDigests}}", image
    )


def test_image_built_by_the_engine_contains_the_workspace(base: str, workspace: Path) -> None:
    image, built = make(base, workspace, remote=False)
    assert image.startswith("torchx-workspace:")
    assert built.ready
    check_content(image, workspace)
    assert docker("inspect", "--format", "{{.Id}}", image).strip() == built.digest
    # TorchX adds exactly one layer to the base; `docker build` would add more.
    layers = json.loads(docker("inspect", "--format", "{{json .RootFS.Layers}}", image))
    base_layers = json.loads(docker("inspect", "--format", "{{json .RootFS.Layers}}", base))
    assert layers[:-1] == base_layers


def test_unchanged_workspace_uploads_nothing(
    registry_name: str, registry_folder: Path, base: str, workspace: Path
) -> None:
    repository = f"{registry_name}/jobs/unchanged"
    image, built = make(base, workspace, image_repo=repository)
    before = uploads(registry_folder)
    assert before > 0
    os.utime(workspace / "large", (1, 1))
    assert make(base, workspace, image_repo=repository) == (image, built)
    assert uploads(registry_folder) == before
    (workspace / "secret").write_text("changed")
    changed, _ = make(base, workspace, image_repo=repository)
    assert changed != image
    assert uploads(registry_folder) > before


def test_image_is_built_again_if_its_base_has_changed(registry_name: str, workspace: Path) -> None:
    image = f"{registry_name}/base/moving:1"
    for remote in (True, False):
        repository = f"{registry_name}/jobs/moving-{int(remote)}"
        make_base(image, f"ENV VERSION={remote}1")
        name, first = make(image, workspace, remote=remote, image_repo=repository)
        make_base(image, f"ENV VERSION={remote}2")
        same, second = make(image, workspace, remote=remote, image_repo=repository)
        assert name == same
        assert first.digest != second.digest
        if remote:
            docker("pull", "-q", name)
        output = docker("run", "--rm", "--network", "none", name, "sh", "-c", "echo $VERSION")
        assert output == f"{remote}2\n"


def test_concurrent_builds_of_one_image_all_succeed(
    registry_name: str, base: str, workspace: Path
) -> None:
    results: list[tuple[str, Built]] = []
    repository = f"{registry_name}/jobs/concurrent"
    threads = [
        threading.Thread(
            target=lambda: results.append(make(base, workspace, image_repo=repository))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert len({(image, built.digest) for image, built in results}) == 1
    docker("pull", "-q", results[0][0])


def test_dockerfile_of_the_workspace_is_built_and_pushed(
    registry_name: str, base: str, workspace: Path
) -> None:
    (workspace / "Dockerfile.torchx").write_text(
        "ARG IMAGE\nARG WORKSPACE\nFROM $IMAGE\nCOPY pkg /pkg\nENV BUILT=yes\n"
    )
    repository = f"{registry_name}/jobs/dockerfile"
    image, built = make(base, workspace, image_repo=repository)
    assert built.digest.startswith("sha256:")
    docker("rmi", image)
    docker("pull", "-q", image)
    output = docker("run", "--rm", "--network", "none", image, "sh", "-c", "echo $BUILT; ls /pkg")
    assert output == "yes\ndeep\n"
    (workspace / "Dockerfile.torchx").write_text("FROM none\nRUN false\n")
    with pytest.raises(TorchXError) as caught:
        make(base, workspace, image_repo=repository)
    assert "\n" not in str(caught.value)


def test_files_are_added_to_system_folders(workspace: Path) -> None:
    (workspace / "bin").mkdir()
    (workspace / "bin" / "mine").write_text("#!/bin/sh\necho mine\n")
    (workspace / "bin" / "mine").chmod(0o755)
    image, _ = make(BUSYBOX, workspace, remote=False)
    assert docker("run", "--rm", "--network", "none", image, "/bin/mine") == "mine\n"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """Start a registry that requires a password, and return its name."""
    folder = tmp_path / "guarded"
    try:
        yield registry_service.start(folder, user="user:right")
    finally:
        registry_service.stop(folder)


@pytest.mark.parametrize(
    "failure",
    [
        b"",
        answer("500 Internal Server Error"),
        answer("429 Too Many Requests", "Retry-After: 1"),
    ],
    ids=["closed", "500", "429"],
)
def test_requests_are_retried_while_the_registry_is_busy_or_unreachable(
    registry_name: str,
    base: str,
    workspace: Path,
    failure: bytes,
) -> None:
    failures: dict[str, int] = {}

    def script(method: str, path: str) -> bytes | None:
        if method in ("PUT", "POST"):
            failures[method] = failures.get(method, 0) + 1
            if failures[method] in (1, 3):
                return failure
        return None

    proxy = RegistryDouble(registry_name, script)
    repository = f"jobs/failure-{len(failure)}"
    image, _ = make(
        base.replace(registry_name, proxy.name), workspace, image_repo=f"{proxy.name}/{repository}"
    )
    proxy.close()
    assert failures["PUT"] >= 3
    name = f"{registry_name}/{repository}:{image.rpartition(':')[2]}"
    docker("pull", "-q", name)
    check_content(name, workspace)


def test_failing_registry_is_one_error_and_tags_nothing(
    registry_name: str, base: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ATTEMPTS", 2)
    proxy = RegistryDouble(
        registry_name,
        lambda method, path: answer("500 Oh no") if method == "PUT" else None,
    )
    with pytest.raises(TorchXError, match="answers 500") as caught:
        make(
            base.replace(registry_name, proxy.name),
            workspace,
            image_repo=f"{proxy.name}/jobs/broken",
        )
    proxy.close()
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3
    assert tags(registry_name, "jobs/broken") == []


def test_invalid_requests_are_errors_on_one_line(
    registry_name: str, base: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkspaceError, match=r"the image .* does not exist"):
        make(f"{registry_name}/no/such:1", workspace, image_repo=f"{registry_name}/jobs/bad")
    # Without a network, the name of Docker's registry cannot be resolved.
    missing = r"the image .* does not exist|cannot be resolved; and the engine has no image of that"
    with pytest.raises(WorkspaceError, match=missing):
        make("torchx-test/none:1", workspace, remote=False)
    monkeypatch.setattr(connection, "ATTEMPTS", 2)
    monkeypatch.setenv("DOCKER_HOST", "unix:///no/such/socket")
    with pytest.raises(BackendError, match="no answer from the Docker Engine at unix:///no/such"):
        make(base, workspace, remote=False)
    unreachable = "127.0.0.1:1"
    with pytest.raises(TorchXError, match="does not answer"):
        make(f"{unreachable}/base:1", workspace, image_repo=f"{unreachable}/x")


def test_progress_has_the_bytes_of_pulls_and_pushes(
    registry_name: str, base: str, workspace: Path
) -> None:
    sizes: dict[str, set[int | None]] = {}
    ended: set[str] = set()

    def display(step: Step) -> None:
        assert 0 <= step.done <= (step.total or step.done)
        sizes.setdefault(step.name, set()).add(step.done)
        if step.has_ended:
            ended.add(step.name)
            assert step.done == step.total

    with show_progress(display):
        image, _ = make(base, workspace, image_repo=f"{registry_name}/jobs/shown", quiet=False)
        # For the next build, the engine pulls this image, which has a workspace of 20 MB.
        make(image, {str(workspace / "pkg"): "pkg"}, remote=False, quiet=False)
        (workspace / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nCOPY large .\n")
        make(base, workspace, image_repo=f"{registry_name}/jobs/engine", quiet=False)
    assert {name.partition(" ")[0] for name in sizes} >= {
        *("packing", "pushing", "pulling", "extracting", "loading")
    }
    assert ended == sizes.keys()
    pulled = sizes[f"pulling {image}"]
    assert max(size or 0 for size in pulled) >= 20 << 20
    sizes.clear()
    with show_progress(display):
        make(base, workspace, image_repo=f"{registry_name}/jobs/quiet")
    assert sizes == {}
