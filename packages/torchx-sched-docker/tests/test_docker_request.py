"""Requests of local_docker, made without an engine."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from torchx_sched_docker.request import MountTypeError
from torchx_sched_docker.scheduler import (
    LABEL_APP_ID,
    LABEL_REPLICA_ID,
    LABEL_ROLE_NAME,
    DockerContainer,
    DockerScheduler,
    create_scheduler,
)
from torchx_specs import (
    AppDef,
    BindMount,
    DeviceMount,
    InvalidRunConfigException,
    Resource,
    Role,
    VolumeMount,
    macros,
)
from torchx_specs.errors import RequestError


@pytest.fixture
def scheduler() -> DockerScheduler:
    return create_scheduler("test", unknown="ignored")


def role(**words: Any) -> Role:
    return Role(**{"name": "main", "image": "busybox:1", "entrypoint": "sh", **words})


def containers(scheduler: DockerScheduler, *roles: Role, **cfg: Any) -> list[DockerContainer]:
    info = scheduler.submit_dryrun(AppDef("app", list(roles)), cfg)
    return info.request.containers


def test_the_whole_request(scheduler: DockerScheduler) -> None:
    resource = Resource(cpu=1.5, gpu=2, memMB=512, devices={"aws.amazon.com/neurondevice": 1})
    mounts = [BindMount("/a", "/b", True), VolumeMount("v", "/c"), DeviceMount("/dev/x", "/dev/y")]
    args = ["-c", f"echo {macros.replica_id} {macros.app_id}"]
    info = scheduler.submit_dryrun(
        AppDef(
            "app",
            [
                role(
                    args=args,
                    resource=resource,
                    mounts=mounts,
                    max_retries=3,
                    env={"A": f"{macros.img_root}/x"},
                    port_map={"web": 80},
                )
            ],
        ),
        {"env": {"A": "lost", "B": "b"}},
    )
    app_id = info.request.app_id
    (container,) = info.request.containers
    host = f"{app_id}-main-0"
    assert container.image == "busybox:1"
    assert container.command == ["sh", "-c", f"echo 0 {app_id}"]
    labels: Any = container.kwargs.pop("labels")
    assert labels[LABEL_APP_ID] == app_id
    assert (labels[LABEL_ROLE_NAME], labels[LABEL_REPLICA_ID]) == ("main", "0")
    assert container.kwargs == {
        "name": host,
        "hostname": host,
        "environment": {
            "A": "/x",
            "B": "b",
            "TORCHX_RANK0_HOST": host,
            "TORCHX_IMAGE": "busybox:1",
        },
        "privileged": False,
        "network": f"torchx-{app_id}",
        "mounts": [
            {"Type": "bind", "Source": "/a", "Target": "/b", "ReadOnly": True},
            {"Type": "volume", "Source": "v", "Target": "/c", "ReadOnly": False},
        ],
        "devices": ["/dev/x:/dev/y:rwm", "/dev/neuron0:/dev/neuron0:rwm"],
        "restart_policy": {"Name": "on-failure", "MaximumRetryCount": 3},
        "mem_limit": "512m",
        "shm_size": "512m",
        "nano_cpus": 1_500_000_000,
        "device_requests": [
            {
                "Driver": "",
                "Count": 2,
                "DeviceIDs": [],
                "Capabilities": [["gpu", "compute", "utility"]],
                "Options": {},
            }
        ],
        "ports": {"80/tcp": {"HostIp": "127.0.0.1", "HostPort": ""}},
    }


def test_what_is_not_asked_for_is_left_out(scheduler: DockerScheduler) -> None:
    (container,) = containers(scheduler, role())
    assert {"mem_limit", "shm_size", "nano_cpus", "device_requests", "restart_policy", "ports"} & {
        *container.kwargs
    } == set()


def test_ports_by_option(scheduler: DockerScheduler) -> None:
    def ports(publish: str) -> object:
        (one,) = containers(scheduler, role(port_map={"web": 80}), publish=publish)
        return one.kwargs.get("ports")

    assert ports("same") == {"80/tcp": {"HostIp": "127.0.0.1", "HostPort": "80"}}
    assert ports("none") is None


def test_copied_variables(scheduler: DockerScheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COPY_ME", "1")
    monkeypatch.setenv("COPY_ME_TOO", "2")
    (one,) = containers(scheduler, role(env={"COPY_ME": "3"}), copy_env=["COPY_*"])
    environment: Any = one.kwargs["environment"]
    assert (environment["COPY_ME"], environment["COPY_ME_TOO"]) == ("3", "2")


@pytest.mark.parametrize("name", ["_x", "Ä B/c", "x" * 200, "...", "a.b"])
def test_hosts_are_names_that_resolve(scheduler: DockerScheduler, name: str) -> None:
    app = AppDef(name, [role(name=name, num_replicas=12), role(name=name + "y")])
    made = scheduler.submit_dryrun(app, {}).request.containers
    names = [str(one.kwargs["name"]) for one in made]
    assert len(set(names)) == 13
    for one in names:
        assert len(one) <= 63
        assert one[0].isascii()
        assert one[0].isalnum()
        assert "." not in one
    environments: list[Any] = [one.kwargs["environment"] for one in made]
    assert {env["TORCHX_RANK0_HOST"] for env in environments} == {names[0]}


def test_containers_share_nothing_that_can_be_changed(scheduler: DockerScheduler) -> None:
    one, two = containers(scheduler, role(num_replicas=2))
    for key, value in one.kwargs.items():
        if isinstance(value, (dict, list)):
            assert value is not two.kwargs[key]


def test_the_printed_request_is_plain_yaml_without_secrets(scheduler: DockerScheduler) -> None:
    env = {"API_TOKEN": "hunter2", "URL": "https://me:hunter2@host/", "SHOWN": "value"}
    info = scheduler.submit_dryrun(AppDef("app", [role(env=env, num_replicas=2)]), {})
    text = str(info)
    assert "hunter2" not in text
    first, second = yaml.safe_load(text)
    assert first["kwargs"]["environment"]["SHOWN"] == "value"
    assert second["image"] == "busybox:1"
    environment: Any = info.request.containers[0].kwargs["environment"]
    assert environment["API_TOKEN"] == "hunter2"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"image": ""}, "no image"),
        ({"image": "a b"}, "no name of an image"),
        ({"entrypoint": "<MISSING>"}, "no entrypoint"),
        ({"args": ["\0"]}, r"args\[0\] holds a NUL"),
        ({"args": ["\udcff"]}, r"args\[0\] holds bytes that are not UTF-8"),
        ({"env": {"": "x"}}, "no variable's name"),
        ({"env": {"A": "\udcff"}}, "not UTF-8"),
        ({"port_map": {"web": 70_000}}, "no port"),
        ({"mounts": [DeviceMount("/dev/x", "/dev/x", "q")]}, "use r, w and m"),
    ],
)
def test_what_the_engine_could_not_do(
    scheduler: DockerScheduler, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        containers(scheduler, role(**words))
    assert "'main'" in str(caught.value)


def test_no_mount(scheduler: DockerScheduler) -> None:
    with pytest.raises(MountTypeError):
        containers(scheduler, role(mounts=["/a:/b"]))


def test_roles_of_one_name_and_wrong_options(scheduler: DockerScheduler) -> None:
    with pytest.raises(RequestError) as caught:
        containers(scheduler, role(), role(), pull="alway", publish="fre")
    assert caught.value.problems[0].startswith("option pull=alway: did you mean 'always'?")
    assert len(caught.value.problems) == 3
    with pytest.raises(InvalidRunConfigException):
        containers(scheduler, role(), privilegd=True)


def test_a_subclass_with_requests_of_its_own_checks_them_itself() -> None:
    class OwnRequests(DockerScheduler):
        def _submit_dryrun(self, app: AppDef, cfg: Any) -> Any: ...

    app = AppDef("app", [role(image="")])
    OwnRequests("test")._validate(app, "own")
    with pytest.raises(RequestError, match="it has no image"):
        DockerScheduler("test")._validate(app, "local_docker")


def test_a_dry_run_imports_neither_docker_nor_yaml() -> None:
    code = (
        "import sys\n"
        "from torchx_sched_docker.scheduler import create_scheduler\n"
        "from torchx_specs import AppDef, Role\n"
        "app = AppDef('a', [Role('r', 'i', entrypoint='e')])\n"
        "create_scheduler('s').submit_dryrun(app, {})\n"
        "print([m for m in ('docker', 'yaml', 'requests') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
