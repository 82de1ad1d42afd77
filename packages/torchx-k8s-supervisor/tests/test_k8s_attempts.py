"""Tests of apps with the option ``requeue``: their objects, and why attempts end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_k8s_supervisor import program
from torchx_k8s_supervisor.supervisor import program_rules
from torchx_kit.jobs import attempts
from torchx_sched_k8s.backends.batch import BATCH
from torchx_sched_k8s.scheduler import create_scheduler
from torchx_specs import AppDef, AppState, BindMount, Role, VolumeMount
from torchx_specs.errors import RequestError
from torchx_specs.overlays import set_overlay

DATA = VolumeMount("data", "/data")


def role(name: str = "trainer", *mounts: Any, **words: Any) -> Role:
    return Role(name, "ml:1", entrypoint="sh", mounts=list(mounts), **words)


def objects(*roles: Role, **cfg: Any) -> list[dict[str, Any]]:
    info = create_scheduler("t").submit_dryrun(AppDef("app", list(roles)), cfg)
    found: list[dict[str, Any]] = info.request.objects
    return found


def env_of(job: dict[str, Any]) -> dict[str, str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


# Tests of the request.


def test_a_single_replica_has_a_supervisor_and_the_variables() -> None:
    one = role("trainer", DATA, env={"TORCHX_ATTEMPT": "9"})
    set_overlay(one, "kubernetes", "V1Pod", {"spec": {"terminationGracePeriodSeconds": 60}})
    found = objects(one, resume_dir="/data/runs/${app_id}")
    for resource in found:
        kubernetes_validate.validate(resource, "1.32", strict=True)
    job, own = found[-2:]
    name = own["metadata"]["name"]
    env = env_of(job)
    assert env["TORCHX_ATTEMPT"] == "0"
    assert env["TORCHX_STOP_GRACE"] == "SIGTERM=60"
    assert env["TORCHX_RESUME_DIR"] == f"/data/runs/{name}"
    assert "TORCHX_RESTART_REASON" not in env
    assert job["spec"]["backoffLimit"] == 0
    actions = [rule["action"] for rule in job["spec"]["podFailurePolicy"]["rules"]]
    assert actions == ["FailJob", "FailJob"]
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch", "patch"]}
    assert pods in found[3]["rules"]
    # a claim of one replica may be usable by one pod only
    assert "volumes" not in own["spec"]["template"]["spec"]


@pytest.mark.parametrize("policy", ["REPLICA", "ROLE", None])
def test_all_replicas_start_again_together(policy: str | None) -> None:
    one = role(num_replicas=3, max_retries=2, min_replicas=1)
    job = objects(one, requeue=True, retry_policy=policy)[-2]
    assert job["spec"]["backoffLimit"] == 0
    assert "backoffLimitPerIndex" not in job["spec"]


def test_jobs_without_the_options_do_not_change() -> None:
    roles = [role(num_replicas=2, max_retries=1), role("reader")]
    *_, trainer, _, own = objects(*roles, retry_policy="APPLICATION")
    assert not {name for name in env_of(trainer) if name in attempts.ATTEMPT_VARIABLES}
    assert "volumes" not in own["spec"]["template"]["spec"]
    assert program.REQUEUE not in own["metadata"]["annotations"]


def test_the_supervisor_mounts_the_volume_read_only() -> None:
    mounts = [VolumeMount("data", "/data"), VolumeMount("other", "/data/other")]
    found = objects(role("a", *mounts), role("b", DATA), resume_dir="/data/run")
    spec = found[-1]["spec"]["template"]["spec"]
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    assert spec["volumes"] == [{"name": "resume-dir", **claim}]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {"name": "resume-dir", "mountPath": "/data", "readOnly": True}
    found = objects(role("a", BindMount("/nfs", "/data")), resume_dir="/data")
    assert found[-1]["spec"]["template"]["spec"]["volumes"][0]["hostPath"] == {"path": "/nfs"}


@pytest.mark.parametrize(
    ("roles", "cfg"),
    [
        ([role()], {"resume_dir": "/data/run"}),
        ([role("a", DATA)], {"resume_dir": "/database"}),
        ([role("a", DATA), role("b")], {"resume_dir": "/data"}),
        ([role("a", DATA), role("b", VolumeMount("x", "/data"))], {"resume_dir": "/data"}),
        ([role("a", VolumeMount("data", "/data", read_only=True))], {"resume_dir": "/data"}),
        ([role()], {"resume_dir": "/data", "volumes": ["emptyDir:/data"]}),
        ([role()], {"resume_dir": "/dev/shm/run"}),
    ],
)
def test_a_folder_that_replicas_do_not_share_is_refused(
    roles: list[Role], cfg: dict[str, Any]
) -> None:
    with pytest.raises(RequestError, match="is not in a volume that all replicas share"):
        objects(*roles, **cfg)


@pytest.mark.parametrize(
    ("cfg", "words"),
    [
        (
            {"requeue": True, "job_api": "jobset"},
            "apps of jobset do not start again .* job_api=batch",
        ),
        ({"requeue": True, "queue": "q"}, "apps of volcano do not start again"),
        ({"resume_dir": "runs"}, "use an absolute path in the containers"),
        ({"max_node_failures": 1}, "needs the option requeue or resume_dir"),
    ],
)
def test_options_that_cannot_be_kept_are_refused(cfg: dict[str, Any], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        objects(role(), **cfg)


def test_the_time_of_the_first_attempt_is_the_smaller_one() -> None:
    for cfg in ({"time": "60s", "max_total_time": "2m"}, {"max_total_time": "60s"}):
        job = objects(role(), requeue=True, **cfg)[-2]
        assert job["spec"]["template"]["spec"]["activeDeadlineSeconds"] == 60


# Tests of the program's rules.


def pod(code: int | None = None, why: str = "Error", at: int = 0, **words: Any) -> dict[str, Any]:
    """Return a pod whose container has ended, and which was deleted if ``leaving`` is true."""
    ended = {"exitCode": code, "reason": why, "finishedAt": f"2026-01-01T00:00:0{at}Z"}
    state = {"terminated": ended} if code is not None else {"running": {}}
    status = {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [{"name": "a", "state": state}],
        "reason": words.get("pod_reason"),
    }
    if words.get("disrupted"):
        condition = {"type": "DisruptionTarget", "status": words.get("status", "True")}
        status["conditions"] = [{**condition, "reason": words["disrupted"]}]
    leaving = {"deletionTimestamp": "now"} if words.get("leaving") else {}
    return {"metadata": leaving, "status": status}


def job(reason: str = "PodFailurePolicy", message: str = "") -> dict[str, Any]:
    failed = {"type": "Failed", "status": "True", "reason": reason, "message": message}
    return {"metadata": {}, "status": {"conditions": [failed]}}


DISRUPTED_JOB = job(message="Pod n/p has condition DisruptionTarget matching FailJob rule")


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([pod(75)], "requested"),
        ([pod(1), pod(75, at=1)], "failed"),
        ([pod(1, at=1), pod(75)], "requested"),
        ([pod(1), pod(75)], "requested"),
        # the Job ends the other replicas after a failure, and they may ask for an attempt
        ([pod(75, leaving=True), pod(1, at=1)], "failed"),
        ([pod(1, at=0), pod(137, "OOMKilled", at=1)], "out-of-memory"),
        ([pod(75), pod(143, disrupted="PreemptionByScheduler", leaving=True)], "preempted"),
        ([pod(143, disrupted="EvictionByEvictionAPI")], "preempted"),
        ([pod(137, disrupted="TerminationByKubelet", pod_reason="Evicted")], "preempted"),
        ([pod(143, disrupted="DeletionByTaintManager")], "node-failure"),
        ([pod(disrupted="DeletionByPodGC"), pod(75)], "node-failure"),
        # an interrupted eviction
        ([pod(75, disrupted="EvictionByEvictionAPI", status="False")], "requested"),
        # kubectl drain also evicts pods that have ended
        ([pod(0, disrupted="EvictionByEvictionAPI"), pod(1)], "failed"),
        ([pod(75, pod_reason="DeadlineExceeded"), pod(75)], "time-limit"),
        # the node has refused the pod
        ([pod(pod_reason="UnexpectedAdmissionError")], "node-failure"),
        ([], "failed"),
    ],
)
def test_why_an_attempt_ended(pods: list[dict[str, Any]], reason: str) -> None:
    assert program.reason_of_end(job(), pods, [75], is_requested=False) == reason


def test_why_an_attempt_ended_whose_pods_were_not_seen() -> None:
    assert program.reason_of_end(DISRUPTED_JOB, [], [75], is_requested=False) == "preempted"
    assert program.reason_of_end(job(), [pod(1)], [75], is_requested=True) == "requested"
    assert program.reason_of_end(job(), [pod(3)], [75, 3], is_requested=False) == "requested"


@given(
    reasons=st.lists(st.sampled_from(["failed", "requested", "node-failure"]), min_size=1),
    steps=st.lists(st.sampled_from([None, 1, 2]), min_size=20, max_size=20),
    seconds=st.integers(0, 9),
    total=st.sampled_from([None, 5]),
    nodes=st.integers(0, 2),
    retries=st.integers(0, 2),
    has_folder=st.booleans(),
)
def test_the_program_has_the_rules_of_the_kit(
    reasons: list[str],
    steps: list[int | None],
    seconds: int,
    total: int | None,
    nodes: int,
    retries: int,
    has_folder: bool,
) -> None:
    reasons = reasons[:19]
    steps = steps[: len(reasons) + 1]
    of_kit = attempts.AttemptRules(nodes, total)
    rules = program_rules(of_kit, "")
    expected = attempts.refusal(
        of_kit,
        reasons,
        steps,
        seconds,
        max_retries=retries,
        has_folder=has_folder,
    )
    assert program.refusal(rules, reasons, steps, seconds, retries, has_folder) == expected


def test_resume_folder_of_the_supervisor(tmp_path: Path) -> None:
    assert program.newest_step("") == (None, False)
    assert program.newest_step(str(tmp_path / "missing")) == (None, True)
    (tmp_path / "file").touch()
    assert program.newest_step(str(tmp_path / "file")) == (None, False)
    for name in ("step-9", "step-10", "step-x", "step-11.new"):
        (tmp_path / name).mkdir()
    assert program.newest_step(str(tmp_path)) == (10, True)
    assert not program.is_requested("", 1)
    assert not program.is_requested(str(tmp_path), 1)
    (tmp_path / "attempts" / "1.0").mkdir(parents=True)
    (tmp_path / "attempts" / "1.0" / "requeue").touch()
    assert program.is_requested(str(tmp_path), 1)
    assert not program.is_requested(str(tmp_path), 11)


# Tests of the status.


def own_job(rows: str, **annotations: str) -> dict[str, Any]:
    notes = {program.REQUEUE: "{}", program.ATTEMPTS: rows, **annotations}
    notes = {"torchx.pytorch.org/roles": "1", **notes}
    labels = {"torchx.pytorch.org/part": "supervisor"}
    metadata = {"name": "a", "labels": labels, "annotations": notes}
    return {"metadata": metadata, "spec": {}, "status": {"active": 1}}


def role_job(condition: str | None, attempt: int = 0) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True"}] if condition else []
    notes = {program.RESTARTS: str(attempt)}
    metadata = {"name": "a-x", "labels": {}, "annotations": notes}
    spec = {"completions": 1, "template": {}}
    return {"metadata": metadata, "spec": spec, "status": {"conditions": conditions, "ready": 1}}


RUNS, ENDED = "[[10, null, null, null, []]]", '[[10, 20, "requested", 5, ["n1"]]]'
NEXT = {program.RESTARTS: "1"}
P, R, S, F, C = (
    AppState.PENDING,
    AppState.RUNNING,
    AppState.SUCCEEDED,
    AppState.FAILED,
    AppState.CANCELLED,
)


@pytest.mark.parametrize(
    ("own", "job", "state", "reasons"),
    [
        (own_job("[]"), role_job(None), R, [None]),
        (own_job(RUNS), role_job(None), R, [None]),
        (own_job(ENDED, **NEXT), role_job(None, 1), R, ["requested", None]),
        # the next attempt has not begun
        (own_job(ENDED, **NEXT), role_job("Failed"), P, ["requested"]),
        # the supervisor has not noted the end
        (own_job(RUNS), role_job("Complete"), R, [None]),
        (own_job('[[10, 20, "succeeded", 5, ["n1"]]]'), role_job("Complete"), S, ["succeeded"]),
        (own_job(ENDED, **NEXT), role_job("Complete", 1), R, ["requested", None]),
        (own_job("[]", **{program.CANCELLED: "now"}), role_job(None), C, ["cancelled"]),
        (own_job(ENDED, **{program.ENDED: "why"}), role_job("Failed"), F, ["requested"]),
    ],
)
def test_status_of_attempts(
    own: dict[str, Any], job: dict[str, Any], state: AppState, reasons: list[str | None]
) -> None:
    view = BATCH.view("a", [own, job])
    assert view.state == state
    assert view.supervision is not None
    found = view.supervision.attempts(view.state, None)
    assert [one.reason for one in found] == reasons
    assert [one.number for one in found] == list(range(len(found)))
    if len(found) > 1:
        assert (found[0].committed_step, found[1].resume_step) == (5, 5)
        assert found[0].nodes == ("n1",)


def test_an_app_without_the_option_has_no_attempts() -> None:
    view = BATCH.view("a", [role_job(None)])
    assert view.supervision is not None
    assert view.supervision.attempts(view.state, None) == []
