"""What tests of the Kubernetes double share: the real client and simple objects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client.rest import ApiException

from patience import PATIENCE, wait_for


class Client:
    """The APIs of the ``kubernetes`` library, with one kubeconfig."""

    def __init__(self, kubeconfig: str) -> None:
        self.api = config.new_client_from_config(kubeconfig)
        found = yaml.safe_load(Path(kubeconfig).read_text())
        cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
        self._server = cluster["server"]
        self._token = user.get("token", "")
        self._pool = urllib3.PoolManager(ca_certs=cluster.get("certificate-authority"))
        self.core = client.CoreV1Api(self.api)
        self.batch = client.BatchV1Api(self.api)

    def raw(
        self, method: str, path: str, body: Any = None, type_: str = "application/json"
    ) -> tuple[int, dict[str, Any], Any]:
        """Send a request without the library, which would refuse some requests itself.

        Returns:
            Status code, parsed response and headers.
        """
        answer = self._pool.request(
            method,
            self._server + path,
            body=None if body is None else json.dumps(body),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": type_},
            retries=False,
            timeout=PATIENCE,
        )
        return answer.status, json.loads(answer.data), answer.headers

    def job(self, name: str, script: str = "true", **spec: Any) -> Any:
        """Create the Job that :func:`job` returns, in the namespace ``default``; return it."""
        return self.batch.create_namespaced_job("default", job(name, script, **spec))

    def pods(self, name: str) -> list[Any]:
        """Return the pods of a Job, sorted by name."""
        found = self.core.list_namespaced_pod("default", label_selector=f"job-name={name}").items
        return sorted(found, key=lambda pod: pod.metadata.name)

    def ended(self, name: str) -> Any:
        """Wait for the end of a Job; return the Job."""
        return wait_for(
            lambda: (
                (found := self.batch.read_namespaced_job(name, "default"))
                and any(c.type in ("Complete", "Failed") for c in found.status.conditions or [])
                and found
            )
        )

    def log(self, pod: str, **options: Any) -> str:
        """Return the log of a pod as text."""
        answer = self.core.read_namespaced_pod_log(
            pod, "default", _preload_content=False, **options
        )
        return bytes(answer.data).decode()


def container(script: str, **fields: Any) -> dict[str, Any]:
    """Return a container that runs a shell script."""
    return {"name": "main", "image": "busybox:local", "command": ["sh", "-c", script], **fields}


def pod(name: str, script: str = "true", **spec: Any) -> dict[str, Any]:
    """Return a pod of one container."""
    spec = {"restartPolicy": "Never", "containers": [container(script)], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def job(name: str, script: str = "true", **spec: Any) -> dict[str, Any]:
    """Return an Indexed Job of one pod, or of ``completions`` pods."""
    count = spec.pop("completions", 1)
    template = spec.pop("template", {"spec": pod("x", script)["spec"]})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": count,
            "parallelism": count,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": template,
            **spec,
        },
    }


__all__ = ["ApiException", "Client", "container", "job", "pod"]
