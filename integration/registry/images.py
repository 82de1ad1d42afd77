"""Helpers for tests of images with a workspace."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from docker_engine import BUSYBOX

from torchx_kit.workspace import Built
from torchx_specs.workspace import Workspace
from torchx_workspace_docker.builder import DockerBuilder


def docker(*arguments: str) -> str:
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_base(image: str, *instructions: str) -> None:
    lines = [f"FROM {BUSYBOX}", "WORKDIR /app", *instructions]
    subprocess.run(
        ["docker", "build", "-q", "-t", image, "-"],
        input="\n".join(lines) + "\n",
        text=True,
        capture_output=True,
        env=dict(os.environ),
        check=True,
    )
    docker("push", "-q", image)


def make(
    base: str, root: Path | dict[str, str], remote: bool = True, **cfg: Any
) -> tuple[str, Built]:
    builder = DockerBuilder()
    builder.remote = remote
    workspace = Workspace(root if isinstance(root, dict) else {str(root): ""})
    cfg = {"quiet": True, **cfg}
    plan = builder.plan(base, workspace, cfg)
    built = builder.build(plan, cfg)
    if remote and not built.ready:
        built = builder.push(plan, built, cfg)
    return plan.image, built


LISTING = (
    "find . ! -type d | sort; stat -c '%a %n' secret 'run me.sh'; readlink link; './run me.sh'"
)


def check_content(image: str, root: Path) -> None:
    out = docker("run", "--rm", "--network", "none", image, "sh", "-c", LISTING).split("\n")
    assert out == [
        "./.dockerignore",
        "./.torchxignore",
        "./large",
        "./link",
        "./pkg/deep/module.py",
        "./run me.sh",
        "./secret",
        "600 secret",
        "755 run me.sh",
        "pkg/deep/module.py",
        "ran",
        "",
    ]
    digest = docker("run", "--rm", "--network", "none", image, "sha256sum", "large", "link")
    here = subprocess.run(
        ["sha256sum", "large", "link"], cwd=root, capture_output=True, text=True, check=True
    )
    assert digest == here.stdout


def uploads(folder: Path) -> int:
    log = (folder / "registry.log").read_text(errors="replace")
    return sum('"PUT /v2/' in line or '"PATCH /v2/' in line for line in log.split("\n"))


def log_in(folder: Path, registry: str, user: str) -> None:
    folder.mkdir(exist_ok=True)
    auth = base64.b64encode(user.encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {registry: {"auth": auth}}}))


def tags(registry: str, repository: str) -> list[str]:
    """Return the tags of a repository; an empty list if it does not exist."""
    try:
        with urllib.request.urlopen(f"http://{registry}/v2/{repository}/tags/list") as reply:
            return json.loads(reply.read())["tags"] or []
    except urllib.error.HTTPError as e:
        e.close()
        if e.code != 404:
            raise
        return []
