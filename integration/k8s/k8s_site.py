"""The site of a story: the cluster that ``KUBECONFIG`` names, or the double."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from k8s_apps import shell
from k8s_double.handle import Double
from waiting import described

from patience import wait_for
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import AppDef, Role, is_terminal
from torchx_specs.schedulers import DescribeAppResponse

#: The user's kubeconfig; empty to use the double. It is read at import, because tests of the double
#: change the variable.
KUBECONFIG = os.environ.get("KUBECONFIG", "")


class Site:
    """A cluster, and the apps that a story has submitted to it.

    Args:
        double: The double; None for the cluster of ``KUBECONFIG``.
        namespace: Namespace of the apps.
        image: An image with sh, on the nodes.
        python: An image with python, on the nodes.
        api_cfg: The option ``job_api``, and ``queue`` if the API needs one.
    """

    def __init__(
        self,
        double: Double | None,
        namespace: str,
        image: str,
        python: str,
        api_cfg: dict[str, str],
    ) -> None:
        self.double = double
        self.kubeconfig = str(double.path) if double is not None else KUBECONFIG
        self.namespace = namespace
        self.image = image
        self.python = python
        self.cfg: dict[str, Any] = {
            **api_cfg,
            "namespace": namespace,
            "image_pull_policy": "IfNotPresent",
            # an app of several roles has a supervisor, which needs python3
            "restarts_image": python,
        }
        self.scheduler: KubernetesScheduler = create_scheduler("stories")
        self._apps: list[str] = []

    def only_real(self, what: str) -> None:
        """Skip the test on the double, because the double lacks the feature ``what``."""
        if self.double is not None:
            pytest.skip(f"KUBECONFIG is not set, and the double has none: {what}")

    def shell(self, script: str, name: str = "main", **fields: Any) -> Role:
        """Return a role that runs a shell script."""
        return shell(script, name, **{"image": self.image, **fields})

    def program(self, code: str, *args: str, **fields: Any) -> Role:
        """Return a role that runs Python code."""
        role = self.shell("", **{"image": self.python, **fields})
        role.entrypoint, role.args = "python", ["-c", code, *args]
        return role

    def submit(self, *roles: Role | str, **cfg: Any) -> str:
        """Submit an app of roles or shell scripts; return the app's id."""
        made = [self.shell(role) if isinstance(role, str) else role for role in roles]
        app_id = self.scheduler.submit(AppDef("story", made), {**self.cfg, **cfg})
        self.register(app_id)
        return app_id

    def register(self, app_id: str) -> None:
        """Register an app to be deleted at the end of the story."""
        self._apps.append(app_id)

    def until(
        self,
        app_id: str,
        test: Callable[[DescribeAppResponse], Any] = lambda found: is_terminal(found.state),
    ) -> DescribeAppResponse:
        """Poll an app until its description passes a test, and return the description.

        The default test passes when the app has ended.
        """
        return described(self.scheduler, app_id, test)

    def lines(self, app_id: str, role: str = "main", k: int = 0, **how: Any) -> list[str]:
        """Return log lines without their newlines."""
        return [line.rstrip("\n") for line in self.scheduler.log_iter(app_id, role, k, **how)]

    def left(self, app_id: str) -> list[str]:
        """Return the objects of an app that the cluster has, as ``plural/name``."""
        name = app_id.partition(":")[2]
        query = urlencode({"labelSelector": f"app.kubernetes.io/instance={name}"})
        found = []
        for api, plural in (
            ("apis/batch/v1", "jobs"),
            ("apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
            ("apis/batch.volcano.sh/v1alpha1", "jobs"),
            ("api/v1", "pods"),
            ("api/v1", "services"),
            ("api/v1", "configmaps"),
        ):
            path = f"/{api}/namespaces/{self.namespace}/{plural}"
            listed = (
                self.scheduler._cluster_of(None).get_or_none(f"{path}?{query}", "list objects")
                or {}
            )
            found += [f"{plural}/{one['metadata']['name']}" for one in listed.get("items") or ()]
        return found

    def close(self) -> None:
        """Delete all apps of the story, and wait until they are deleted."""
        for app_id in self._apps:
            self.scheduler.delete(app_id)
        wait_for(lambda: not [one for app_id in self._apps for one in self.left(app_id)])
        self.scheduler.close()
