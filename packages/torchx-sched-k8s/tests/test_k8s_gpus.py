"""Tests of the count of GPUs of a cluster."""

from __future__ import annotations

from typing import Any

from torchx_sched_k8s.cluster.gpus import count_gpus, sum_gpus
from torchx_specs.schedulers import GpuCounts


def node(name: str, gpus: str, ready: str = "True", **more: Any) -> dict[str, Any]:
    amounts = {"cpu": "8", "nvidia.com/gpu": gpus}
    conditions = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return {"metadata": {"name": name}, "spec": {}, "status": status, **more}


def pod(name: str, node: str, *gpus: str) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"limits": {"amd.com/gpu": n}}} for n in gpus]
    spec = {"nodeName": node, "containers": [*containers, {"name": "without"}]}
    return {"metadata": {"name": name}, "spec": spec if node else {"containers": containers}}


def test_gpus_of_nodes_and_pods() -> None:
    nodes = [
        node("a", "8"),
        node("cordoned", "4", spec={"unschedulable": True}),
        node("lost", "2", ready="Unknown"),
        {"metadata": {"name": "without"}},
    ]
    nodes[0]["status"]["allocatable"] = {"nvidia.com/gpu": "7"}
    pods = [pod("p", "a", "1", "2"), pod("q", "cordoned", "1"), pod("pending", "", "8")]
    assert sum_gpus(nodes, pods) == GpuCounts(free=4, used=4, unavailable=6)


def test_nodes_and_unfinished_pods_of_all_namespaces_are_listed() -> None:
    requests: list[tuple[object, ...]] = []

    class Lists:
        def list_items(self, *arguments: object) -> list[dict[str, Any]]:
            requests.append(arguments)
            return []

    lists: Any = Lists()
    assert count_gpus(lists) == GpuCounts()
    assert [request[0] for request in requests] == ["/api/v1/nodes", "/api/v1/pods"]
    assert "status.phase!=Succeeded" in str(requests[1][2])
