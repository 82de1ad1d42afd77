"""Functions that tests of the schedulers share: they make apps, and read descriptions."""

from __future__ import annotations

from typing import Any

from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.schedulers import DescribeAppResponse

#: Images with sh and with python; the options of pytest replace them.
IMAGE = "busybox:local"
PYTHON = "local/python:3.11"


def shell(script: str, name: str = "main", **fields: Any) -> Role:
    """Return a role that runs a shell script."""
    fields.setdefault("image", IMAGE)
    fields.setdefault("resource", Resource(cpu=0.2, gpu=0, memMB=64))
    return Role(name=name, entrypoint="sh", args=["-c", script], **fields)


def app(*roles: Role | str, name: str = "app") -> AppDef:
    """Return an app; a role that is a text becomes a role that runs this shell script."""
    return AppDef(name, [shell(role) if isinstance(role, str) else role for role in roles])


def running(found: DescribeAppResponse) -> bool:
    """Return whether every replica runs."""
    replicas = [replica for role in found.roles_statuses for replica in role.replicas]
    return all(replica.state == AppState.RUNNING for replica in replicas)


#: Waits in a pod until a test calls :func:`go`.
UNTIL_GO = "until [ -e go ]; do sleep 0.1; done"


def go(scheduler: KubernetesScheduler, app_id: str, role: str = "main", k: int = 0) -> None:
    """Create the file ``go`` in the folder of a replica that runs."""
    with scheduler.app_sessions.open(app_id, role, k, ["touch", "go"]) as session:
        assert list(session.output()) == []
        assert session.wait() == 0


def reason(found: DescribeAppResponse) -> str:
    """Return the reason that a description shows for the first replica."""
    return str(found.roles_statuses[0].replicas[0].reason)
