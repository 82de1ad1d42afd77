"""Tests of requests to a cluster: connection, errors and retries, and what the scheduler sends.

The scheduler's part is the submission, status, list, cancellation and deletion of apps, and waiting
for a change.
"""

from __future__ import annotations

import json
import re
import string
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from patience import PATIENCE
from torchx_kit.jobs.submission import submission
from torchx_runner import Runner
from torchx_sched_k8s.cluster import client
from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.cluster.errors import ApiError, NoClusterError, refusal
from torchx_sched_k8s.cluster.kueue import workloads_of
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import AppDef, AppState, Role
from torchx_specs.errors import BackendError, RequestError

# These names stand for classes of conftest.py, which tests cannot import.
ApiDouble = Any
Request = Any


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return the Status object with which an API server refuses a request."""
    return {"kind": "Status", "message": message, "reason": reason, "code": code}


JOBS = "/namespaces/team/jobs"
PODS = "/namespaces/team/pods"
EVENTS = "/namespaces/team/events"
SERVICES = "/namespaces/team/services"


def app(replicas: int = 1, **fields: Any) -> AppDef:
    role = Role("main", "busybox", entrypoint="true", num_replicas=replicas, **fields)
    return AppDef("app", [role])


def created(request: Request) -> dict[str, Any]:
    return {
        **request.body,
        "metadata": {**request.body["metadata"], "uid": f"u-{len(request.path)}"},
    }


def submit(**cfg: Any) -> str:
    scheduler = create_scheduler("test")
    return scheduler.schedule(scheduler.submit_dryrun(app(), {"namespace": "team", **cfg}))


# Tests of errors and of connections.


@pytest.mark.parametrize(
    ("code", "reason", "message", "exit_code", "words"),
    [
        (401, "Unauthorized", "Unauthorized", 3, "has the token expired?"),
        (
            403,
            "Forbidden",
            'jobs.batch is forbidden: User "eva" cannot create resource "jobs"'  # noqa: ISC004
            ' in API group "batch" in the namespace "team"',
            3,
            "RBAC forbids eva to create jobs (API group batch) in namespace team",
        ),
        (
            403,
            "Forbidden",
            'pods "a" is forbidden: exceeded quota: small, requested: cpu=4, used: cpu=1',
            3,
            "exceeded quota: small, requested: cpu=4",
        ),
        (
            403,
            "Forbidden",
            'admission webhook "policy.io" denied the request: no latest tags',
            3,
            'admission webhook "policy.io" denied the request: no latest tags',
        ),
        (404, "NotFound", 'namespaces "team" not found', 2, "namespace 'team' does not exist"),
        (
            422,
            "Invalid",
            "spec.x:\n Invalid value",
            2,
            "request: spec.x: Invalid value",
        ),
        (400, "BadRequest", 'unknown field "spec.y"', 2, 'unknown field "spec.y"'),
        (413, "", "limit is 3145728", 2, "larger than the cluster accepts"),
        (500, "", "etcdserver: request is too large", 2, "larger than the cluster accepts"),
        (503, "", "", 3, "HTTP status 503"),
    ],
)
def test_refusals_become_errors_with_a_reason_and_an_exit_code(
    code: int, reason: str, message: str, exit_code: int, words: str
) -> None:
    raw = json.dumps(status(code, reason, message)).encode() if message else b""
    error = refusal("create the Job a", code, raw, "context 'c'")
    assert error.exit_code == exit_code
    assert words in str(error)
    assert "\n" not in str(error)
    assert isinstance(error, RequestError) == (exit_code == 2)
    assert isinstance(error, BackendError)
    assert error.status == code


def test_a_missing_kubeconfig_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with pytest.raises(NoClusterError, match=r"KUBECONFIG names .*none, which does not exist"):
        create_scheduler("t").list({"namespace": "team"})
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(NoClusterError, match="no cluster is configured") as caught:
        create_scheduler("t").list({"namespace": "team"})
    assert caught.value.exit_code == 3
    (tmp_path / "broken").write_text("{{{")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "broken"))
    with pytest.raises(NoClusterError, match="broken"):
        create_scheduler("t").list({"namespace": "team"})


def test_an_unreadable_kubeconfig_is_not_retried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    pauses: list[float] = []
    with pytest.raises(NoClusterError, match=f"kubeconfig {tmp_path}: IsADirectoryError"):
        Cluster(sleep=pauses.append).get("/version", "read the version")
    assert pauses == []


def test_the_current_context_is_used(
    api: ApiDouble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import yaml

    config = yaml.safe_load(api.kubeconfig.read_text())
    config["current-context"] = "gone"
    api.kubeconfig.write_text(yaml.safe_dump(config))
    with pytest.raises(NoClusterError, match="current context 'gone' does not exist"):
        create_scheduler("t").list()
    del config["current-context"]
    api.kubeconfig.write_text(yaml.safe_dump(config))
    with pytest.raises(NoClusterError, match=r"no current context; set .*contexts: double, other"):
        create_scheduler("t").list()
    with pytest.raises(RequestError, match="did you mean 'other'"):
        create_scheduler("t").list({"context": "othe"})
    found = "/namespaces/default/jobs"
    api.answer("GET", found, {"items": []})
    assert create_scheduler("t").list({"context": "other"}) == []
    assert api.requests[0].path.endswith(found)
    # KUBECONFIG may name several files, one of which does not exist
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{api.kubeconfig}")
    assert create_scheduler("t").list({"context": "other"}) == []


@pytest.mark.parametrize(
    ("program", "words"),
    [("no-such-program", "No such file"), ("echo", "[Ee]xpect"), ("false", "returned 1")],
)
def test_a_credential_program_that_fails_is_an_error(
    api: ApiDouble, capfd: pytest.CaptureFixture[str], program: str, words: str
) -> None:
    import yaml

    config = yaml.safe_load(api.kubeconfig.read_text())
    login = {"apiVersion": "client.authentication.k8s.io/v1", "command": program}
    config["users"][0]["user"] = {"exec": {**login, "interactiveMode": "Never"}}
    api.kubeconfig.write_text(yaml.safe_dump(config))
    with pytest.raises(NoClusterError, match=f"cannot get credentials: .*{words}") as caught:
        create_scheduler("t").list()
    assert "\n" not in str(caught.value)
    assert api.requests == []
    assert capfd.readouterr().err == ""


def test_refused_credentials_are_named(api: ApiDouble) -> None:
    api.answer("GET", JOBS, (401, status(401, "Unauthorized", "Unauthorized")))
    with pytest.raises(ApiError, match=f"credentials of context 'double' of {api.kubeconfig} "):
        Cluster().get(f"/apis/batch/v1{JOBS}", "list")
    with pytest.raises(ApiError, match="credentials of context 'other' of"):
        Cluster(None, "other").get(f"/apis/batch/v1{JOBS}", "list")


def test_unverified_tls_does_not_warn_at_each_request(
    api: ApiDouble, recwarn: pytest.WarningsRecorder
) -> None:
    import yaml
    from urllib3.exceptions import InsecureRequestWarning

    config = yaml.safe_load(api.kubeconfig.read_text())
    verified = {"server": "https://verified.example:6443"}
    unverified = {"server": "https://un.example:6443", "insecure-skip-tls-verify": True}
    for cluster in (verified, unverified):
        config["clusters"][0]["cluster"] = cluster
        api.kubeconfig.write_text(yaml.safe_dump(config))
        assert Cluster().client
    warnings.simplefilter("always", append=True)
    for host in ("verified.example", "un.example", "un.example.com"):
        text = f"Unverified HTTPS request is being made to host '{host}'. See: ..."
        warnings.warn(text, InsecureRequestWarning, stacklevel=1)
    told = [str(one.message) for one in recwarn if one.category is InsecureRequestWarning]
    assert ["verified.example'" in one or "un.example.com'" in one for one in told] == [True, True]


def test_an_unknown_context_is_an_error(api: ApiDouble) -> None:
    with pytest.raises(RequestError, match=r"did you mean 'other'.*contexts: double, other"):
        submit(context="othe")
    assert api.requests == []


def test_list_and_submit_use_the_same_namespace(api: ApiDouble) -> None:
    scheduler = create_scheduler("t")
    api.answer("GET", "/namespaces/team/jobs", {"items": []})
    assert scheduler.list() == []
    listed = {request.path.partition("/namespaces/")[2].split("/")[0] for request in api.requests}
    role = Role("main", "busybox:1", entrypoint="true")
    request = scheduler.submit_dryrun(AppDef("app", [role]), {}).request
    assert listed - {""} == {request.namespace} == {"team"}
    assert request.objects[0]["metadata"]["namespace"] == "team"
    # the context `other` names no namespace
    for cfg in ({"context": "other"}, {"namespace": "default"}):
        assert scheduler.submit_dryrun(AppDef("app", [role]), cfg).request.namespace == "default"


def test_handles_carry_the_context(api: ApiDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    config = yaml.safe_load(api.kubeconfig.read_text())
    name = "arn:aws:eks:us-east-1:1:cluster/main@a b"
    config["contexts"].append({"name": name, "context": {"cluster": "c", "user": "second"}})
    config["users"].append({"name": "second", "user": {"token": "of-the-second"}})
    api.kubeconfig.write_text(yaml.safe_dump(config))
    api.answer("POST", "", lambda request: (201, request.body))
    api.answer("PATCH", "-main", {})
    api.answer("GET", "/v1/namespaces/default/jobs", {"items": []})
    role = Role("main", "busybox:1", entrypoint="true")
    app_id = create_scheduler("t").submit(AppDef("app", [role]), {"context": name})
    assert set(app_id) <= set(string.ascii_letters + string.digits + ":-@%.")
    del api.requests[:]
    other = create_scheduler("t")  # like another process, it knows only the handle
    assert other.describe(app_id) is None
    assert {request.token for request in api.requests} == {"Bearer of-the-second"}
    other.describe(app_id.partition("@")[0])
    assert api.requests[-1].token == "Bearer first"
    job = {"metadata": {"name": "app-1-main", "labels": {"app.kubernetes.io/instance": "app-1"}}}
    job["spec"] = {"template": {"spec": {}}}
    api.answer("GET", "/v1/namespaces/default/jobs", {"items": [job]})
    (listed,) = create_scheduler("t").list({"context": name})
    assert listed.app_id.partition("@")[2] == app_id.partition("@")[2]
    assert listed.app_handle == f"kubernetes://t/{listed.app_id}"


def test_another_version_of_kueue_is_found(api: ApiDouble) -> None:
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
    workload = {"metadata": {"name": "w"}}
    api.answer("GET", path, {"items": [workload]})
    job = {"metadata": {"name": "app-x", "uid": "u"}}
    assert workloads_of(Cluster(), "team", job, "list") == {f"{path}/w": workload}
    assert [request.path.split("/")[3] for request in api.requests] == ["v1beta1", "v1beta2"]


def test_a_busy_cluster_is_retried(api: ApiDouble) -> None:
    api.answer("GET", JOBS, (503, b"busy"), (429, status(429, "", "wait")), None, {"items": []})
    pauses: list[float] = []
    cluster = Cluster(sleep=pauses.append)
    assert cluster.get(f"/apis/batch/v1{JOBS}", "list") == {"items": []}
    assert pauses == [0.2, 0.4, 0.8]


def test_retries_end_after_the_limit(api: ApiDouble) -> None:
    api.answer("GET", JOBS, (503, status(503, "", "shutting down")))
    pauses: list[float] = []
    clock = lambda: sum(pauses)  # noqa: E731
    with pytest.raises(ApiError, match="cannot list: shutting down"):
        Cluster(sleep=pauses.append, clock=clock).get(f"/apis/batch/v1{JOBS}", "list")
    assert 117 < sum(pauses) <= 120
    pauses.clear()
    api.close()
    with pytest.raises(NoClusterError, match=r"no answer from the cluster at http://127.*refused"):
        Cluster(sleep=pauses.append, clock=clock).get(f"/apis/batch/v1{JOBS}", "list")
    assert 117 < sum(pauses) <= 120


@pytest.mark.parametrize(
    "answer", [[], 1, "text", None, {"items": 5}, {"items": [1, [2]]}, {"items": [{"metadata": 3}]}]
)
def test_json_that_is_no_object_of_the_api_is_one_line(api: ApiDouble, answer: Any) -> None:
    api.answer("GET", JOBS, (200, json.dumps(answer).encode()))
    with pytest.raises(NoClusterError) as caught:
        create_scheduler("test").list({"namespace": "team"})
    assert "is not an object of the Kubernetes API; check the address" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_bytes_that_are_not_http_are_shortened(api: ApiDouble) -> None:
    error = ConnectionError("BadStatusLine" + "x" * 5000)
    text = str(Cluster().lost_connection("list apps", error))
    assert len(text) < 500
    assert text.endswith("...)")


def test_a_rotated_token_is_read_again(api: ApiDouble) -> None:
    def only_second(request: Request) -> tuple[int, Any]:
        if request.token == "Bearer second":
            return 200, {"items": []}
        return 401, status(401, "Unauthorized", "Unauthorized")

    api.answer("GET", JOBS, only_second)
    cluster = Cluster()
    assert cluster.client
    api.write_kubeconfig("second")
    assert cluster.get(f"/apis/batch/v1{JOBS}", "list") == {"items": []}
    api.write_kubeconfig("third")
    with pytest.raises(ApiError, match="has the token expired"):
        Cluster().get(f"/apis/batch/v1{JOBS}", "list")


def test_concurrent_requests_read_a_rotated_token_once(
    api: ApiDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchx_sched_k8s.cluster import kubeconfig

    connect, made = kubeconfig.connect, []
    everybody = threading.Barrier(16)

    def counted(context: str | None) -> Any:
        made.append(context)
        time.sleep(0.05)
        return connect(context)

    def only_second(request: Request) -> tuple[int, Any]:
        if request.token == "Bearer second":
            return 200, {"items": []}
        everybody.wait(PATIENCE)
        return 401, status(401, "Unauthorized", "Unauthorized")

    monkeypatch.setattr(kubeconfig, "connect", counted)
    api.answer("GET", JOBS, only_second)
    cluster = Cluster()
    assert cluster.client
    api.write_kubeconfig("second")
    with ThreadPoolExecutor(16) as pool:
        answers = [pool.submit(cluster.get, f"/apis/batch/v1{JOBS}", "list") for _ in range(16)]
        assert [answer.result() for answer in answers] == [{"items": []}] * 16
    assert len(made) == 2


# Tests of submissions.


def test_all_objects_are_checked_before_the_first_is_created(api: ApiDouble) -> None:
    api.answer("POST", JOBS, created)
    api.answer("POST", SERVICES, created)
    api.answer("PATCH", "-main", {})
    app_id = submit()
    assert re.match(r"team:app-[a-z0-9]+\Z", app_id)
    posts = [request for request in api.requests if request.method == "POST"]
    kinds = [(request.body["kind"], request.query.get("dryRun")) for request in posts]
    assert kinds == [("Job", "All"), ("Service", "All"), ("Job", None), ("Service", None)]
    assert all(request.query["fieldValidation"] == "Strict" for request in posts)
    (owner,) = posts[-1].body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Job", posts[0].body["metadata"]["name"])
    api.requests.clear()
    submit(validate_spec=False)
    assert [request.query.get("dryRun") for request in api.requests] == [None] * 4


def test_a_job_starts_when_all_objects_exist(api: ApiDouble) -> None:
    api.answer("POST", JOBS, created)
    api.answer("POST", SERVICES, created)
    api.answer("PATCH", "-main", {})
    submit(validate_spec=False)
    methods = [request.method for request in api.requests]
    assert methods == ["GET", "POST", "POST", "PATCH"]
    assert (
        api.requests[0]
        .query["labelSelector"]
        .endswith("torchx.pytorch.org/unfinished,torchx.pytorch.org/app-name=app")
    )
    job, patch = api.requests[1].body, api.requests[3].body
    assert job["spec"]["suspend"] is True
    assert job["metadata"]["labels"]["torchx.pytorch.org/unfinished"] == "true"
    assert patch == {
        "spec": {"suspend": False},
        "metadata": {
            "labels": {"torchx.pytorch.org/unfinished": None},
            "annotations": {"torchx.pytorch.org/submission": None},
        },
    }


def test_an_object_that_a_program_adds_belongs_to_the_job(api: ApiDouble) -> None:
    for path in (JOBS, SERVICES, "/apis/policy/v1/namespaces/team/poddisruptionbudgets"):
        api.answer("POST", path, created)
    api.answer("PATCH", "-main", {})
    scheduler = create_scheduler("test")
    info = scheduler.submit_dryrun(app(), {"namespace": "team"})
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
    info.request.resource["items"].append(budget)
    scheduler.schedule(info)
    (made,) = [
        one.body for one in api.requests if "policy" in one.path and "dryRun" not in one.query
    ]
    assert [owner["kind"] for owner in made["metadata"]["ownerReferences"]] == ["Job"]


def test_a_failed_submission_deletes_its_objects(api: ApiDouble) -> None:
    api.answer("POST", JOBS, created)
    api.answer("POST", SERVICES, (403, status(403, "Forbidden", "exceeded quota: services")))
    announced: list[str] = []
    with submission() as current:
        current.record = lambda app_id: announced.append(app_id) or app_id
        with pytest.raises(ApiError, match="exceeded quota: services"):
            submit(validate_spec=False)
    assert [app_id.rpartition("-")[0] for app_id in announced] == ["team:app", ""]  # withdrawn
    made = [a.body["metadata"]["name"] for a in api.requests if a.method == "POST"]
    gone = [a.path.rpartition("/")[2] for a in api.requests if a.method == "DELETE"]
    assert gone == made


def test_objects_that_cannot_be_deleted_are_logged(
    api: ApiDouble, caplog: pytest.LogCaptureFixture
) -> None:
    api.answer("POST", JOBS, created)
    api.answer("POST", SERVICES, (403, status(403, "Forbidden", "no more services")))
    api.answer("DELETE", "", (403, status(403, "Forbidden", "no deleting")))
    with submission() as current:
        current.record = str
        with pytest.raises(ApiError, match="no more services"):
            submit(validate_spec=False)
        assert current.handle  # the app may run
    assert re.search(
        r"left in the cluster: cannot delete the Job app-\w+-main: no deleting", caplog.text
    )


def test_a_webhook_without_dry_runs_does_not_fail_the_check(api: ApiDouble) -> None:
    def hook(request: Request) -> Any:
        if request.query.get("dryRun"):
            words = 'admission webhook "old.example.com" does not support dry run'
            return 400, status(400, "BadRequest", words)
        return created(request)

    api.answer("POST", JOBS, hook)
    api.answer("POST", SERVICES, created)
    api.answer("PATCH", "-main", {})
    assert submit()
    hook_words = 'admission webhook "old.example.com" denied the request: no'
    api.answer("POST", JOBS, lambda a: (403, status(403, "Forbidden", hook_words)))
    with pytest.raises(ApiError, match="denied the request: no"):
        submit()


def test_a_conflicting_patch_is_retried(api: ApiDouble) -> None:
    words = "the object has been modified; please apply your changes to the latest version"
    api.answer("PATCH", JOBS, (409, status(409, "Conflict", words)), {"kind": "Job"})
    assert Cluster().patch(f"/apis/batch/v1{JOBS}", {}, "cancel") == {"kind": "Job"}


def test_a_lost_response_does_not_create_a_second_job(api: ApiDouble) -> None:
    made: list[Any] = []

    def make(request: Request) -> Any:
        if made:
            return 409, status(409, "AlreadyExists", "already exists")
        made.append(created(request))
        return None

    api.answer("POST", JOBS, make)
    api.answer("POST", SERVICES, created)
    api.answer("GET", "-main", lambda request: made[0])
    api.answer("PATCH", "-main", {})
    submit(validate_spec=False)
    service = next(one for one in api.requests if one.path.endswith(SERVICES))
    (owner,) = service.body["metadata"]["ownerReferences"]
    assert owner["uid"] == made[0]["metadata"]["uid"]


@pytest.mark.parametrize(
    ("cfg", "words"), [({"queue": "q"}, "Volcano"), ({"job_api": "jobset"}, "JobSet")]
)
def test_a_missing_api_is_named_with_a_remedy(
    api: ApiDouble, cfg: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError, match=f"{words} is not installed.*job_api=batch"):
        submit(**cfg)


# Tests of the status and of lists.


def job(name: str = "app-x-main", **words: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "metadata": {
            "name": name,
            "uid": "u1",
            "labels": {
                "app.kubernetes.io/instance": "app-x",
                "torchx.pytorch.org/role-index": "0",
                "torchx.pytorch.org/role-name": "main",
            },
            "annotations": {},
        },
        "spec": {"completions": 2, "parallelism": 2, "template": {"spec": {"containers": [{}]}}},
        "status": {"active": 2},
    }
    found["status"].update(words.pop("status", {}))
    found["metadata"]["annotations"].update(words.pop("annotations", {}))
    found["metadata"]["labels"].update(words.pop("labels", {}))
    found["spec"].update(words)
    return found


def pod(index: int, phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"app-x-main-{index}-abcde",
            "labels": {
                "torchx.pytorch.org/role-index": "0",
                "batch.kubernetes.io/job-completion-index": str(index),
            },
        },
        "spec": {"hostname": f"app-x-main-{index}", "subdomain": "app-x", "containers": [{}]},
        "status": {"phase": phase, **status},
    }


def test_describe_takes_two_requests(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [job()]})
    api.answer("GET", PODS, {"metadata": {}, "items": [pod(0), pod(1)]})
    found = create_scheduler("t").describe("team:app-x")
    assert found is not None
    assert found.state == AppState.RUNNING
    (role,) = found.roles_statuses
    assert [(r.id, r.state, r.hostname) for r in role.replicas] == [
        (0, AppState.RUNNING, "app-x-main-0.app-x"),
        (1, AppState.RUNNING, "app-x-main-1.app-x"),
    ]
    assert len(api.requests) == 2


def test_an_event_says_why_no_pod_can_be_created(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [job(status={"active": 0})]})
    api.answer("GET", PODS, {"items": []})
    old = {"type": "Warning", "reason": "Old", "lastTimestamp": "2024-01-01T00:00:00Z"}
    new = {
        "type": "Warning",
        "reason": "FailedCreate",
        "message": "exceeded quota",
        "lastTimestamp": "2024-01-02T00:00:00Z",
    }
    api.answer("GET", EVENTS, {"items": [new, old]})
    found = create_scheduler("t").describe("team:app-x")
    assert found is not None
    assert (found.state, found.msg) == (
        AppState.SUBMITTED,
        (
            "main/0: FailedCreate: exceeded quota: the quota of the namespace or queue is used up;"
            " wait for other jobs, or request less"
        ),
    )
    assert "involvedObject.name=app-x-main," in api.requests[-1].query["fieldSelector"]
    assert len(api.requests) == 3


def test_describe_shows_why_kueue_holds_an_app(api: ApiDouble) -> None:
    queued = job(labels={"kueue.x-k8s.io/queue-name": "q"}, suspend=True, status={"active": 0})
    api.answer("GET", JOBS, {"items": [queued]})
    api.answer("GET", PODS, {"items": []})
    scheduler = create_scheduler("t")
    found = scheduler.describe("team:app-x")
    assert found is not None
    assert found.state == AppState.PENDING
    assert "waiting in Kueue's queue q, but Kueue is not installed" in found.msg
    api.answer("GET", "/workloads", (403, status(403, "Forbidden", "no")))
    found = scheduler.describe("team:app-x")
    assert found is not None
    assert found.msg == "waiting in Kueue's queue q"
    condition = {"type": "QuotaReserved", "status": "False", "message": "insufficient quota"}
    workload = {"metadata": {"name": "w"}, "status": {"conditions": [condition]}}
    api.answer("GET", "/workloads", {"items": [workload]})
    api.requests.clear()
    found = scheduler.describe("team:app-x")
    assert found is not None
    assert found.msg == "waiting in Kueue's queue q: insufficient quota"
    assert len(api.requests) == 3


@pytest.mark.parametrize("items", [[], None])
def test_a_missing_app_has_no_description(api: ApiDouble, items: Any) -> None:
    api.answer("GET", JOBS, {"items": items})
    scheduler = create_scheduler("t")
    assert scheduler.describe("team:app-x") is None
    assert not scheduler.exists("team:app-x")
    assert scheduler.describe_native("team:app-x") is None
    scheduler.cancel("team:app-x")
    scheduler.delete("team:app-x")
    assert {request.method for request in api.requests} == {"GET"}


def test_list_skips_apis_that_are_forbidden(api: ApiDouble) -> None:
    api.answer(
        "GET",
        JOBS,
        lambda a: (
            (403, status(403, "Forbidden", "no")) if "volcano" in a.path else {"items": [job()]}
        ),
    )
    assert [found.app_id for found in create_scheduler("t").list({"namespace": "team"})] == [
        "team:app-x"
    ]


def test_a_list_that_expires_starts_again_without_repeating_items(api: ApiDouble) -> None:
    first = {"metadata": {"continue": "more"}, "items": [job("a"), job("b")]}
    for one, name in zip(first["items"], "ab", strict=True):  # type: ignore[arg-type]
        one["metadata"]["uid"] = name  # type: ignore[index]
    second = {"metadata": {}, "items": [{**job("c"), "metadata": {"name": "c", "uid": "c"}}]}
    expired = (410, status(410, "Expired", "too old"))
    api.answer("GET", JOBS, first, expired, first, second)
    found = list(Cluster().list_items(f"/apis/batch/v1{JOBS}", "list"))
    assert [one["metadata"]["name"] for one in found] == ["a", "b", "c"]
    assert [request.query.get("continue") for request in api.requests] == [
        None,
        "more",
        None,
        "more",
    ]


def test_an_incomplete_list_is_requested_again(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [job()]})
    whole = json.dumps({"items": [pod(0), pod(1)]}).encode()
    api.answer("GET", PODS, (200, whole[:-20]), (200, whole))
    found = create_scheduler("t").describe("team:app-x")
    assert found is not None
    assert len(found.roles_statuses[0].replicas) == 2


# Tests of cancellation and deletion.


def test_cancel_annotates_and_suspends_the_job(api: ApiDouble) -> None:
    done = job("app-x-done", status={"conditions": [{"type": "Complete", "status": "True"}]})
    api.answer("GET", JOBS, {"items": [job(), done]})
    api.answer("PATCH", "/app-x-main", {})
    create_scheduler("t").cancel("team:app-x")
    find, patch = api.requests
    assert (find.method, patch.method) == ("GET", "PATCH")
    assert patch.body["spec"] == {"suspend": True}
    assert list(patch.body["metadata"]["annotations"]) == ["torchx.pytorch.org/cancelled"]


def test_cancel_deactivates_the_workload_of_kueue(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [job(labels={"kueue.x-k8s.io/queue-name": "q"})]})
    api.answer("GET", "/workloads", {"items": [{"metadata": {"name": "w"}}]})
    api.answer("PATCH", "", {})
    create_scheduler("t").cancel("team:app-x")
    patches = [(a.path.rpartition("/")[2], a.body) for a in api.requests if a.method == "PATCH"]
    assert [name for name, _ in patches] == ["app-x-main", "w"]
    assert "spec" not in patches[0][1]
    assert patches[1][1] == {"spec": {"active": False}}
    (request,) = [a for a in api.requests if a.path.endswith("/workloads")]
    assert request.query["labelSelector"] == "kueue.x-k8s.io/job-uid=u1"


def test_a_runner_queries_an_app_once_to_end_it(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [job()]})
    api.answer("PATCH", "/app-x-main", {})
    api.answer("DELETE", "/app-x-main", {})
    with Runner("t", {"kubernetes": create_scheduler}) as runner:
        for call in (runner.exists, runner.cancel, runner.delete):
            call("kubernetes://t/team:app-x")
    methods = [request.method for request in api.requests]
    assert methods == ["GET", "GET", "PATCH", "GET", "DELETE", "DELETE"]


def test_delete_removes_jobs_and_service(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [job()]})
    api.answer("DELETE", "/app-x-main", {})
    create_scheduler("t").delete("team:app-x")
    _, *deleted = api.requests
    assert {a.method for a in deleted} == {"DELETE"}
    assert [a.path.rpartition("namespaces/team/")[2] for a in deleted] == [
        "jobs/app-x-main",
        "services/app-x",
    ]
    assert deleted[0].body["propagationPolicy"] == "Background"


# Tests of waiting, and of retries.


def pauses_of(scheduler: KubernetesScheduler) -> list[float]:
    """Let the requests of a scheduler pause no longer; return their later pauses, in seconds."""
    pauses: list[float] = []
    scheduler._cluster_of(None).sleep = pauses.append
    return pauses


def test_wait_ends_with_a_change(api: ApiDouble) -> None:
    api.answer("GET", JOBS, {"items": [job()]}, (200, b'{"type": "MODIFIED"}\n'))
    api.answer("GET", PODS, {"items": [pod(0), pod(1)]})
    scheduler = create_scheduler("t")
    scheduler.describe("team:app-x")
    pauses = pauses_of(scheduler)
    scheduler.wait("team:app-x", 60)
    assert pauses == [0.05]
    assert api.requests[-1].query["watch"] == "true"


@pytest.mark.parametrize("end", ["Complete", "Failed"])
@pytest.mark.parametrize("type_", ["MODIFIED", "DELETED"])
def test_wait_knows_the_end_of_an_app_that_its_time_to_live_deletes(
    api: ApiDouble, end: str, type_: str
) -> None:
    why = {"type": end, "status": "True", "reason": "DeadlineExceeded", "message": "late"}
    first, last = job(), job()
    first["metadata"]["resourceVersion"], last["metadata"]["resourceVersion"] = "7", "9"
    change = event(type_, **{**last, "status": {"conditions": [why]}})
    api.answer("GET", JOBS, {"items": [first]}, (200, change), {"items": []})
    api.answer("GET", PODS, {"items": [pod(0), pod(1)]}, {"items": []})
    scheduler = create_scheduler("t")
    runner = Runner("t", {"kubernetes": lambda *_, **__: scheduler})
    pauses_of(scheduler)
    status = runner.wait("kubernetes://t/team:app-x", wait_interval=0)
    assert status is not None
    assert status.state == (AppState.SUCCEEDED if end == "Complete" else AppState.FAILED)
    assert "late" in status.msg or end == "Complete"
    scheduler.delete("team:app-x")
    assert scheduler.describe("team:app-x") is None


def event(type_: str, **words: Any) -> bytes:
    return json.dumps({"type": type_, "object": words}).encode() + b"\n"


@pytest.mark.parametrize("replicas", [2, 200])
def test_wait_skips_the_counts_of_an_app_with_many_replicas(api: ApiDouble, replicas: int) -> None:
    """A poll lists all pods, so an app of 200 short replicas is not polled after each of them."""

    def at(version: int, **status: Any) -> dict[str, Any]:
        found = job()
        found["metadata"]["resourceVersion"] = str(version)
        found["spec"].update(completions=replicas)
        found["status"] = {"startTime": "2026-01-02T03:00:00Z", **status}
        return found

    counts = [event("MODIFIED", **at(8 + k, ready=1, succeeded=k)) for k in range(1, 9)]
    end = event("MODIFIED", **at(20, conditions=[{"type": "Complete", "status": "True"}]))
    first = {"items": [at(7, ready=1)]}
    api.answer("GET", JOBS, first, (200, counts[0]), (200, b"".join([*counts[1:], end])))
    api.answer("GET", PODS, {"items": [pod(0), pod(1)]})
    scheduler = create_scheduler("t")
    scheduler.describe("team:app-x")
    assert pauses_of(scheduler) == []
    before = len(api.requests)
    scheduler.wait("team:app-x", 60)
    watches = api.requests[before:]
    assert len(watches) == (1 if replicas == 2 else 2)
    assert [one.query["resourceVersion"] for one in watches] == ["7", "9"][: len(watches)]
    assert ("team:app-x" in scheduler._ended) is (replicas == 200)


@pytest.mark.parametrize("how", ["status", "event"])
def test_wait_watches_a_job_whose_version_has_expired(api: ApiDouble, how: str) -> None:
    """If the resource version has expired, a second watch starts with the present state."""
    found = job()
    found["metadata"]["resourceVersion"] = "7"
    expired = (410, b"") if how == "status" else (200, event("ERROR", code=410))
    same = event("ADDED", metadata={"name": "app-x-main", "resourceVersion": "7"})
    later = event("MODIFIED", metadata={"name": "app-x-main", "resourceVersion": "12"})
    api.answer("GET", JOBS, {"items": [found]}, expired, (200, same), expired, (200, same + later))
    api.answer("GET", PODS, {"items": [pod(0), pod(1)]})
    scheduler = create_scheduler("t")
    scheduler.describe("team:app-x")
    pauses = pauses_of(scheduler)
    for pause in (0.5, 0.05):  # the second watch reports no change, and then a change
        scheduler.wait("team:app-x", 60)
        assert pauses.pop() == pause
        assert [request.query["resourceVersion"] for request in api.requests[-2:]] == ["7", "0"]


@pytest.mark.parametrize(
    ("answer", "pause"),
    [
        ((200, b""), 0.5),
        ((200, b"<html>\n"), 0.5),
        (None, 0.5),
        ((403, b""), 2.0),
        ((410, b""), 2.0),
    ],
)
def test_wait_pauses_if_a_watch_fails(api: ApiDouble, answer: Any, pause: float) -> None:
    api.answer("GET", JOBS, {"items": [job()]}, answer)
    api.answer("GET", PODS, {"items": [pod(0), pod(1)]})
    scheduler = create_scheduler("t")
    pauses = pauses_of(scheduler)
    scheduler.wait("team:app-x", 60)  # an app that was not described before
    scheduler.describe("team:app-x")
    scheduler.wait("team:app-x", 60)
    assert pauses == [0.5, pause]


def test_inside_a_pod_the_cluster_is_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torchx_sched_k8s.cluster import kubeconfig

    monkeypatch.setattr(kubeconfig, "_SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("HOME", str(tmp_path))
    # without a token, the program looks for a kubeconfig
    with pytest.raises(NoClusterError, match="no cluster is configured"):
        kubeconfig.connect()
    (tmp_path / "token").write_text("t")
    with pytest.raises(NoClusterError, match="in-cluster configuration"):
        kubeconfig.connect()
    assert kubeconfig.default_namespace(None) == "default"
    (tmp_path / "namespace").write_text("of-the-pod")
    assert kubeconfig.default_namespace(None) == "of-the-pod"


def test_the_first_request_is_retried_as_long_as_later_ones(
    api: ApiDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    assert cluster.retry_seconds == 120
    api.answer("GET", JOBS, {"items": []})
    cluster.get(f"/apis/batch/v1{JOBS}", "look")
    assert cluster.retry_seconds == 120
    monkeypatch.setenv("TORCHX_KUBERNETES_RETRY_SECONDS", "5.5")
    assert cluster.retry_seconds == 5.5
    cluster.patience = 9
    assert cluster.retry_seconds == 9


def test_the_option_retry_seconds_limits_retries(api: ApiDouble) -> None:
    scheduler = create_scheduler("t")
    api.answer("GET", JOBS, (503, status(503, "", "restarting")))
    with pytest.raises(ApiError, match="restarting"):
        scheduler.list({"namespace": "team", "retry_seconds": 0})
    assert [request.path for request in api.requests].count(f"/apis/batch/v1{JOBS}") <= 1


def test_an_invalid_limit_of_retries_is_an_error(
    api: ApiDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHX_KUBERNETES_RETRY_SECONDS", "2 min")
    with pytest.raises(RequestError, match="='2 min' is not a number of seconds, such as 120"):
        create_scheduler("t").list({"namespace": "team"})


def test_threads_share_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    both_create = threading.Barrier(2)

    def create(*_: Any) -> object:
        both_create.wait(PATIENCE)
        return object()

    monkeypatch.setattr(client, "Cluster", create)
    scheduler = create_scheduler("test")
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(scheduler._cluster_of, None) for _ in range(2)]
        assert len({future.result() for future in found}) == 1
