"""Tests of the Job controller and the kubelet of the Kubernetes double, with the real client."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from double_client import ApiException, Client, pod
from k8s_double.handle import Double
from k8s_double.node.container_logs import ContainerLog
from k8s_double.node.environment import expanded

from patience import wait_for


@pytest.fixture
def k8s(double: Double) -> Client:
    return Client(str(double.path))


def conditions(found: Any) -> dict[str, tuple[str, str]]:
    return {c.type: (c.reason, c.message) for c in found.status.conditions if c.status == "True"}


# Tests of Jobs.


_IGNORE = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}],
}


def waiting_pod(k8s: Client, name: str) -> Any:
    """Return the pod of a Job after the scheduler has found no node for it."""
    [found] = wait_for(
        lambda: [p for p in k8s.pods(name) if p.status.conditions and not p.spec.node_name]
    )
    return found


def delete_pod(k8s: Client, found: Any, **preconditions: str) -> None:
    options = {"preconditions": preconditions} if preconditions else {}
    k8s.core.delete_namespaced_pod(found.metadata.name, "default", body=options)


def test_a_pod_is_deleted_only_in_the_version_that_was_read(k8s: Client, double: Double) -> None:
    double.play("unschedulable")
    k8s.job("one")
    found = waiting_pod(k8s, "one")
    before = found.metadata
    double.stop_playing()
    wait_for(lambda: k8s.pods("one")[0].spec.node_name)
    with pytest.raises(ApiException) as refused:
        delete_pod(k8s, found, uid=before.uid, resourceVersion=before.resource_version)
    assert refused.value.status == 409
    assert "Precondition failed: ResourceVersion in precondition" in refused.value.body
    assert conditions(k8s.ended("one"))["Complete"]


def test_a_deleted_pod_without_a_node_counts_when_it_was_collected(
    k8s: Client, double: Double
) -> None:
    double.play("unschedulable")
    double.pod_gc(3600)
    k8s.job("one", podFailurePolicy=_IGNORE)
    found = waiting_pod(k8s, "one")
    assert found.metadata.finalizers == ["batch.kubernetes.io/job-tracking"]
    delete_pod(k8s, found, uid=found.metadata.uid, resourceVersion=found.metadata.resource_version)
    double.stop_playing()  # a pod that is being deleted cannot be bound
    k8s.job("other")
    k8s.ended("other")
    [leaving] = k8s.pods("one")
    assert leaving.metadata.deletion_timestamp
    assert leaving.spec.node_name is None
    status = k8s.batch.read_namespaced_job("one", "default").status
    assert (status.failed, status.terminating) == (None, 1)
    double.pod_gc(0.1)
    ended = k8s.ended("one")
    assert conditions(ended)["Failed"][0] == "BackoffLimitExceeded"
    assert ended.status.failed == 1
    assert k8s.pods("one") == []


def test_a_deleted_pod_without_a_node_is_replaced_within_the_backoff_limit(
    k8s: Client, double: Double
) -> None:
    double.play("unschedulable")
    k8s.job("one", podFailurePolicy=_IGNORE, backoffLimit=1)
    first = waiting_pod(k8s, "one")
    delete_pod(k8s, first)
    wait_for(lambda: [p.metadata.uid for p in k8s.pods("one")] not in ([], [first.metadata.uid]))
    double.stop_playing()
    ended = k8s.ended("one")
    assert conditions(ended)["Complete"]
    assert ended.status.failed == 1


def test_a_disrupted_pod_without_a_node_is_replaced_and_not_counted(
    k8s: Client, double: Double
) -> None:
    double.play("unschedulable")
    k8s.job("one", podFailurePolicy=_IGNORE)
    first = waiting_pod(k8s, "one")
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    double.set_status("pods", "default", first.metadata.name, {"conditions": disrupted})
    delete_pod(k8s, first)
    wait_for(lambda: [p.metadata.uid for p in k8s.pods("one")] not in ([], [first.metadata.uid]))
    double.stop_playing()
    ended = k8s.ended("one")
    assert conditions(ended)["Complete"]
    assert ended.status.failed is None


def test_without_a_failure_policy_a_deleted_pod_counts_at_once(k8s: Client, double: Double) -> None:
    double.play("unschedulable")
    double.pod_gc(3600)
    k8s.job("one")
    delete_pod(k8s, waiting_pod(k8s, "one"))
    ended = k8s.ended("one")
    assert conditions(ended)["Failed"][0] == "BackoffLimitExceeded"
    assert ended.status.failed == 1


def test_only_the_backoff_limit_of_a_job_can_be_changed(k8s: Client, double: Double) -> None:
    double.play("unschedulable")
    k8s.job("one", backoffLimit=3, backoffLimitPerIndex=1)
    k8s.batch.patch_namespaced_job("one", "default", {"spec": {"backoffLimit": 0}})
    with pytest.raises(ApiException) as refused:
        k8s.batch.patch_namespaced_job("one", "default", {"spec": {"backoffLimitPerIndex": 0}})
    assert refused.value.status == 422
    assert "field is immutable" in refused.value.body


# Tests of pods.


@pytest.mark.parametrize(
    ("text", "expected"),
    [("$$", "$"), ("$$$", "$$"), ("$(A)", "1"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$(", "$("),
     ("$(A", "$(A"), ("a$", "a$"), ("$()", "$()"), ("$(B)$(A)", "$(B)1"), ("${A}", "${A}")],
)  # fmt: skip
def test_variables_are_expanded(text: str, expected: str) -> None:
    assert expanded(text, {"A": "1"}) == expected


# Tests of logs.


@pytest.fixture
def spoken(k8s: Client) -> str:
    script = "for i in 1 2 3 4; do echo line $i; sleep 0.02; done; printf end"
    k8s.core.create_namespaced_pod("default", pod("one", script))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Succeeded")
    return "one"


def test_log_options_select_lines(k8s: Client, spoken: str) -> None:
    everything = "line 1\nline 2\nline 3\nline 4\nend"
    assert k8s.log(spoken) == everything
    assert k8s.log(spoken, follow=True) == everything
    assert k8s.log(spoken, tail_lines=2) == "line 4\nend"
    assert k8s.log(spoken, limit_bytes=8) == "line 1\nl"
    assert k8s.log(spoken, since_seconds=60) == everything
    rows = k8s.log(spoken, timestamps=True).splitlines()
    assert [line.split(" ", 1)[1] for line in rows] == everything.splitlines()
    assert all(len(line.split(" ")[0]) == len("2026-11-21T00:00:00.000000000Z") for line in rows)
    with pytest.raises(ApiException, match="422"):
        k8s.log(spoken, since_seconds=0)
    with pytest.raises(ApiException, match="container nobody is not valid for pod one"):
        k8s.log(spoken, container="nobody")


def test_reset_turns_off_logs_before_their_newline(double: Double) -> None:
    double.log_at_once()
    double.reset()
    k8s = Client(str(double.path))
    script = "printf before >&2; echo line; exec sleep 86400"
    k8s.core.create_namespaced_pod("default", pod("one", script))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Running")
    wait_for(lambda: "line" in k8s.log("one"))
    assert k8s.log("one") == "line\n"


def test_since_is_cut_to_whole_seconds() -> None:
    log = ContainerLog()
    log.add("stdout", b"one\ntwo\n")
    second = log.entries[0].stamp // 10**9 * 10**9
    assert b"".join(log.read(since=second)) == b"one\ntwo\n"
    assert b"".join(log.read(since=log.entries[1].stamp)) == b"two\n"


def test_no_process_outlives_the_double(tmp_path: Any) -> None:
    own = Double(tmp_path / "own", "--http")
    k8s = Client(str(own.path))
    mark = f"{os.getpid()}.4711"
    k8s.core.create_namespaced_pod("default", pod("one", f"sleep {mark} & exec sleep {mark}"))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Running")

    def processes() -> list[str]:
        found = []
        for entry in os.scandir("/proc"):
            if entry.name.isdigit():
                try:
                    with open(f"/proc/{entry.name}/cmdline", "rb") as file:
                        words = file.read().split(b"\0")
                except OSError:
                    continue
                if words[:2] == [b"sleep", mark.encode()]:
                    found.append(entry.name)
        return found

    if sys.platform == "linux":
        wait_for(lambda: len(processes()) == 2)
    own.close()
    assert processes() == []
