"""Tests of the images with workspaces that ``local_docker`` builds, and of their removal."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from docker_engine import BUSYBOX

from torchx_sched_docker.scheduler import DockerScheduler
from torchx_specs import AppDef, AppState, Role, Workspace
from torchx_specs.errors import WorkspaceError
from torchx_specs.schedulers import DescribeAppResponse
from torchx_specs.workspace.pruning import Prunable, PruneQuery
from torchx_workspace_docker.engine import pruning

Ended = Callable[[str], DescribeAppResponse]


@pytest.fixture
def images(scheduler: DockerScheduler) -> Iterator[Callable[[], dict[str, str]]]:
    """Return a function that returns the ids of the images that a test has built, by name."""
    api = scheduler._docker_client.api
    before: dict[str, str] = {}

    def built() -> dict[str, str]:
        found = {i["RepoTags"][0]: i["Id"] for i in api.images(name="torchx-workspace")}
        return {name: found[name] for name in found.keys() - before}

    before = built()
    yield built
    for app in scheduler.list():
        scheduler.delete(app.app_id)
    for name in built():
        api.remove_image(name, force=True)


@pytest.fixture
def unused_images(
    images: Callable[[], dict[str, str]],
) -> Callable[[PruneQuery], dict[str, Prunable]]:
    """Return a function that returns the unused images of this test, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pruning, "MIN_AGE", -1.0)
        others = {i.name for i in pruning.unused_images(PruneQuery(0.0, include_newest=True))}

    def found(query: PruneQuery) -> dict[str, Prunable]:
        return {i.name: i for i in pruning.unused_images(query) if i.name not in others}

    return found


