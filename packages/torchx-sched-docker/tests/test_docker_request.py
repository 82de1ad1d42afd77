"""Tests of requests, which are made without an engine."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import yaml

from torchx_kit.errors import MountTypeError
from torchx_sched_docker.labels import LABEL_PREFIX_ARGS, LABEL_TIME_LIMIT
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
    AppDryRunInfo,
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


def role(**fields: Any) -> Role:
    return Role(**{"name": "main", "image": "busybox:1", "entrypoint": "sh", **fields})


def containers(scheduler: DockerScheduler, *roles: Role, **cfg: Any) -> list[DockerContainer]:
    info = scheduler.submit_dryrun(AppDef("app", list(roles)), cfg)
    return info.request.containers


def test_request_holds_everything_the_role_defines(scheduler: DockerScheduler) -> None:
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
            "TORCHX_REPLICA_ID": "0",
            "TORCHX_IMAGE": "busybox:1",
        },
        "privileged": False,
        "init": True,
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


def test_setup_and_time_are_arguments_before_the_command(scheduler: DockerScheduler) -> None:
    app = AppDef("app", [role(args=["-c", "echo"])])
    cfg = {"setup": ["export A=1", "cd /srv"], "time": "1h30m"}
    (container,) = scheduler.submit_dryrun(app, cfg).request.containers
    prefix, command = container.command[:-3], container.command[-3:]
    assert command == ["sh", "-c", "echo"]
    assert prefix[:6] == ["timeout", "-k", "10", "5400", "sh", "-c"]
    assert "\nexport A=1\ncd /srv\n" in prefix[6]
    labels: Any = container.kwargs["labels"]
    assert labels[LABEL_PREFIX_ARGS] == str(len(prefix))
    assert labels[LABEL_TIME_LIMIT] == "5400"


@pytest.mark.parametrize("text", ["90", "soon"])
def test_time_without_a_unit_is_refused(scheduler: DockerScheduler, text: str) -> None:
    with pytest.raises(RequestError, match=f"option time: '{text}' is not a time limit; write a"):
        scheduler.submit_dryrun(AppDef("app", [role()]), {"time": text})


def test_unset_resources_leave_no_parameters(scheduler: DockerScheduler) -> None:
    (container,) = containers(scheduler, role())
    assert {"mem_limit", "shm_size", "nano_cpus", "device_requests", "restart_policy", "ports"} & {
        *container.kwargs
    } == set()


def test_option_publish_decides_the_ports(scheduler: DockerScheduler) -> None:
    def ports(publish: str) -> object:
        (container,) = containers(scheduler, role(port_map={"web": 80}), publish=publish)
        return container.kwargs.get("ports")

    assert ports("same") == {"80/tcp": {"HostIp": "127.0.0.1", "HostPort": "80"}}
    assert ports("none") is None


def test_role_variables_replace_copied_ones(
    scheduler: DockerScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COPY_ME", "1")
    monkeypatch.setenv("COPY_ME_TOO", "2")
    (container,) = containers(scheduler, role(env={"COPY_ME": "3"}), copy_env=["COPY_*"])
    environment: Any = container.kwargs["environment"]
    assert (environment["COPY_ME"], environment["COPY_ME_TOO"]) == ("3", "2")


@pytest.mark.parametrize("name", ["_x", "Ä B/c", "x" * 200, "...", "a.b"])
def test_container_names_are_valid_host_names(scheduler: DockerScheduler, name: str) -> None:
    app = AppDef(name, [role(name=name, num_replicas=12), role(name=name + "y")])
    made = scheduler.submit_dryrun(app, {}).request.containers
    hosts = [str(container.kwargs["name"]) for container in made]
    assert len(set(hosts)) == 13
    for host in hosts:
        assert len(host) <= 63
        assert host[0].isascii()
        assert host[0].isalnum()
        assert "." not in host
    environments: list[Any] = [container.kwargs["environment"] for container in made]
    assert {env["TORCHX_RANK0_HOST"] for env in environments} == {hosts[0]}


def test_containers_share_no_mutable_value(scheduler: DockerScheduler) -> None:
    first, second = containers(scheduler, role(num_replicas=2))
    for key, value in first.kwargs.items():
        if isinstance(value, (dict, list)):
            assert value is not second.kwargs[key]


def test_printed_request_is_plain_yaml_without_secrets(scheduler: DockerScheduler) -> None:
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
    ("fields", "message"),
    [
        ({"image": ""}, "no image"),
        ({"image": "a b"}, "contains a space or a control character"),
        ({"entrypoint": "<MISSING>"}, "no entrypoint"),
        ({"args": ["\0"]}, r"args\[0\] contains a NUL"),
        (
            {"args": ["\udcff"]},
            r"args\[0\] contains bytes that are not UTF-8, which are refused: Docker's",
        ),
        ({"env": {"": "x"}}, "not a valid variable name"),
        ({"env": {"A": "\udcff"}}, "not UTF-8"),
        ({"port_map": {"web": 70_000}}, r"port_map\['web'\] is 70000; a port is between"),
        (
            {"mounts": [DeviceMount("/dev/x", "/dev/x", "q")]},
            "valid are combinations of r, w",
        ),
    ],
)
def test_dry_run_refuses_what_the_engine_cannot_run(
    scheduler: DockerScheduler, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        containers(scheduler, role(**fields))
    assert "'main'" in str(caught.value)


def test_dry_run_refuses_a_mount_of_another_type(scheduler: DockerScheduler) -> None:
    with pytest.raises(MountTypeError):
        containers(scheduler, role(mounts=["/a:/b"]))


def test_dry_run_lists_every_problem(scheduler: DockerScheduler) -> None:
    with pytest.raises(RequestError) as caught:
        containers(scheduler, role(), role(), pull="alway", publish="fre")
    assert caught.value.problems[1].startswith("option pull=alway: did you mean 'always'?")
    assert len(caught.value.problems) == 3
    with pytest.raises(InvalidRunConfigException):
        containers(scheduler, role(), privilegd=True)


def test_subclass_with_its_own_requests_is_not_checked() -> None:
    class OwnRequests(DockerScheduler):
        def _submit_dryrun(self, app: AppDef, cfg: Any) -> Any:
            return AppDryRunInfo("own", str)

    app = AppDef("app", [role(image="")])
    assert OwnRequests("test").submit_dryrun(app, {}).request == "own"
    with pytest.raises(RequestError, match="no image"):
        DockerScheduler("test").submit_dryrun(app, {})


def test_dry_run_imports_no_client_library() -> None:
    code = (
        "import sys\n"
        "from torchx_sched_docker.scheduler import create_scheduler\n"
        "from torchx_specs import AppDef, Role\n"
        "app = AppDef('a', [Role('r', 'i', entrypoint='e')])\n"
        "create_scheduler('s').submit_dryrun(app, {})\n"
        "print([m for m in ('docker', 'yaml', 'requests', 'urllib3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
