"""Tests of the order of requests, with a double of the docker library's client."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import docker.errors
import pytest

from patience import PATIENCE
from torchx_kit.jobs.submission import submission
from torchx_sched_docker import client as client_module
from torchx_sched_docker import scheduler as scheduler_module
from torchx_sched_docker.client import in_parallel
from torchx_sched_docker.scheduler import DockerScheduler, create_scheduler
from torchx_sched_docker.submit import start
from torchx_specs import AppDef, AppDryRunInfo, BindMount, Role, VolumeMount, secret
from torchx_specs.errors import BackendError, RequestError


class ApiDouble:
    """An engine that creates a network only after the first request for a container.

    Args:
        refuses: The HTTP status with which the engine refuses a container: 404 only while the
            network is missing, any other status always; 0 refuses none.
    """

    _version = "1.41"

    def __init__(self, refuses: int = 0) -> None:
        self.calls: list[str] = []
        self._refuses = refuses
        self._container_requested = threading.Event()

    def create_network(self, name: str, **options: Any) -> None:
        assert self._container_requested.wait(PATIENCE)
        self.calls.append("network")

    def create_endpoint_config(self, **options: Any) -> dict[str, Any]:
        return options

    def create_container(self, **options: Any) -> dict[str, str]:
        early = "network" not in self.calls
        self._container_requested.set()
        if self._refuses and (early or self._refuses != 404):
            answer: Any = SimpleNamespace(status_code=self._refuses)
            raise docker.errors.APIError("network not found", answer, "network not found")
        self.calls.append("container")
        return {"Id": options["name"]}

    def start(self, identity: str) -> None:
        self.calls.append("start")

    def volumes(self) -> dict[str, Any]:
        return {"Volumes": [{"Name": "old"}]}

    def remove_volume(self, name: str) -> None:
        self.calls.append(f"removed {name}")

    def containers(self, **options: Any) -> list[Any]:
        return []

    def networks(self, **options: Any) -> list[dict[str, str]]:
        return [{"Id": "net"}] if "network" in self.calls else []

    def remove_network(self, identity: str) -> None:
        self.calls.append(f"removed {identity}")


def submit(api: ApiDouble, images: list[str] | None = None) -> list[str]:
    role = Role("main", "busybox:1", entrypoint="true")
    role.mounts += [VolumeMount("old", "/a"), VolumeMount("new", "/b"), BindMount("/tmp", "/c")]
    info = create_scheduler("test").submit_dryrun(AppDef("app", [role]), {})
    start(SimpleNamespace(api=api), info.request, images or [], "missing")
    return api.calls


def test_container_and_network_are_created_concurrently() -> None:
    calls = submit(ApiDouble())
    assert sorted(calls[:2]) == ["container", "network"]
    assert calls[2:] == ["start"]


def test_container_is_created_again_if_the_engine_needs_its_network_first() -> None:
    assert submit(ApiDouble(refuses=404)) == ["network", "container", "start"]


def test_refused_submission_removes_networks_and_new_volumes() -> None:
    api = ApiDouble(refuses=400)
    announced: list[str] = []
    with submission() as current:
        current.record = lambda app_id: announced.append(app_id) or app_id
        with pytest.raises(BackendError, match="cannot create the container"):
            submit(api)
    assert api.calls == ["network", "removed net", "removed new"]
    assert [app_id.rpartition("-")[0] for app_id in announced] == ["app", ""]  # withdrawn


class BusyFirewallApiDouble(ApiDouble):
    """An engine that cannot change the firewall's rules at the first requests for a network."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def create_network(self, name: str, **options: Any) -> None:
        self.failures -= 1
        if self.failures >= 0:
            answer: Any = SimpleNamespace(status_code=500)
            text = "iptables failed: iptables --wait -t nat -A DOCKER: No chain by that name"
            raise docker.errors.APIError("server error", answer, text)
        super().create_network(name, **options)


def test_network_is_created_again_if_the_firewall_was_busy() -> None:
    assert "network" in submit(BusyFirewallApiDouble(failures=2))
    with pytest.raises(BackendError, match=r"cannot create the network .*iptables failed"):
        submit(BusyFirewallApiDouble(failures=1000))