@pytest.fixture
def projects(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for name in ("one", "two"):
        found[name] = tmp_path / name
        found[name].mkdir()
        (found[name] / "which.txt").write_text(f"workspace {name}\n")
    return found


def reader(name: str, workspace: Path | None) -> Role:
    command = {"entrypoint": "sh", "args": ["-c", "cat which.txt 2>/dev/null || echo none"]}
    role = Role(name, BUSYBOX, **command)  # type: ignore[arg-type]
    role.workspace = Workspace({str(workspace): ""}) if workspace else None
    return role


def test_changed_file_becomes_a_layer_on_the_previous_image(
    scheduler: DockerScheduler,
    ended: Ended,
    projects: dict[str, Path],
    images: Callable[[], dict[str, str]],
) -> None:
    project = projects["one"]
    (project / "large").write_bytes(os.urandom(1 << 20))
    script = project / "which.txt"
    counts = []
    for text in ("first\n", "second\n"):
        script.write_text(text)
        app_id = scheduler.submit(
            AppDef("app", [reader("a", project)]), {"pull": "never", "quiet": True}
        )
        assert ended(app_id).state == AppState.SUCCEEDED
        assert list(scheduler.log_iter(app_id, "a"))[-1] == text
        api = scheduler._docker_client.api
        layers = [api.inspect_image(name)["RootFS"]["Layers"] for name in images()]
        counts.append(sorted(map(len, layers)))
    assert counts == [[2], [2, 3]]


def test_image_has_the_date_of_its_build(
    scheduler: DockerScheduler, projects: dict[str, Path], images: Callable[[], dict[str, str]]
) -> None:
    before = int(time.time())
    app = AppDef("app", [reader("a", projects["one"])])
    scheduler.submit(app, {"pull": "never", "quiet": True})
    ((name, _),) = images().items()
    (image,) = scheduler._docker_client.api.images(name=name)
    assert before <= image["Created"] <= time.time() + 1


def test_rerun_takes_the_submitted_files_or_the_present_ones(
    scheduler: DockerScheduler, images: Callable[[], dict[str, str]], projects: dict[str, Path]
) -> None:
    folder = projects["one"]

    def torchx(*words: str) -> str:
        argv = [str(Path(sys.executable).parent / "torchx"), *words]
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    run = ("-s", "local_docker", "--log", "utils.sh", "--image", BUSYBOX)
    assert "workspace one" in torchx("run", *run, "--", "cat", "which.txt")
    (folder / "which.txt").write_text("changed\n")
    for words, expected in (
        ((), "workspace one"),
        (("--workspace", "."), "changed"),
        ((), "changed"),
    ):
        assert expected in torchx("rerun", "--log", "@1", *words)
    assert len(images()) == 2


def test_failed_build_starts_no_container(
    scheduler: DockerScheduler, projects: dict[str, Path], images: Callable[[], dict[str, str]]
) -> None:
    (projects["two"] / "Dockerfile.torchx").write_text("ARG IMAGE\nFROM $IMAGE\nRUN exit 3\n")
    roles = [reader("a", projects["one"]), reader("b", projects["two"])]
    with pytest.raises(Exception, match="returned a non-zero code: 3") as caught:
        scheduler.submit(AppDef("app", roles), {"pull": "never", "quiet": True})
    assert "\n" not in str(caught.value)
    assert scheduler.list() == []
    assert len(images()) == 1  # The next submission can use the image of the first role.


def test_prune_removes_only_unused_images_of_workspaces(
    scheduler: DockerScheduler,
    ended: Ended,
    projects: dict[str, Path],
    images: Callable[[], dict[str, str]],
    unused_images: Callable[[PruneQuery], dict[str, Prunable]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = unused_images
    api, project = scheduler._docker_client.api, projects["one"]

    def build(text: str) -> tuple[str, str]:
        """Run an app with a new image; return the app's id and the image's name."""
        (project / "which.txt").write_text(text)
        before = images().keys()
        app_id = scheduler.submit(
            AppDef("app", [reader("a", project)]), {"pull": "never", "quiet": True}
        )
        assert ended(app_id).state == AppState.SUCCEEDED
        (name,) = images().keys() - before
        return app_id, name

    (project / "large").write_bytes(os.urandom(1 << 20))
    user_image = "users-own:latest"
    apps, names = [], []
    try:
        for text in ("1", "2", "3", "4"):
            app_id, name = build(text)
            apps.append(app_id)
            names.append(name)
            if text == "2":
                api.tag(name, "users-own", "latest")
        assert found(PruneQuery(0.0)) == {}  # MIN_AGE protects images that a submission may need.
        monkeypatch.setattr(pruning, "MIN_AGE", -1.0)
        assert found(PruneQuery()) == {}  # All images are younger than the default, an hour.
        first = found(PruneQuery(0.0))
        assert first.keys() == set(names[:3])  # The newest image is left out.
        assert {one.reason for one in first.values()} == {"a container uses it"}
        for app_id in apps:
            scheduler.delete(app_id)
        second = found(PruneQuery(0.0))
        assert second[names[0]].remove is not None
        assert second[names[0]].size == 0  # The newer images have the same layers.
        assert second[names[1]].reason == f"it has the tag {user_image} too"
        for one in (second[names[0]], second[names[2]]):
            assert one.remove is not None
            with ThreadPoolExecutor(2) as pool:  # Two threads remove the same image.
                for call in [pool.submit(one.remove) for _ in range(2)]:
                    call.result()
        assert images().keys() == {names[1], names[3]}
        api.remove_image(user_image)
        last = found(PruneQuery(0.0, include_newest=True))
        assert last.keys() == {names[1], names[3]}
        sizes = [one.size for one in last.values()]
        assert None not in sizes
        assert sum(size or 0 for size in sizes) >= 1 << 20
        # After a prune has found an image, a submission uses the image again.
        build_again = reader("a", project)
        app_id = scheduler.submit(AppDef("app", [build_again]), {"pull": "never", "quiet": True})
        assert ended(app_id).state == AppState.SUCCEEDED
        scheduler.delete(app_id)
        remove = last[names[3]].remove
        assert remove is not None
        with pytest.raises(WorkspaceError, match="it was just used"):
            remove()
        for one in found(PruneQuery(0.0, include_newest=True)).values():
            assert one.remove is not None
            one.remove()
        assert images() == {}
        assert api.inspect_image(BUSYBOX)
    finally:
        for app_id in apps:
            scheduler.delete(app_id)


def test_prune_keeps_images_that_users_made_from_images_of_workspaces(
    scheduler: DockerScheduler,
    ended: Ended,
    projects: dict[str, Path],
    images: Callable[[], dict[str, str]],
    unused_images: Callable[[PruneQuery], dict[str, Prunable]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api = scheduler._docker_client.api
    app = AppDef("app", [reader("a", projects["one"])])
    app_id = scheduler.submit(app, {"pull": "never", "quiet": True})
    assert ended(app_id).state == AppState.SUCCEEDED
    scheduler.delete(app_id)
    (name,) = images()
    derived = f"torchx-workspace:{'0' * 64}"  # The user's image is named like TorchX's images.
    dockerfile = io.BytesIO(f"FROM {name}\nENV MINE=1\n".encode())
    for event in api.build(fileobj=dockerfile, tag=derived, decode=True, rm=True):
        assert "error" not in event, event
    monkeypatch.setattr(pruning, "MIN_AGE", -1.0)
    found = unused_images(PruneQuery(0.0, include_newest=True))
    assert found.keys() == {name}
