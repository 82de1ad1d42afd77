"""Where a story happens: on the cluster of ``KUBECONFIG`` where that is set, else on the double."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from k8s_apps import described, shell
from k8s_double.handle import Double

from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import AppDef, Role, is_terminal
from torchx_specs.schedulers import DescribeAppResponse

#: Set by the user before the suite begins: tests of the double point the variable at that.
KUBECONFIG = os.environ.get("KUBECONFIG", "")


class Site:
    """A cluster, and the apps that a story has submitted to it.

    Args:
        double: the double, None for the cluster of ``KUBECONFIG``
        namespace: of the apps
        image: an image with sh, on the nodes
        python: an image with python, on the nodes
    """

    def __init__(self, double: Double | None, namespace: str, image: str, python: str) -> None:
        self.double = double
        self.kubeconfig = str(double.path) if double is not None else KUBECONFIG
        self.namespace = namespace
        self.image = image
        self.python = python
        #: How long anything may take: a real Job makes a failed pod anew after 10 seconds, then 20.
        self.seconds = 30.0 if double is not None else 300.0
        self.cfg: dict[str, Any] = {
            "job_api": "batch",
            "namespace": namespace,
            "image_pull_policy": "IfNotPresent",
        }
        self.scheduler: KubernetesScheduler = create_scheduler("stories")
        self._apps: list[str] = []

    def only_real(self, what: str) -> None:
        """Skips what the double cannot show."""
        if self.double is not None:
            pytest.skip(f"KUBECONFIG is not set, and the double has no such thing: {what}")

    def shell(self, script: str, name: str = "main", **fields: Any) -> Role:
        """A role that runs a shell script."""
        return shell(script, name, **{"image": self.image, **fields})

    def program(self, code: str, *args: str, **fields: Any) -> Role:
        """A role that runs Python code."""
        role = self.shell("", **{"image": self.python, **fields})
        role.entrypoint, role.args = "python", ["-c", code, *args]
        return role

    def submit(self, *roles: Role | str, **cfg: Any) -> str:
        """Submits an app of roles, or of scripts."""
        made = [self.shell(role) if isinstance(role, str) else role for role in roles]
        app_id = self.scheduler.submit(AppDef("story", made), {**self.cfg, **cfg})
        self.note(app_id)
        return app_id

    def note(self, app_id: str) -> None:
        """Remembers an app, to be deleted when the story is over."""
        self._apps.append(app_id)

    def until(
        self,
        app_id: str,
        test: Callable[[DescribeAppResponse], Any] = lambda found: is_terminal(found.state),
    ) -> DescribeAppResponse:
        """Describes an app until the answer passes a test, or the app has ended."""
        return described(self.scheduler, app_id, test, self.seconds)

    def lines(self, app_id: str, role: str = "main", k: int = 0, **how: Any) -> list[str]:
        """Returns log lines, without their newlines."""
        return [line.rstrip("\n") for line in self.scheduler.log_iter(app_id, role, k, **how)]

    def left(self, app_id: str) -> list[str]:
        """Returns what the cluster has of an app."""
        selector = f"app.kubernetes.io/instance={app_id.partition(':')[2]}"
        found = []
        for api, plural in (
            ("apis/batch/v1", "jobs"),
            ("api/v1", "pods"),
            ("api/v1", "services"),
            ("api/v1", "configmaps"),
        ):
            path = f"/{api}/namespaces/{self.namespace}/{plural}"
            listed = self.scheduler._cluster.get(path, "look", {"labelSelector": selector})
            found += [f"{plural}/{one['metadata']['name']}" for one in listed["items"]]
        return found

    def until_gone(self, app_id: str) -> None:
        """Waits until the cluster has nothing of an app."""
        deadline = time.monotonic() + self.seconds
        while left := self.left(app_id):
            assert time.monotonic() < deadline, f"left of {app_id}: {left}"
            time.sleep(0.2)

    def close(self) -> None:
        """Deletes the apps."""
        for app_id in self._apps:
            self.scheduler.delete(app_id)
        for app_id in self._apps:
            self.until_gone(app_id)
        self.scheduler.close()