class LeavingContainerApiDouble(ApiDouble):
    """An engine whose removed container still leaves its network at the first requests."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.calls.append("network")

    def remove_network(self, identity: str) -> None:
        self.failures -= 1
        if self.failures >= 0:
            answer: Any = SimpleNamespace(status_code=403)
            raise docker.errors.APIError("forbidden", answer, f"{identity} has active endpoints")
        super().remove_network(identity)


def test_network_is_removed_after_the_last_container_has_left_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module.time, "sleep", lambda _: None)
    api = LeavingContainerApiDouble(failures=2)
    DockerScheduler("test", SimpleNamespace(api=api)).delete("app")
    assert api.calls == ["network", "removed net"]
    with pytest.raises(BackendError, match=r"cannot remove the network net: .*active endpoints"):
        DockerScheduler("test", SimpleNamespace(api=LeavingContainerApiDouble(1000))).delete("app")


class UnknownRegistryApiDouble(ApiDouble):
    """An engine whose resolver does not know the name of the registry."""

    def create_network(self, name: str, **options: Any) -> None:
        self.calls.append("network")  # No container is ever requested.

    def inspect_image(self, image: str) -> Any:
        raise docker.errors.ImageNotFound("no", SimpleNamespace(status_code=404), "no")

    def pull(self, repository: str, **options: Any) -> Any:
        text = 'Get "https://r.acme/v2/": dial tcp: lookup r.acme on 10.0.0.2:53: no such host'
        raise docker.errors.APIError("server error", SimpleNamespace(status_code=500), text)


def test_registry_whose_name_is_not_resolved_is_named() -> None:
    with pytest.raises(BackendError) as caught:
        submit(UnknownRegistryApiDouble(), ["r.acme/a:1"])
    assert "the name of the registry r.acme cannot be resolved; and the" in str(caught.value)
    assert "lookup" not in str(caught.value)


def test_app_lives_in_the_client() -> None:
    assert create_scheduler("test").lives_in_client({})


class RefusingApiDouble(ApiDouble):
    """An engine that refuses the containers of the role ``b``."""

    def create_container(self, **options: Any) -> dict[str, str]:
        if "-b-" in options["name"]:
            raise docker.errors.APIError("no", SimpleNamespace(status_code=400), "no")
        return super().create_container(**options)


def test_nothing_starts_before_each_container_exists() -> None:
    api = RefusingApiDouble()
    roles = [Role(name, "busybox:1", entrypoint="true") for name in "ab"]
    request = create_scheduler("test").submit_dryrun(AppDef("app", roles), {}).request
    with pytest.raises(BackendError, match="cannot create the container"):
        start(SimpleNamespace(api=api), request, [], "never")
    assert "start" not in api.calls


def test_interrupt_ends_the_calls_that_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted = threading.Event()
    started = threading.Barrier(3)

    def pull(image: str) -> None:
        started.wait(PATIENCE)
        assert interrupted.wait(PATIENCE)

    def interrupt(pool: Executor, function: Callable[[str], None], items: list[str]) -> None:
        for item in items:
            pool.submit(function, item)
        started.wait(PATIENCE)
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.map", interrupt)
    with pytest.raises(KeyboardInterrupt):
        in_parallel(pull, ["a", "b"], interrupted.set)
    assert interrupted.is_set()


class RecordingApiDouble(ApiDouble):
    """An engine that records the options of its containers."""

    def __init__(self) -> None:
        super().__init__()
        self.created: list[dict[str, Any]] = []

    def create_container(self, **options: Any) -> dict[str, str]:
        self.created.append(options)
        return super().create_container(**options)


@pytest.fixture
def secret_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path))
    (tmp_path / "secrets").mkdir(mode=0o700)
    path = tmp_path / "secrets" / "hf"
    path.write_text("p4ss\n")
    path.chmod(0o600)
    return path


def with_reference(api: ApiDouble, **options: Any) -> tuple[DockerScheduler, AppDryRunInfo[Any]]:
    scheduler = DockerScheduler("test", SimpleNamespace(api=api))
    roles = [
        Role("a", "busybox:1", entrypoint="true", env={"HF_TOKEN": secret("hf"), "A": "b"}),
        Role("b", "busybox:1", entrypoint="true"),
    ]
    info = scheduler.submit_dryrun(AppDef("app", roles), {"pull": "never", **options})
    return scheduler, info


def test_a_container_receives_the_secret_only_as_a_variable(secret_file: Path) -> None:
    api = RecordingApiDouble()
    scheduler, info = with_reference(api)
    request, shown = copy.deepcopy(info.request), str(info)
    scheduler.schedule(info)
    assert info.request == request
    assert "HF_TOKEN: ${secret:hf}" in shown
    assert "p4ss" not in shown + repr(info.request)
    first, second = sorted(api.created, key=lambda options: str(options["name"]))
    assert {("HF_TOKEN", "p4ss"), ("A", "b")} <= set(first["environment"].items())
    del first["environment"]
    assert "p4ss" not in repr(first) + repr(second)


def test_a_secret_that_the_api_cannot_carry_is_an_error_without_its_value(
    secret_file: Path,
) -> None:
    secret_file.write_bytes(b"p4ss\xff")
    scheduler, info = with_reference(RecordingApiDouble())
    with pytest.raises(RequestError, match=r"env\['HF_TOKEN'\] contains bytes that are not") as e:
        scheduler.schedule(info)
    assert "p4ss" not in str(e.value)


def test_copy_env_copies_no_variables_with_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHX_SECRET_HF", "p4ss")
    _, info = with_reference(RecordingApiDouble(), copy_env=["*"])
    assert "p4ss" not in repr(info.request)


def test_the_client_is_created_once(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = iter([object()])
    monkeypatch.setattr(scheduler_module, "connect", lambda: next(connections))
    scheduler = create_scheduler("test")
    assert scheduler._docker_client is scheduler._docker_client
