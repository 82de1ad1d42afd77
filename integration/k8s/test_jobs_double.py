"""Tests of the Job controller and the kubelet of the Kubernetes double, with the real client."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import pytest
from double_client import ApiException, Client, container, job, pod
from k8s_double.handle import Double
from k8s_double.node.container_logs import LINE_LIMIT, ContainerLog
from k8s_double.node.environment import expanded

from patience import wait_for


@pytest.fixture
def k8s(double: Double) -> Client:
    return Client(str(double.path))


def conditions(found: Any) -> dict[str, tuple[str, str]]:
    return {c.type: (c.reason, c.message) for c in found.status.conditions if c.status == "True"}


# Tests of Jobs.


def test_an_indexed_job_has_a_pod_for_each_index(k8s: Client) -> None:
    k8s.job("one", "echo $JOB_COMPLETION_INDEX on $(hostname)", completions=3)
    found = k8s.ended("one")
    assert conditions(found)["Complete"][0] == "CompletionsReached"
    assert "SuccessCriteriaMet" in conditions(found)
    assert (found.status.succeeded, found.status.completed_indexes) == (3, "0-2")
    pods = k8s.pods("one")
    index = "batch.kubernetes.io/job-completion-index"
    assert [p.metadata.annotations[index] for p in pods] == ["0", "1", "2"]
    assert [p.metadata.labels[index] for p in pods] == ["0", "1", "2"]
    assert [p.spec.hostname for p in pods] == ["one-0", "one-1", "one-2"]
    assert pods[2].metadata.name.startswith("one-2-")
    assert k8s.log(pods[2].metadata.name).startswith("2 on ")
    assert pods[0].metadata.owner_references[0].controller


def test_the_backoff_limit_ends_a_job(k8s: Client) -> None:
    k8s.job("one", "exit 3", backoffLimit=2)
    found = k8s.ended("one")
    words = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert conditions(found)["Failed"] == words
    assert found.status.failed == 3
    ends = [p.status.container_statuses[0].state.terminated for p in k8s.pods("one")]
    assert [(e.exit_code, e.reason) for e in ends] == [(3, "Error")] * 3


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


def test_a_deleted_job_releases_its_pods(k8s: Client, double: Double) -> None:
    double.play("unschedulable")
    k8s.job("one", podFailurePolicy=_IGNORE)
    waiting_pod(k8s, "one")
    k8s.batch.delete_namespaced_job("one", "default", propagation_policy="Background")
    wait_for(lambda: k8s.pods("one") == [])


def test_a_suspended_job_releases_its_pods(k8s: Client, double: Double) -> None:
    double.play("unschedulable")
    k8s.job("one", podFailurePolicy=_IGNORE)
    waiting_pod(k8s, "one")
    k8s.batch.patch_namespaced_job("one", "default", {"spec": {"suspend": True}})
    wait_for(lambda: k8s.pods("one") == [])
    double.stop_playing()
    k8s.batch.patch_namespaced_job("one", "default", {"spec": {"suspend": False}})
    ended = k8s.ended("one")
    assert ended.status.failed is None


def test_only_the_backoff_limit_of_a_job_can_be_changed(k8s: Client, double: Double) -> None:
    double.play("unschedulable")
    k8s.job("one", backoffLimit=3, backoffLimitPerIndex=1)
    k8s.batch.patch_namespaced_job("one", "default", {"spec": {"backoffLimit": 0}})
    with pytest.raises(ApiException) as refused:
        k8s.batch.patch_namespaced_job("one", "default", {"spec": {"backoffLimitPerIndex": 0}})
    assert refused.value.status == 422
    assert "field is immutable" in refused.value.body


def test_the_backoff_limit_of_each_index(k8s: Client) -> None:
    k8s.job(
        "one", "exit $JOB_COMPLETION_INDEX", completions=3, backoffLimit=None,
        backoffLimitPerIndex=1,
    )  # fmt: skip
    found = k8s.ended("one")
    assert conditions(found)["Failed"] == ("FailedIndexes", "Job has failed indexes")
    assert (found.status.completed_indexes, found.status.failed_indexes) == ("0", "1,2")
    assert found.status.failed == 4


@pytest.mark.parametrize(("action", "failed"), [("FailJob", 1), ("Count", 3)])
def test_a_pod_failure_policy_decides(k8s: Client, action: str, failed: int) -> None:
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [3]}}
    k8s.job("one", "exit 3", backoffLimit=2, podFailurePolicy={"rules": [rule]})
    found = k8s.ended("one")
    assert found.status.failed == failed
    reason, message = conditions(found)["Failed"]
    if action == "FailJob":
        assert reason == "PodFailurePolicy"
        assert message.endswith("failed with exit code 3 matching FailJob rule at index 0")


@pytest.mark.parametrize("sequence", ["preempted", "evicted"])
def test_an_ignored_disruption_replaces_the_pod(k8s: Client, double: Double, sequence: str) -> None:
    double.play(sequence, count=1)
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    k8s.job("one", "echo end", podFailurePolicy={"rules": [rule]})
    found = k8s.ended("one")
    assert (found.status.succeeded, found.status.failed) == (1, None)


@pytest.mark.parametrize("how", ["deleted", "evicted"])
def test_a_pod_that_is_deleted_or_evicted_is_replaced(k8s: Client, how: str) -> None:
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    k8s.job("one", "echo up; exec sleep 86400", podFailurePolicy={"rules": [rule]})
    wait_for(lambda: [p for p in k8s.pods("one") if p.status.phase == "Running"])
    name = k8s.pods("one")[0].metadata.name
    if how == "deleted":  # this is a failure, because the process was ended
        k8s.core.delete_namespaced_pod(name, "default")
        assert conditions(k8s.ended("one"))["Failed"][0] == "BackoffLimitExceeded"
        return
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    code, _, _ = k8s.raw("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body)
    assert code == 201
    wait_for(lambda: [p for p in k8s.pods("one") if p.metadata.name != name])
    assert k8s.batch.read_namespaced_job("one", "default").status.failed is None


def test_a_failed_job_deletes_the_pods_that_run(k8s: Client) -> None:
    k8s.job("one", 'test "$JOB_COMPLETION_INDEX" = 1 && exit 4; exec sleep 86400', completions=3)
    found = k8s.ended("one")
    assert "BackoffLimitExceeded" in conditions(found)["Failed"]
    assert [p.status.phase for p in k8s.pods("one")] == ["Failed"]


def test_a_success_policy_ends_the_job(k8s: Client) -> None:
    k8s.job(
        "one", 'test "$JOB_COMPLETION_INDEX" = 0 || exec sleep 86400', completions=2,
        successPolicy={"rules": [{"succeededCount": 1}]},
    )  # fmt: skip
    found = k8s.ended("one")
    assert conditions(found)["Complete"] == ("SuccessPolicy", "Matched rules at index 0")


def test_a_suspended_job_has_no_pods(k8s: Client) -> None:
    k8s.job("one", "exec sleep 86400", completions=2)
    wait_for(lambda: k8s.batch.read_namespaced_job("one", "default").status.ready == 2)
    k8s.batch.patch_namespaced_job("one", "default", {"spec": {"suspend": True}})
    wait_for(lambda: k8s.pods("one") == [])
    found = wait_for(
        lambda: (
            (found := k8s.batch.read_namespaced_job("one", "default"))
            and found.status.active is None
            and found
        )
    )
    assert conditions(found)["Suspended"] == ("JobSuspended", "Job suspended")
    assert found.status.start_time is None
    k8s.batch.patch_namespaced_job("one", "default", {"spec": {"suspend": False}})
    wait_for(lambda: k8s.batch.read_namespaced_job("one", "default").status.ready == 2)


def test_deadline_and_time_to_live(k8s: Client, double: Double) -> None:
    k8s.job("slow", "exec sleep 86400", activeDeadlineSeconds=1)
    assert conditions(k8s.ended("slow"))["Failed"][0] == "DeadlineExceeded"
    k8s.job("short", ttlSecondsAfterFinished=0)
    wait_for(lambda: not [name for name in double.left() if "short" in name])


def test_kueue_holds_a_job_until_it_is_admitted(k8s: Client, double: Double) -> None:
    double.kueue()
    body = job("one", "echo end")
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "users"}
    assert k8s.batch.create_namespaced_job("default", body).spec.suspend
    workload = wait_for(lambda: double.objects("workloads.kueue.x-k8s.io"))[0]
    assert workload["spec"]["queueName"] == "users"
    time.sleep(0.4)
    assert k8s.pods("one") == []
    assert double.admit() == 1
    assert double.admit() == 0
    assert k8s.ended("one").status.succeeded == 1


def test_kueue_admits_the_oldest_job_while_the_quota_is_enough(k8s: Client, double: Double) -> None:
    double.kueue()
    for number, name in enumerate(("one", "two"), start=1):
        body = job(name, "echo end")
        body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "users"}
        k8s.batch.create_namespaced_job("default", body)
        wait_for(lambda number=number: len(double.objects("workloads.kueue.x-k8s.io")) == number)
    assert double.admit(most=1) == 1
    assert k8s.ended("one").status.succeeded == 1
    wait_for(lambda: '"Finished"' in json.dumps(double.objects("workloads.kueue.x-k8s.io")))
    assert k8s.pods("two") == []
    assert double.admit(most=1) == 1
    assert k8s.ended("two").status.succeeded == 1
    assert double.admit() == 0


# Tests of pods.


def test_arguments_variables_and_files_reach_the_process(k8s: Client, double: Double) -> None:
    for kind, data in (
        ("Secret", {"stringData": {"key": "s3"}}),
        ("ConfigMap", {"data": {"a": "1"}}),
    ):
        key = f"{kind.lower()}s"
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "given"}, **data}
        double.create(key, "default", body)
    env = [
        {"name": "PLAIN", "value": "v"},
        {"name": "USES", "value": "$(PLAIN) $$(PLAIN) $(NONE) $$ $x"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "given", "key": "key"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['l']"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    script = 'echo "$PLAIN|$USES|$SECRET|$POD|$LABEL|$CPU|$FROM_a|$1|$HOSTNAME"; pwd'
    one = container(
        script,
        command=["sh", "-c", script, "sh", "$(PLAIN)$$(PLAIN)"],
        env=env,
        envFrom=[{"prefix": "FROM_", "configMapRef": {"name": "given"}}],
        workingDir="/some/where",
        resources={"limits": {"cpu": "2"}},
    )
    body = pod("given", containers=[one], hostname="given-host")
    body["metadata"]["labels"] = {"l": "label"}
    k8s.core.create_namespaced_pod("default", body)
    wait_for(lambda: k8s.core.read_namespaced_pod("given", "default").status.phase == "Succeeded")
    lines = k8s.log("given").splitlines()
    assert lines[0] == "v|v $(PLAIN) $(NONE) $ $x|s3|given|label|2|1|v$(PLAIN)|given-host"
    assert lines[1].endswith("/some/where")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("$$", "$"), ("$$$", "$$"), ("$(A)", "1"), ("$$(A)", "$(A)"), ("$$$(A)", "$1"), ("$(", "$("),
     ("$(A", "$(A"), ("a$", "a$"), ("$()", "$()"), ("$(B)$(A)", "$(B)1"), ("${A}", "${A}")],
)  # fmt: skip
def test_variables_are_expanded(text: str, expected: str) -> None:
    assert expanded(text, {"A": "1"}) == expected


def test_a_pod_waits_for_a_missing_secret(k8s: Client, double: Double) -> None:
    reference = {"secretKeyRef": {"name": "late", "key": "key"}}
    one = container("echo $S", env=[{"name": "S", "valueFrom": reference}])
    k8s.core.create_namespaced_pod("default", pod("one", containers=[one]))

    def waiting() -> Any:
        statuses = k8s.core.read_namespaced_pod("one", "default").status.container_statuses
        return statuses and statuses[0].state.waiting

    found = wait_for(lambda: (w := waiting()) and w.reason == "CreateContainerConfigError" and w)
    assert found.message == 'secret "late" not found'
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}}
    double.create("secrets", "default", {**body, "stringData": {"key": "there"}})
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Succeeded")
    assert k8s.log("one") == "there\n"


def test_a_missing_image_keeps_the_pod_waiting(k8s: Client) -> None:
    one = container("true", image="example.com/none:1")
    k8s.core.create_namespaced_pod("default", pod("one", containers=[one]))
    reasons = set()

    def seen() -> bool:
        statuses = k8s.core.read_namespaced_pod("one", "default").status.container_statuses
        if statuses and statuses[0].state.waiting:
            reasons.add(statuses[0].state.waiting.reason)
        return {"ErrImagePull", "ImagePullBackOff"} <= reasons

    wait_for(seen)
    with pytest.raises(ApiException) as caught:
        k8s.log("one")
    assert caught.value.status == 400
    message = json.loads(caught.value.body)["message"]
    assert message.startswith('container "main" in pod "one" is waiting to start')


def test_a_missing_program_fails_the_container(k8s: Client) -> None:
    one = container("", command=["/no/such/program"])
    k8s.core.create_namespaced_pod("default", pod("one", containers=[one]))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Failed")
    found = k8s.core.read_namespaced_pod("one", "default").status.container_statuses[0]
    ended = found.state.terminated
    assert (ended.exit_code, ended.reason) == (128, "StartError")
    assert 'exec: "/no/such/program"' in ended.message


def test_a_full_node_keeps_the_pod_pending(k8s: Client, double: Double) -> None:
    one = container("true", resources={"limits": {"nvidia.com/gpu": "1"}})
    k8s.core.create_namespaced_pod("default", pod("one", containers=[one]))

    def condition() -> Any:
        found = k8s.core.read_namespaced_pod("one", "default").status.conditions
        return found and found[0]

    found = wait_for(condition)
    assert (found.type, found.status, found.reason) == ("PodScheduled", "False", "Unschedulable")
    assert found.message.startswith("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    assert k8s.log("one", follow=True) == ""  # an empty log, not an error
    double.capacity(**{"nvidia.com/gpu": "8"})
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Succeeded")


def test_a_process_gets_the_grace_period(k8s: Client) -> None:
    stubborn = "trap 'echo no' TERM; echo up; while :; do sleep 0.05; done"
    k8s.core.create_namespaced_pod("default", pod("one", stubborn, terminationGracePeriodSeconds=1))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Running")
    wait_for(lambda: k8s.log("one"))
    found = k8s.core.delete_namespaced_pod("one", "default")
    assert found.metadata.deletion_timestamp is not None
    wait_for(lambda: "no" in k8s.log("one"))

    def gone() -> bool:
        try:
            k8s.core.read_namespaced_pod("one", "default")
        except ApiException as e:
            return e.status == 404
        return False

    wait_for(gone)


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


def test_a_long_line_has_one_time(k8s: Client) -> None:
    size = 3 * LINE_LIMIT + 5
    script = f"head -c {size} /dev/zero | tr '\\0' z; echo; echo end"
    k8s.core.create_namespaced_pod("default", pod("one", script))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Succeeded")
    first, second = k8s.log("one", timestamps=True).splitlines()
    assert first.split(" ")[1] == "z" * size
    assert second.split(" ")[1] == "end"


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
