"""Tests of the content of images, of incremental builds, and of memory and disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import docker_engine
import pytest
from docker_engine import BUSYBOX
from images import docker, make, tags, uploads

from torchx_specs.errors import WorkspaceError
from torchx_workspace_docker.engine.client import FullEngineError

BOTH = pytest.mark.parametrize("remote", [True, False], ids=["registry", "engine"])


def run(image: str, script: str) -> str:
    return docker("run", "--rm", "--network", "none", image, "sh", "-c", script)


def build(
    base: str, root: Path | dict[str, str], remote: bool, repository: str, **cfg: object
) -> str:
    """Build an image, in a registry if ``remote``; return its name when the engine has it."""
    image, _ = make(base, root, remote=remote, image_repo=repository, **cfg)
    if remote:
        docker("pull", "-q", image)
    return image


def layers(image: str) -> list[str]:
    found: list[str] = json.loads(docker("inspect", "--format", "{{json .RootFS.Layers}}", image))
    return found


def test_small_change_to_a_large_workspace_uploads_one_layer(
    registry_name: str, registry_folder: Path, base: str, tmp_path: Path
) -> None:
    root = tmp_path / "large"
    for number in range(64):
        path = root / f"d{number % 4}" / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(1 << 20))
    repository = f"{registry_name}/jobs/large"
    first = build(base, root, True, repository)
    assert len(layers(first)) - len(layers(base)) == 4
    before = uploads(registry_folder)
    (root / "d1" / "f1").write_text("changed")
    second = build(base, root, True, repository)
    # The second build uploads only the changed layer, the configuration and the manifest.
    assert uploads(registry_folder) - before == 3
    assert len(set(layers(first)) - set(layers(second))) == 1
    assert run(second, "cat d1/f1; find . -type f | wc -l") == "changed64\n"
    # Builds with and without the cache make the same image.
    shutil.rmtree(os.environ["TORCHX_HOME"])
    _, one = make(base, root, image_repo=repository)
    _, other = make(base, root, image_repo=f"{registry_name}/jobs/again")
    assert one.digest == other.digest


def test_small_change_becomes_a_layer_on_the_previous_image(base: str, tmp_path: Path) -> None:
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (root / name).write_bytes(os.urandom(1 << 20))
    first = build(base, root, False, "")
    (root / "sub" / "new.sh").write_text("#!/bin/sh\necho new\n")
    (root / "sub" / "new.sh").chmod(0o755)
    second = build(base, root, False, "")
    assert layers(second)[:-1] == layers(first)
    assert run(second, "sub/new.sh; ls sub") == "new\nc\nnew.sh\n"
    (root / "sub" / "new.sh").chmod(0o644)
    assert run(build(base, root, False, ""), "stat -c %a sub/new.sh") == "644\n"
    # After the removal of a file, the new image has one layer on top of the base again.
    (root / "a").unlink()
    last = build(base, root, False, "")
    assert layers(last)[:-1] == layers(base)
    assert run(last, "find . -type f | sort") == "./b\n./sub/c\n./sub/new.sh\n"
    # The new image also has one layer if the previous image was deleted from the engine.
    (root / "sub" / "new.sh").write_text("x")
    docker("rmi", "-f", last)
    assert layers(build(base, root, False, ""))[:-1] == layers(base)


@BOTH
def test_change_during_the_build_leaves_no_image(
    registry_name: str,
    base: str,
    workspace: Path,
    remote: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torchx_workspace_docker.engine import load as engine_load
    from torchx_workspace_docker.registry import build as registry_build

    module = registry_build if remote else engine_load
    check = module.check_unchanged

    def changed(plan: object) -> None:
        (workspace / "secret").write_text("z")
        check(plan)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "check_unchanged", changed)
    repository = f"{registry_name}/jobs/meanwhile"
    with pytest.raises(WorkspaceError, match="has changed since it was planned"):
        make(base, workspace, remote=remote, image_repo=repository)
    assert repository not in docker("images")
    assert tags(registry_name, "jobs/meanwhile") == []


SCRIPT = """
import os, sys
from torchx_specs.workspace import Workspace
from torchx_workspace_docker.builder import DockerBuilder

base, root, repository = sys.argv[1:4]
cfg = {"quiet": True, "image_repo": repository, "image_max_mb": 0}
builder = DockerBuilder()

def memory(name):
    for line in open("/proc/self/status"):
        if line.startswith(name):
            return int(line.split()[1])

