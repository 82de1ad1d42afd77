"""Tests of the explanations of pending reasons."""

from __future__ import annotations

import pytest

from torchx_kit.jobs.pending_reasons import explained
from torchx_sched_k8s.status.pending_reasons import PENDING


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [
        ("0/4 nodes are available: 4 node(s) had untolerated taint {gpu: }.", "no node accepts"),
        (
            (
                "couldn't assign flavors to pod set main: insufficient unused quota for cpu in"
                " flavor default, 4 more needed"
            ),
            "the quota of the namespace or queue is used up",
        ),
        (
            (
                "couldn't assign flavors to pod set main: insufficient quota for cpu in flavor"
                " default, request > maximum capacity (8 > 4)"
            ),
            "the app requests more than the quota of the queue can ever give",
        ),
        # Kueue 0.12 to 0.15 has these in pkg/scheduler and
        # pkg/controller/core/workload_controller.go.
        (
            (
                "waiting in Kueue's queue q: couldn't assign flavors to pod set main: insufficient"
                " unused quota for cpu in flavor a, 4 more needed, insufficient quota for cpu in"
                " flavor b, request > maximum capacity (8 > 4)"
            ),
            "the quota of the namespace or queue is used up",
        ),
        (
            (
                "couldn't assign flavors to pod set a: insufficient unused quota for cpu in flavor"
                " f, 4 more needed; couldn't assign flavors to pod set b: insufficient quota for"
                " cpu in flavor f, previously considered podsets requests (16) + current podset"
                " request (8) > maximum capacity (16)"
            ),
            "the app requests more than the quota of the queue can ever give",
        ),
        (
            (
                "couldn't assign flavors to pod set main: insufficient unused quota for cpu in"
                " flavor default, 1 more needed. Pending the preemption of 1 workload(s)"
            ),
            "the queue ends other jobs to make room for the app",
        ),
        ("waiting in Kueue's queue q: LocalQueue q doesn't exist", "the queue does not exist"),
        ("ClusterQueue cluster-queue doesn't exist", "the queue does not exist"),
        ("ClusterQueue cluster-queue is inactive", "the queue takes no jobs now"),
        ("LocalQueue q is inactive", "the queue takes no jobs now"),
        ("Workload namespace doesn't match ClusterQueue selector", "the queue takes no jobs of"),
        (
            (
                "couldn't assign flavors to pod set main: resource nvidia.com/gpu unavailable in"
                " ClusterQueue"
            ),
            "the queue has no quota for one of the requested resources",
        ),
        (
            (
                "couldn't assign flavors to pod set main: untolerated taint"
                " {gpu true NoSchedule <nil>} in flavor a"
            ),
            "no node accepts the pod",
        ),
        # Volcano 1.7 to 1.12 has these in gang, capacity, proportion and overcommit of
        # pkg/scheduler/plugins.
        (
            (
                "Unschedulable: 1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending,"
                " 1 minAvailable; Pending: 1 Unschedulable"
            ),
            "the cluster has no room for all replicas at once",
        ),
        (
            (
                "Unschedulable: queue resource quota insufficient: insufficient cpu; 0/0 tasks in"
                " gang unschedulable: pod group is not ready, 1 minAvailable"
            ),
            "the quota of the namespace or queue is used up",
        ),
        (
            "Unschedulable: resource in cluster is overused: overused nvidia.com/gpu",
            "the cluster has no room for all replicas at once",
        ),
        ("pod has unbound immediate PersistentVolumeClaims", "a volume is missing or cannot"),
        ("Unschedulable: 0/3 nodes are available: 3 Insufficient cpu", "no node has enough free"),
        ("ImagePullBackOff: Back-off pulling image", "the image cannot be pulled"),
    ],
)
def test_a_pending_reason_is_explained(reason: str, meaning: str) -> None:
    assert explained(reason, PENDING).startswith(f"{reason}: {meaning}")


def test_an_unknown_pending_reason_is_not_explained() -> None:
    assert explained("NoSuchReason", PENDING) == "NoSuchReason"
    assert explained("", PENDING) == ""
