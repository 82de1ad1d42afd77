"""Tests of registries with authentication or TLS, of bases in other registries, and platforms."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import registry as registry_service
from images import check_content, docker, log_in, make, make_base
from registry_double import RegistryDouble, answer
from token_service import TokenService, make_certificate

from torchx_specs.errors import TorchXError, WorkspaceError
from torchx_workspace_docker.references import Reference
from torchx_workspace_docker.registry import connection, transport
from torchx_workspace_docker.registry.client import Repository

#: Address that the fixture ``address`` gives this machine. It is outside 127.0.0.0/8, so TorchX
#: requires TLS for it.
ADDRESS = "10.215.77.1"


@contextmanager
def running(folder: Path, **options: object) -> Iterator[str]:
    """Return a context in which a registry runs; yield the registry's name."""
    try:
        yield registry_service.start(folder, **options)  # type: ignore[arg-type]
    finally:
        registry_service.stop(folder)


@pytest.fixture
def tokens(tmp_path: Path) -> Iterator[TokenService]:
    # The base image belongs to another user: as on ghcr.io, this user may pull it, but not push.
    service = TokenService(tmp_path, {"base": {"pull"}, "jobs": {"pull", "push"}})
    yield service
    service.close()


@pytest.fixture
def address() -> Iterator[str]:
    command = ["ip", "addr", "add", f"{ADDRESS}/32", "dev", "lo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "File exists" not in done.stderr:
        pytest.fail(f"cannot give this machine another address: {done.stderr}")
    yield ADDRESS
    command[2] = "del"
    subprocess.run(command, capture_output=True, check=False)


def push_copy(base: str, target: str) -> str:
    """Push the base image under the name ``target``, and return that name."""
    docker("tag", base, target)
    docker("push", "-q", target)
    return target


def push_as_owner(tokens: TokenService, base: str, target: str) -> str:
    """Push the base image as ``target``, with the rights of the owner; return that name."""
    tokens.rights["base"].add("push")
    try:
        return push_copy(base, target)
    finally:
        tokens.rights["base"].remove("push")
        tokens.requests.clear()


def test_target_without_the_right_to_push_is_an_error(
    tokens: TokenService, base: str, workspace: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "registry", token=tokens.settings) as name:
        log_in(tmp_path / "docker-config", name, "user:right")
        private = push_as_owner(tokens, base, f"{name}/base/busybox:1")
        with pytest.raises(TorchXError, match="repository:base/jobs:pull,push") as caught:
            make(private, workspace, image_repo=f"{name}/base/jobs")
        assert caught.value.exit_code == 3


def test_layers_are_uploaded_if_mounting_is_refused(
    tokens: TokenService, base: str, workspace: Path, tmp_path: Path
) -> None:
    with running(tmp_path / "registry", token=tokens.settings) as name:
        log_in(tmp_path / "docker-config", name, "user:right")
        private = push_as_owner(tokens, base, f"{name}/base/busybox:1")
        tokens.denies_several_scopes = True
        image, _ = make(private, workspace, image_repo=f"{name}/jobs/copied")
        refused = [request for request in tokens.requests if request.count("repository:") > 1]
        assert len(refused) == 1  # After one refusal, TorchX does not try to mount other layers.
        docker("rmi", "-f", image, private)
        docker("pull", "-q", image)
        check_content(image, workspace)


def test_tokens_are_requested_with_a_password_or_an_identity_token(
    tokens: TokenService, base: str, workspace: Path, tmp_path: Path
) -> None:
    config = tmp_path / "docker-config"
    with running(tmp_path / "registry", token=tokens.settings) as name:
        log_in(config, name, "user:right")
        private = push_as_owner(tokens, base, f"{name}/base/busybox:1")
        image, _ = make(private, workspace, image_repo=f"{name}/jobs/private")
        # One token for each repository, and one for both, to mount a layer of the base image.
        assert tokens.requests == [
            "basic repository:base/busybox:pull",
            "basic repository:jobs/private:pull,push",
            "basic repository:jobs/private:pull,push repository:base/busybox:pull",
        ]
        docker("rmi", "-f", image, private)
        docker("pull", "-q", image)
        check_content(image, workspace)

        log_in(config, name, "user:wrong")
        (workspace / "secret").write_text("t")
        with pytest.raises(TorchXError, match=f"docker login {name}") as caught:
            make(private, workspace, image_repo=f"{name}/jobs/private")
        assert caught.value.exit_code == 3
        assert "wrong" not in str(caught.value)

        tokens.requests.clear()
        auths = {name: {"auth": "", "identitytoken": "known"}}
        (config / "config.json").write_text(json.dumps({"auths": auths}))
        second, _ = make(private, workspace, image_repo=f"{name}/jobs/private")
        assert second != image
        assert {request.split()[0] for request in tokens.requests} == {"identity"}

        (config / "config.json").unlink()
        with pytest.raises(TorchXError, match="does not accept anonymous access"):
            make(private, workspace, image_repo=f"{name}/jobs/private")


def test_tls_with_a_private_authority(
    address: str, base: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, _ = make_certificate(tmp_path, "authority")
    served = make_certificate(tmp_path, address, authority=authority)
    monkeypatch.setattr(connection, "ATTEMPTS", 1)
    with running(tmp_path / "registry", address=address, tls=served) as name:
        repository = f"{name}/jobs/tls"
        with pytest.raises(TorchXError, match="CERTIFICATE_VERIFY_FAILED"):
            make(base, workspace, image_repo=repository)
        image, built = make(base, workspace, image_repo=repository, insecure_registries=[name])
        certificates = tmp_path / "certs.d" / name
        certificates.mkdir(parents=True)
        (certificates / "ca.crt").write_bytes(authority.read_bytes())
        monkeypatch.setattr(transport, "CERTIFICATES", str(tmp_path / "certs.d"))
        assert make(base, workspace, image_repo=repository) == (image, built)
        monkeypatch.setattr(transport, "CERTIFICATES", "/no/such/folder")
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert make(base, workspace, image_repo=repository) == (image, built)
        (certificates / "ca.crt").write_text("none")
        monkeypatch.setattr(transport, "CERTIFICATES", str(tmp_path / "certs.d"))
        with pytest.raises(TorchXError, match=r"ca\.crt cannot be used"):
            make(base, workspace, image_repo=repository)


def test_registry_that_requires_a_client_certificate(
    address: str, base: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, _ = make_certificate(tmp_path, "authority")
    served = make_certificate(tmp_path, address, authority=authority)
    mine = make_certificate(tmp_path, "10.215.77.2", authority=authority)
    monkeypatch.setattr(connection, "ATTEMPTS", 1)
    monkeypatch.setattr(transport, "CERTIFICATES", str(tmp_path / "certs.d"))
    with running(
        tmp_path / "registry", address=address, tls=served, clients=authority, user="user:right"
    ) as name:
        log_in(tmp_path / "docker-config", name, "user:right")
        certificates = tmp_path / "certs.d" / name
        certificates.mkdir(parents=True)
        (certificates / "ca.crt").write_bytes(authority.read_bytes())
        repository = f"{name}/jobs/mutual"
        with pytest.raises(
            TorchXError, match=f"requires a client certificate: .* into {certificates}$"
        ) as caught:
            make(base, workspace, image_repo=repository)
        assert caught.value.exit_code == 3
        assert "\n" not in str(caught.value)
        (certificates / "me.cert").write_bytes(mine[0].read_bytes())
        with pytest.raises(TorchXError, match=r"me\.cert cannot be used: .*me\.key"):
            make(base, workspace, image_repo=repository)
        (certificates / "me.key").write_bytes(mine[1].read_bytes())
        image, built = make(base, workspace, image_repo=repository)
        assert make(base, workspace, image_repo=repository) == (image, built)


def test_tls_of_a_registry_on_this_machine_is_detected(
    base: str, workspace: Path, tmp_path: Path
) -> None:
    served = make_certificate(tmp_path, "self-signed")
    with running(tmp_path / "registry", tls=served, user="user:right") as name:
        log_in(tmp_path / "docker-config", name, "user:right")
        image, built = make(base, workspace, image_repo=f"{name}/jobs/tls")
        assert make(base, workspace, image_repo=f"{name}/jobs/tls") == (image, built)
        docker("pull", "-q", image)
        check_content(image, workspace)


def test_plain_http_is_used_only_for_insecure_registries(
    address: str, base: str, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ATTEMPTS", 1)
    with running(tmp_path / "registry", address=address, user="user:right") as name:
        log_in(tmp_path / "docker-config", name, "user:right")
        repository = f"{name}/jobs/plain"
        with pytest.raises(TorchXError, match="does not answer"):
            make(base, workspace, image_repo=repository)
        log = (tmp_path / "registry" / "registry.log").read_text()
        assert '"GET /v2/' not in log  # TorchX sent no request and no password without TLS.
        assert make(base, workspace, image_repo=repository, insecure_registries=[name])[1].ready


def test_layers_of_a_base_in_another_registry_are_copied(
    registry_name: str, base: str, workspace: Path, tmp_path: Path
) -> None:
    redirected: list[str] = []

    def script(method: str, path: str) -> bytes | None:
        if method == "GET" and "/blobs/" in path:  # Many registries redirect to a blob storage.
            redirected.append(path)
            location = f"Location: http://{registry_name}{path}"
            return answer("307 Temporary Redirect", location)
        return None

    double = RegistryDouble(registry_name, script)
    with running(tmp_path / "other") as other:
        image, _ = make(
            base.replace(registry_name, double.name), workspace, image_repo=f"{other}/jobs/copied"
        )
        double.close()
        assert len(redirected) >= 2  # At least the configuration and one layer are downloaded.
        docker("rmi", "-f", base)
        docker("pull", "-q", image)
        check_content(image, workspace)


def put_index(registry: str, name: str, platforms: dict[str, str]) -> None:
    """Push an index of images as ``name``; ``platforms`` has an image for each platform."""
    kind = "application/vnd.docker.distribution.manifest.v2+json"
    manifests = []
    for platform, image in platforms.items():
        repository, _, tag = image.removeprefix(f"{registry}/").rpartition(":")
        url = f"http://{registry}/v2/{repository}/manifests/{tag}"
        request = urllib.request.Request(url, headers={"Accept": kind})
        with urllib.request.urlopen(request) as reply:  # noqa: S310
            data = reply.read()
        system, _, architecture = platform.partition("/")
        manifests.append(
            {
                "mediaType": kind,
                "size": len(data),
                "digest": f"sha256:{hashlib.sha256(data).hexdigest()}",
                "platform": {"os": system, "architecture": architecture},
            }
        )
    index_type = "application/vnd.docker.distribution.manifest.list.v2+json"
    index = {"schemaVersion": 2, "mediaType": index_type, "manifests": manifests}
    repository, _, tag = name.removeprefix(f"{registry}/").rpartition(":")
    request = urllib.request.Request(
        f"http://{registry}/v2/{repository}/manifests/{tag}",
        data=json.dumps(index).encode(),
        headers={"Content-Type": index_type},
        method="PUT",
    )
    urllib.request.urlopen(request).close()  # noqa: S310


def test_default_platform_selects_an_image_of_an_index(
    registry_name: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = f"{registry_name}/base/several:1"
    for version in ("one", "two"):
        make_base(f"{registry_name}/base/several:{version}", f"ENV WHICH={version}")
    put_index(
        registry_name,
        several,
        {
            "linux/amd64": f"{registry_name}/base/several:one",
            "linux/arm64": f"{registry_name}/base/several:two",
        },
    )
    for platform, which in (("linux/amd64", "one"), ("linux/arm64", "two")):
        monkeypatch.setenv("DOCKER_DEFAULT_PLATFORM", platform)
        repository = f"{registry_name}/jobs/{which}"
        image, _ = make(several, workspace, image_repo=repository)
        monkeypatch.delenv("DOCKER_DEFAULT_PLATFORM")
        output = docker("run", "--rm", "--network", "none", image, "sh", "-c", "echo $WHICH")
        assert output == f"{which}\n"
    monkeypatch.setenv("DOCKER_DEFAULT_PLATFORM", "linux/s390x")
    with pytest.raises(WorkspaceError, match="only for linux/amd64, linux/arm64"):
        make(several, workspace, image_repo=f"{registry_name}/jobs/none")
    # If DOCKER_DEFAULT_PLATFORM is set, the platform of an image without an index is checked too.
    with pytest.raises(WorkspaceError, match="is not for linux/s390x, only for linux/amd64"):
        make(
            f"{registry_name}/base/several:one", workspace, image_repo=f"{registry_name}/jobs/none"
        )


def push_copy_for_s390x(registry_name: str, base: str, tag: str) -> str:
    """Push a copy of ``base`` whose configuration names the architecture s390x; return its name."""
    reference = Reference.parse(base)
    repository = Repository(connection.Connection(reference), reference.repository, push=True)
    found = repository.manifest(reference.version)
    assert found is not None
    manifest = json.loads(found.data)
    config = repository.image_config(manifest["config"]["digest"])
    data = json.dumps({**config, "architecture": "s390x"}).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    repository.upload(digest, len(data), io.BytesIO(data))
    manifest["config"].update(digest=digest, size=len(data))
    repository.put_manifest(tag, json.dumps(manifest).encode(), found.media_type)
    return f"{registry_name}/{reference.repository}:{tag}"


def test_base_for_another_architecture_is_a_warning(
    registry_name: str, base: str, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = push_copy_for_s390x(registry_name, base, "s390x")
    image, _ = make(base, workspace, remote=False)
    assert "emulation" not in caplog.text
    image, _ = make(other, workspace, remote=False)
    assert f"the image {other} is for s390x, this engine's machine is " in caplog.text
    assert docker("inspect", "--format", "{{.Architecture}}", image) == "s390x\n"
    # A remote job may run on a machine of that architecture, so there is no warning.
    assert make(other, workspace, image_repo=f"{registry_name}/jobs/other")[1].ready