# A first build imports all modules.
builder.build(builder.plan(base, Workspace({sys.argv[4]: ""}), cfg), cfg)
if "memory" in sys.argv:
    idle = memory("VmRSS")
    open("/proc/self/clear_refs", "w").write("5")
else:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
plan = builder.plan(base, Workspace({root: ""}), cfg)
print(builder.build(plan, cfg).digest)
if "memory" in sys.argv:
    print((memory("VmHWM") - idle) >> 10)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Create a folder that every user may read."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-open-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_digest_does_not_depend_on_user_path_clock_or_locale(
    registry_name: str, base: str, workspace: Path, open_folder: Path
) -> None:
    _, mine = make(base, workspace, image_repo=f"{registry_name}/jobs/mine")
    copy = open_folder / "elsewhere"
    for path in sorted(workspace.rglob("*"), reverse=True):
        target = copy / path.relative_to(workspace)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            target.symlink_to(path.readlink())
        elif path.is_file():
            shutil.copyfile(path, target)
            shutil.copymode(path, target)
            os.utime(target, (12345, 12345))
    nobody = 65534
    for path in [open_folder, *open_folder.rglob("*")]:
        os.chown(path, nobody, nobody, follow_symlinks=False)
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, nobody, nobody)
    (home / "small").mkdir()
    environment = {**os.environ, "HOME": str(home), "TORCHX_HOME": f"{home}/torchx"}
    environment.update(TZ="Pacific/Auckland", LANG="C", PYTHONHASHSEED="7")
    repository = f"{registry_name}/jobs/theirs"
    arguments = [base, str(copy), repository, str(home / "small"), "nobody"]
    done = subprocess.run(
        ["faketime", "2031-02-03 04:05:06", sys.executable, "-c", SCRIPT, *arguments],
        env=environment,
        umask=0o077,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{mine.digest}\n", done.stderr


def test_build_of_2_gb_uses_less_than_64_mb(
    registry_name: str, base: str, open_folder: Path, tmp_path: Path
) -> None:
    (open_folder / "small").mkdir()
    (open_folder / "small" / "file").write_bytes(os.urandom(4 << 20))
    root = open_folder / "huge"
    root.mkdir()
    with open(root / "holes", "wb") as file:
        file.truncate(2 << 30)
    (root / "noise").write_bytes(os.urandom(32 << 20))
    arguments = [
        base,
        str(root),
        f"{registry_name}/jobs/huge",
        str(open_folder / "small"),
        "memory",
    ]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 64


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Return a function that mounts a new file system of ``size`` MB and returns its folder."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="torchx-small-"))
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "none", str(folder)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            folder.rmdir()
            pytest.skip(f"this machine cannot mount a file system: {result.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        # A child process of an engine may still have files open for a moment.
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def test_full_disk_is_one_line_and_tags_nothing(
    registry_name: str,
    base: str,
    workspace: Path,
    small_disk: Callable[[int], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = small_disk(1)
    monkeypatch.setattr(tempfile, "tempdir", str(small))
    with pytest.raises(WorkspaceError, match="No space left on device; set TMPDIR") as caught:
        make(base, workspace, image_repo=f"{registry_name}/jobs/full")
    assert "\n" not in str(caught.value)
    assert tags(registry_name, "jobs/full") == []
    assert list(small.iterdir()) == []
    # A build in the engine streams the layer without a temporary file, so it succeeds.
    assert make(base, workspace, remote=False)[1].ready


def test_full_disk_of_the_engine_is_an_error_and_leaves_nothing(
    workspace: Path, small_disk: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_disk(32)  # The workspace's 20 MB fit once, but not twice.
    try:
        for name, value in docker_engine.start(folder).items():
            monkeypatch.setenv(name, value)
        for dockerfile in ("", "ARG IMAGE\nFROM $IMAGE\nCOPY large /large\n"):
            if dockerfile:
                (workspace / "Dockerfile.torchx").write_text(dockerfile)
            with pytest.raises(FullEngineError, match="the disk of the Docker Engine is full") as e:
                make(BUSYBOX, workspace, remote=False)
            assert "\n" not in str(e.value)
            assert e.value.exit_code == 3
            assert docker("images", "-aq").split() == docker("images", "-q", BUSYBOX).split()
            assert docker("ps", "-aq") == ""
    finally:
        docker_engine.destroy(folder)
