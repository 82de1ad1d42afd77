"""Functions that tests of the schedulers share: they make, poll and describe apps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from patience import wait_for
from torchx_specs import AppDef, AppState, Resource, Role, is_terminal
from torchx_specs.schedulers import DescribeAppResponse, Scheduler

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


def described(
    scheduler: Scheduler[Any],
    app_id: str,
    test: Callable[[DescribeAppResponse], Any] = lambda found: is_terminal(found.state),
) -> DescribeAppResponse:
    """Poll an app until its description passes a test, and return the description.

    The default test passes when the app has ended.
    """

    def passed() -> DescribeAppResponse | None:
        found = scheduler.describe(app_id)
        assert found is not None
        return found if test(found) else None

    found = wait_for(passed, lambda: scheduler.describe(app_id))
    assert found is not None
    return found


def running(found: DescribeAppResponse) -> bool:
    """Return whether every replica runs."""
    replicas = [replica for role in found.roles_statuses for replica in role.replicas]
    return all(replica.state == AppState.RUNNING for replica in replicas)


def reason(found: DescribeAppResponse) -> str:
    """Return the reason that a description shows for the first replica."""
    return str(found.roles_statuses[0].replicas[0].reason)
