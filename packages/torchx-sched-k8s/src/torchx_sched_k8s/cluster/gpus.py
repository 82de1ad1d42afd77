"""The GPUs of a cluster: those of its nodes, and those that pods have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torchx_sched_k8s.cluster.client import Cluster
from torchx_specs.schedulers.api import GpuCounts

_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


def count_gpus(cluster: Cluster) -> GpuCounts:
    """Return how many GPUs of the cluster are free, in use and unavailable.

    Raises:
        ApiError: The user may not list nodes, or the pods of all namespaces.
        NoClusterError: No cluster is configured, or the cluster gives no valid answer.
    """
    nodes = cluster.list_items("/api/v1/nodes", "list nodes")
    pods = cluster.list_items("/api/v1/pods", "list pods", {"fieldSelector": _RUNNING})
    return sum_gpus(nodes, pods)


def sum_gpus(nodes: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> GpuCounts:
    """Return how many GPUs of nodes are free, in use and unavailable.

    Args:
        nodes: The nodes of the cluster.
        pods: The pods of all namespaces that have not ended.
    """
    used: dict[str, int] = {}
    for pod in pods:
        spec = pod.get("spec") or {}
        own = [_gpus((c.get("resources") or {}).get("limits")) for c in spec.get("containers", ())]
        node = spec.get("nodeName", "")
        used[node] = used.get(node, 0) + sum(own)
    found = []
    for node in nodes:
        status = node.get("status") or {}
        total, usable = _gpus(status.get("capacity")), _gpus(status.get("allocatable"))
        is_ready = any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        )
        is_open = is_ready and not (node.get("spec") or {}).get("unschedulable")
        found.append((usable, used.get(node["metadata"]["name"], 0), is_open))
        found.append((max(0, total - usable), 0, False))  # devices that do not work
    return GpuCounts.of_nodes(found)


def _gpus(amounts: Mapping[str, Any] | None) -> int:
    """Return the number of GPUs among resources, such as ``nvidia.com/gpu``."""
    return sum(int(str(n)) for name, n in (amounts or {}).items() if name.endswith("/gpu"))
