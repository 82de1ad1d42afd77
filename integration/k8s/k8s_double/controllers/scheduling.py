"""The scheduler: one node with a fixed capacity."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from k8s_double import quantities, selectors
from k8s_double.kinds import NODES, PODS
from k8s_double.store import Object, Store, now

NODE = "double-node"
SCHEDULER = "default-scheduler"


def node(capacity: dict[str, str], labels: dict[str, str]) -> Object:
    """Return the Node object of the one node."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE, **labels}},
        "spec": {},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.32.0-double"},
        },
    }


class Scheduling:
    """Binds pods to the node if the node has room; otherwise, shows the reason in their status."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._used: dict[str, dict[str, Decimal]] = {}
        self._total: dict[str, Decimal] = {}

    def bind(self, pod: Object) -> bool:
        """Bind a pod and return True, or mark it as unschedulable and return False.

        The result is also False for a pod that is being deleted or already has a node: the API
        server refuses such a binding.
        """
        found = self.store.find(NODES, "", NODE)
        assert found is not None
        why = self._why_not(pod, found)
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if why:
            self.refuse(pod, why)
            return False
        uid, has_bound = pod["metadata"]["uid"], False

        def bound(obj: Object) -> None:
            nonlocal has_bound
            metadata = obj["metadata"]
            if metadata["uid"] != uid or metadata.get("deletionTimestamp"):
                return
            if obj["spec"].get("nodeName"):
                return
            has_bound = True
            self._used[uid] = _requests(pod["spec"])
            self._count(_requests(pod["spec"]), 1)
            obj["spec"]["nodeName"] = NODE
            set_condition(obj, "PodScheduled", "True")

        self.store.mutate(PODS, namespace, name, bound)
        if not has_bound:
            return False
        message = f"Successfully assigned {namespace}/{name} to {NODE}"
        self.store.event(PODS, pod, "Scheduled", message, component=SCHEDULER)
        return True

    def refuse(self, pod: Object, why: str) -> None:
        """Mark a pod as unschedulable, with the scheduler's message."""

        def change(obj: Object) -> None:
            set_condition(obj, "PodScheduled", "False", "Unschedulable", why)

        self.store.mutate(PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], change)
        self.store.event(PODS, pod, "FailedScheduling", why, "Warning", component=SCHEDULER)

    def release(self, uid: str) -> bool:
        """Free the resources of an ended pod; return whether the pod held any."""
        found = self._used.pop(uid, None)
        self._count(found or {}, -1)
        return found is not None

    def _count(self, amounts: dict[str, Decimal], sign: int) -> None:
        for name, amount in amounts.items():
            self._total[name] = self._total.get(name, Decimal(0)) + sign * amount

    def _why_not(self, pod: Object, node_: Object) -> str:
        labels = node_["metadata"].get("labels") or {}
        wanted = pod["spec"].get("nodeSelector") or {}
        if any(labels.get(key) != value for key, value in wanted.items()) or not _affine(
            pod["spec"], labels
        ):
            return (
                "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
                " preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
            )
        room = {k: quantities.parsed(v) for k, v in node_["status"]["allocatable"].items()}
        lacking = []
        if len(self._used) + 1 > room.get("pods", Decimal(110)):
            lacking.append("1 Too many pods")
        asked = _requests(pod["spec"])
        for name in sorted(asked):
            used = self._total.get(name, Decimal(0))
            if asked[name] and used + asked[name] > room.get(name, Decimal(0)):
                lacking.append(f"1 Insufficient {name}")
        if not lacking:
            return ""
        return (
            f"0/1 nodes are available: {', '.join(lacking)}. preemption: 0/1 nodes are available:"
            " 1 No preemption victims found for incoming pod."
        )


def _requests(spec: dict[str, Any]) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for container in spec.get("containers") or []:
        for name, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            found[name] = found.get(name, Decimal(0)) + quantities.parsed(amount)
    return found


def _affine(spec: dict[str, Any], labels: dict[str, str]) -> bool:
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    )
    return terms is None or any(selectors.matches(term, labels) for term in terms)


def set_condition(
    obj: Object, type_: str, status: str, reason: str = "", message: str = ""
) -> None:
    """Set a condition in an object's status."""
    conditions = obj.setdefault("status", {}).setdefault("conditions", [])
    found = next((c for c in conditions if c["type"] == type_), None)
    if found is None:
        found = {"type": type_, "status": "", "lastProbeTime": None, "lastTransitionTime": now()}
        conditions.append(found)
    if found["status"] != status:
        found["status"] = status
        found["lastTransitionTime"] = now()
    for key, value in (("reason", reason), ("message", message)):
        if value:
            found[key] = value
        else:
            found.pop(key, None)
