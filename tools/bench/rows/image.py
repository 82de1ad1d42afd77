"""Build an image from a workspace of 2,000 files and 100 MB: image.py engine|push KIND.

``engine`` builds the image on a Docker Engine; ``push`` builds it in a registry. The script starts
both services; the base image is in the registry. KIND ``first`` measures the first build;
``changed`` and ``same`` measure a second build, with one small file changed or none.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import services
from api import specs

FILES = 2000
SIZE = 50_000

try:
    from torchx_specs.workspace import Workspace
    from torchx_workspace_docker.builder import DockerBuilder

    def make(base: str, folder: Path, repository: str) -> str:
        builder = DockerBuilder()
        builder.remote = bool(repository)
        cfg = {"quiet": True, "image_repo": repository or None}
        plan = builder.plan(base, Workspace({str(folder): ""}), cfg)
        assert builder.build(plan, cfg).ready
        return plan.image

except ModuleNotFoundError:  # This side is the peer, upstream's TorchX.
    from torchx.workspace.docker_workspace import DockerWorkspaceMixin

    def make(base: str, folder: Path, repository: str) -> str:
        mixin = DockerWorkspaceMixin()
        cfg = {"quiet": True, "image_repo": repository or None}
        role = specs.Role(name="role", image=base)
        mixin.build_workspace_and_update_role(role, str(folder), cfg)
        if repository:
            app = specs.AppDef(name="app", roles=[role])
            mixin.push_images(mixin.dryrun_push_images(app, cfg))
        return role.image


def fill(folder: Path) -> None:
    """Write the workspace; half of each file compresses like text, the other half not at all."""
    source = random.Random(1)  # noqa: S311 - the same content in each run
    for number in range(FILES):
        path = folder / f"package{number % 40}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = source.randbytes(SIZE // 2)
        path.write_bytes(noise + noise[: SIZE // 8].hex().encode() * 2)


def docker(*arguments: str, text: str = "") -> None:
    subprocess.run(["docker", *arguments], input=text, text=True, capture_output=True, check=True)


kind, moment = sys.argv[1:]
folder = Path("workspace").resolve()
fill(folder)
with services.engine(), services.container_registry() as name:
    base = f"{name}/base:1"
    docker("build", "-q", "-t", base, "-", text=f"FROM {services.BUSYBOX}\nWORKDIR /app\n")
    docker("push", "-q", base)
    repository = f"{name}/jobs" if kind == "push" else ""
    import docker as client  # Load the library before the measurement, on both sides.

    client.from_env().close()
    os.sync()  # Write the files to the disk before the measurement.
    time.sleep(2.5)  # Our side does not cache the digests of files that are younger than 2 s.
    begun = time.perf_counter()
    image = make(base, folder, repository)
    if moment != "first":
        if moment == "changed":
            (folder / "package0" / "module0.py").write_text("changed\n")
        begun = time.perf_counter()
        again = make(base, folder, repository)
        assert (again == image) == (moment == "same"), (image, again)
        image = again
    seconds = time.perf_counter() - begun
    if repository:
        docker("rmi", "-f", image)
        docker("pull", "-q", image)
    docker("run", "--rm", "--network=none", image, "test", "-e", "/app/package39/module1999.py")
print({"seconds": seconds})
