"""Tests of workspaces, which reach the pods as a layer of their image in a real registry."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import urllib3
from k8s_double.handle import Double

from patience import wait_for

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "services"))

import registry as registry_service

Torchx = Callable[..., "CompletedProcess[str]"]
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """A client of a container registry."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pool = urllib3.PoolManager(retries=False)

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Any:
        url = path if path.startswith("http") else f"http://{self.name}/v2/{path}"
        sent = {key.replace("_", "-"): value for key, value in headers.items()}
        answer = self._pool.request(method, url, body=body or None, headers=sent)
        assert answer.status < 300, (answer.status, answer.data)
        return answer

    def push(self, repository: str, data: bytes) -> dict[str, Any]:
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        place = self.ask("POST", f"{repository}/blobs/uploads/").headers["Location"]
        query = f"{'&' if '?' in place else '?'}digest={digest}"
        self.ask("PUT", place + query, data, Content_Type="application/octet-stream")
        return {"digest": digest, "size": len(data)}

    def push_base(self, repository: str, tag: str) -> str:
        """Push an image with one file; return the image's name."""
        raw = layer({"base.txt": b"of the base"})
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"WorkingDir": "/app"},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(raw).hexdigest()]},
        }
        kind = "application/vnd.oci.image"
        zipped = gzip.compress(raw, mtime=0)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": f"{kind}.config.v1+json",
                **self.push(repository, json.dumps(config).encode()),
            },
            "layers": [{"mediaType": f"{kind}.layer.v1.tar+gzip", **self.push(repository, zipped)}],
        }
        body = json.dumps(manifest).encode()
        self.ask("PUT", f"{repository}/manifests/{tag}", body, Content_Type=MANIFEST)
        return f"{self.name}/{repository}:{tag}"

    def files(self, image: str) -> list[str]:
        """Return the names of the files in an image's last layer."""
        repository, _, tag = image.removeprefix(f"{self.name}/").rpartition(":")
        manifest = self.ask("GET", f"{repository}/manifests/{tag}", Accept=MANIFEST).json()
        data = self.ask("GET", f"{repository}/blobs/{manifest['layers'][-1]['digest']}").data
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
            return [member.name for member in archive if member.isfile()]


def layer(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    if shutil.which("docker-registry") is None:
        pytest.skip(
            "docker-registry is not installed: no workspace was pushed (install.sh registry)"
        )
    folder = tmp_path / "registry"
    yield Registry(registry_service.start(folder))
    registry_service.stop(folder)


@pytest.fixture
def environment(environment: dict[str, str], double: Double, tmp_path: Path) -> dict[str, str]:
    """Environment of a user of the double, without a Docker Engine."""
    docker = {"DOCKER_HOST": "unix:///no/such/socket", "DOCKER_CONFIG": str(tmp_path / "docker")}
    return {**environment, **docker, "KUBECONFIG": str(double.path)}


def test_a_workspace_is_a_layer_of_the_image_of_the_pods(
    torchx: Torchx, registry: Registry, double: Double, tmp_path: Path
) -> None:
    base = registry.push_base("base", "1")
    (tmp_path / "work" / "train.py").write_text("print('here')\n")
    words = ["utils.python", "--image", base, "--script", "train.py"]
    cfg = f"image_repo={registry.name}/jobs"
    done = torchx("run", "--dryrun", "-s", "kubernetes", "-cfg", cfg, *words)
    assert done.returncode == 0, done.stderr
    wanted = re.search(rf"image: '?({registry.name}/jobs:\w+)", done.stdout)
    assert wanted is not None, done.stdout
    done = torchx("run", "-s", "kubernetes", "-cfg", cfg, *words)
    assert done.returncode == 0, done.stderr
    (job,) = double.objects("jobs.batch")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == wanted[1]
    assert {"name": "TORCHX_IMAGE", "value": wanted[1]} in container["env"]
    assert [name.rpartition("/")[2] for name in registry.files(wanted[1])] == ["train.py"]
    # the double's node cannot pull the image, and names it in an event
    wait_for(lambda: [e for e in double.objects("events") if wanted[1] in e["message"]])


def test_a_workspace_without_a_repository_is_refused(torchx: Torchx, tmp_path: Path) -> None:
    (tmp_path / "work" / "train.py").write_text("print('here')\n")
    words = ["-s", "kubernetes", "utils.python", "--image", "i", "--script", "train.py"]
    done = torchx("run", "--dryrun", *words)
    assert done.returncode == 2
    assert "option image_repo" in done.stderr


def test_the_image_of_the_configuration_is_used(
    torchx: Torchx, double: Double, tmp_path: Path
) -> None:
    (tmp_path / "work" / ".torchxconfig").write_text(
        "[kubernetes]\nimage = busybox:local\nimage_pull_policy = IfNotPresent\n"
    )
    done = torchx(
        "run", "--workspace=", "--wait", "-s", "kubernetes", "utils.sh", "--image", "", "true"
    )
    assert done.returncode == 0, done.stderr
    (job,) = double.objects("jobs.batch")
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("busybox:local", "IfNotPresent")
