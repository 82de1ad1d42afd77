"""Tests of the supervisor of plain Jobs, which restarts and ends an app as a whole."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from double_client import Client
from k8s_apps import PYTHON, UNTIL_GO, app, go, running, shell
from k8s_double.handle import Double
from k8s_double.identity import ACCOUNT, ACCOUNT_VARIABLE
from waiting import described

from patience import wait_for
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import AppState, Role
from torchx_specs.errors import BackendError
from torchx_specs.overlays import set_overlay

#: Value of the variable ``ATTEMPT``: the number of restarts, empty in the first attempt.
ATTEMPT = "[FIELD_PATH]metadata.annotations['torchx.pytorch.org/restarts']"


def role(script: str, name: str, **fields: Any) -> Role:
    """Return a role whose script reads the number of restarts from ``$ATTEMPT``."""
    return shell(script, name, env={"ATTEMPT": ATTEMPT}, **fields)


def patient(script: str, name: str, **fields: Any) -> Role:
    """Return a role whose pods take three seconds to end."""
    found = role(f"trap '' TERM; {script}", name, **fields)
    set_overlay(found, "kubernetes", "V1Pod", {"spec": {"terminationGracePeriodSeconds": 3}})
    return found


#: Runs until the supervisor ends it in the first attempt, and ends at once in later attempts.
ENDS_LATER = '[ -n "$ATTEMPT" ] || exec sleep 86400'
FAILS_ONCE = 'echo "try $ATTEMPT at $TORCHX_RANK0_HOST"; [ -n "$ATTEMPT" ] || exit 3'


class _Anywhere:
    """Tests that run on every cluster and on the double."""

    @pytest.fixture
    def cfg(self, python_image: str, namespace: str) -> dict[str, Any]:
        return {
            "retry_policy": "APPLICATION",
            "restarts_image": python_image,
            "image_pull_policy": "IfNotPresent",
            "namespace": namespace,
        }

    @pytest.fixture
    def submit(
        self, scheduler: KubernetesScheduler, cfg: dict[str, Any]
    ) -> Iterator[Callable[..., str]]:
        ids = []

        def submit(*roles: Role, **more: Any) -> str:
            ids.append(scheduler.submit(app(*roles), {**cfg, **more}))
            return ids[-1]

        yield submit
        for app_id in ids:
            scheduler.delete(app_id)

    def test_every_replica_of_every_role_runs_again(
        self, scheduler: KubernetesScheduler, submit: Callable[..., str]
    ) -> None:
        app_id = submit(
            role(FAILS_ONCE, "trainer", num_replicas=2, max_retries=2),
            # this role runs again although it may already have succeeded
            role('echo "try $ATTEMPT at $TORCHX_RANK0_HOST"', "reader", num_replicas=2),
        )
        found = described(scheduler, app_id)
        assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
        name = app_id.partition(":")[2]
        for which in ("trainer", "reader"):
            for k in range(2):
                (line,) = scheduler.log_iter(app_id, which, k)
                assert line == f"try 1 at {name}-trainer-0.{name}\n"

    def test_the_app_fails_when_no_restart_is_left(
        self, scheduler: KubernetesScheduler, submit: Callable[..., str]
    ) -> None:
        app_id = submit(
            role("sleep 1; exit 3", "trainer", max_retries=1), role("exec sleep 86400", "reader")
        )
        found = described(scheduler, app_id)
        assert (found.state, found.num_restarts) == (AppState.FAILED, 1)
        assert "role 'trainer' failed after 1 restart" in found.msg
        assert "trainer/0: exit code 3" in found.msg
        # a pod that is being deleted may have its own reason
        because = "ended because role 'trainer' failed after"
        ended = described(
            scheduler,
            app_id,
            lambda d: d.roles_statuses[1].replicas[0].reason.startswith(because),
        )
        assert [s.role for s in ended.roles_statuses] == ["trainer", "reader"]
        assert ended.roles_statuses[1].replicas[0].state == AppState.FAILED
        assert [a.state for a in scheduler.list({"namespace": app_id.partition(":")[0]})][:1] == [
            AppState.FAILED
        ]

    def test_a_failed_role_ends_the_others_without_an_option(
        self, scheduler: KubernetesScheduler, submit: Callable[..., str]
    ) -> None:
        app_id = submit(
            role("sleep 1; exit 4", "a", max_retries=1),
            role("exec sleep 86400", "b", num_replicas=2),
            retry_policy=None,
        )
        found = described(scheduler, app_id)
        assert found.state == AppState.FAILED
        because = "ended because role 'a' failed: "
        ended = described(
            scheduler,
            app_id,
            lambda d: all(r.reason.startswith(because) for r in d.roles_statuses[1].replicas),
        )
        assert [r.state for r in ended.roles_statuses[1].replicas] == [AppState.FAILED] * 2
        assert ended.roles_statuses[0].replicas[0].exit_code == 4

    def test_a_follower_continues_after_a_restart(
        self, scheduler: KubernetesScheduler, submit: Callable[..., str]
    ) -> None:
        app_id = submit(
            role(f'echo first; [ -n "$ATTEMPT" ] || {UNTIL_GO}; {FAILS_ONCE}', "a", max_retries=1),
            role(ENDS_LATER, "b"),
        )
        follower = iter(scheduler.log_iter(app_id, "a", should_tail=True))
        lines = [next(follower)]
        go(scheduler, app_id, "a")
        lines += follower
        words = [" ".join(line.split()[:2]) for line in lines]
        assert words == ["first", "try at", "first", "try 1"]


if os.environ.get("KUBECONFIG"):

    class TestRealCluster(_Anywhere):
        @pytest.fixture
        def scheduler(self) -> Iterator[KubernetesScheduler]:
            scheduler = create_scheduler("restarts")
            yield scheduler
            scheduler.close()

else:

    class TestDouble(_Anywhere):
        pass


CFG: dict[str, Any] = {"retry_policy": "APPLICATION", "restarts_image": PYTHON}


def jobs(double: Double) -> dict[str, dict[str, Any]]:
    """Return the Jobs by the names of their roles; the key of the supervisor's Job is empty."""
    found = double.objects("jobs.batch")
    owner = min((one["metadata"]["name"] for one in found), key=len, default="")
    return {one["metadata"]["name"][len(owner) :].lstrip("-"): one for one in found}


def supervisors(double: Double) -> list[dict[str, Any]]:
    """Return the supervisor's running pods that are not being deleted."""
    return [
        pod
        for pod in double.objects("pods")
        if pod["metadata"]["labels"].get("torchx.pytorch.org/part") == "supervisor"
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase") == "Running"
    ]


def restarts(double: Double) -> str:
    """Return the number of restarts in the supervisor's annotations."""
    own = jobs(double)[""]
    return str((own["metadata"].get("annotations") or {}).get("torchx.pytorch.org/restarts", ""))


def kill(double: Double, pod: dict[str, Any]) -> None:
    """End a pod at once, as the loss of its node would."""
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    code, _, _ = Client(str(double.path)).raw("DELETE", path, body)
    assert code == 200


# Tests of objects and rights.


def test_a_replica_has_no_rights(scheduler: KubernetesScheduler, double: Double) -> None:
    code = (
        "import json, os, ssl, urllib.error, urllib.request\n"
        f"folder = os.environ[{ACCOUNT_VARIABLE!r}]\n"
        "token = open(folder + '/token').read()\n"
        "namespace = open(folder + '/namespace').read()\n"
        "where = 'https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}'.format(**os.environ)\n"
        "where += f'/apis/batch/v1/namespaces/{namespace}/jobs'\n"
        "context = ssl.create_default_context(cafile=folder + '/ca.crt')\n"
        "for given in (token, 'other'):\n"
        "    asked = urllib.request.Request(where, headers={'Authorization': 'Bearer ' + given})\n"
        "    try:\n"
        "        urllib.request.urlopen(asked, context=context)\n"
        "    except urllib.error.HTTPError as e:\n"
        "        print(e.code, json.load(e)['message'])\n"
    )
    found = Role("main", PYTHON, entrypoint="python3", args=["-c", code])
    app_id = scheduler.submit(app(found), {})
    assert described(scheduler, app_id).state == AppState.SUCCEEDED
    assert "".join(scheduler.log_iter(app_id, "main")) == (
        '403 jobs.batch is forbidden: User "system:serviceaccount:default:default" cannot list'
        ' resource "jobs" in API group "batch" in the namespace "default"\n'
        "401 Unauthorized\n"
    )


def test_ttl_deletes_the_app(scheduler: KubernetesScheduler, double: Double) -> None:
    cfg = {**CFG, "ttl_seconds": 1}
    app_id = scheduler.submit(app(role("true", "a"), role("true", "b")), cfg)
    wait_for(lambda: scheduler.describe(app_id) is None)
    wait_for(lambda: double.left() == [])


def test_the_printed_dry_run_works_with_kubectl(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    info = scheduler.submit_dryrun(
        app(role(FAILS_ONCE, "a", max_retries=1), role(ENDS_LATER, "b")), CFG
    )
    for document in yaml.safe_load_all(str(info)):
        plural = {"Job": "jobs.batch", "RoleBinding": "rolebindings.rbac.authorization.k8s.io"}
        plural["Role"] = "roles.rbac.authorization.k8s.io"
        key = plural.get(document["kind"], f"{document['kind'].lower()}s")
        double.create(key, "default", document)
    app_id = f"default:{info.request.name}"
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    scheduler.delete(app_id)
    wait_for(lambda: double.left() == [])


# Tests of restarts.


def test_status_during_a_restart(scheduler: KubernetesScheduler, double: Double) -> None:
    app_id = scheduler.submit(
        app(role("exit 3", "a", max_retries=2), patient("sleep 86400 & wait", "b")), CFG
    )
    first = {name: job["metadata"]["uid"] for name, job in jobs(double).items()}
    assert set(first) == {"", "a", "b"}
    seen = described(scheduler, app_id, lambda d: "restart 1 of 2" in d.msg)
    assert seen.state in (AppState.PENDING, AppState.RUNNING)
    assert "role 'a' failed" in seen.msg
    assert "exit code 3" in seen.msg
    wait_for(lambda: restarts(double) == "1")
    seen = described(scheduler, app_id, lambda d: d.num_restarts == 1)
    assert seen.state in (AppState.PENDING, AppState.RUNNING)
    assert [status.role for status in seen.roles_statuses] == ["a", "b"]
    # status shows a role even while its Job does not exist
    wait_for(lambda: not {"a", "b"} & set(jobs(double)) or restarts(double) == "2")
    if restarts(double) == "1":
        seen = described(scheduler, app_id, lambda _: True)
        assert [role.name for role in seen.roles] == ["a", "b"]
        assert seen.state in (AppState.PENDING, AppState.RUNNING)
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.FAILED, 2)
    last = {name: job["metadata"]["uid"] for name, job in jobs(double).items()}
    assert last[""] == first[""]
    assert last["a"] != first["a"]
    assert set(last) == set(first)


def test_an_attempt_starts_after_the_last_pod_has_ended(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path
) -> None:
    # the second attempt fails if a process of the first attempt still runs; no retry is left
    mark = tmp_path / "here"
    app_id = scheduler.submit(
        app(
            role(
                f'[ -n "$ATTEMPT" ] || {{ until [ -e {mark} ]; do sleep 0.1; done; exit 3; }}',
                "a",
                max_retries=1,
            ),
            patient(
                f"[ -z $ATTEMPT ] || ! [ -e {mark} ] || exit 9; touch {mark};"
                f" [ -n \"$ATTEMPT\" ] || {{ trap 'sleep 2; rm {mark}; exit 1' TERM;"
                " while :; do sleep 0.1; done; }",
                "b",
            ),
        ),
        CFG,
    )
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1), found.msg


def test_cancel_during_a_restart(scheduler: KubernetesScheduler, double: Double) -> None:
    app_id = scheduler.submit(
        app(role("exit 3", "a", max_retries=5), patient("sleep 86400 & wait", "b")), CFG
    )
    wait_for(lambda: restarts(double) == "1")
    scheduler.cancel(app_id)
    # new Jobs that already exist are suspended, not deleted
    wait_for(lambda: all(job["spec"]["suspend"] for job in jobs(double).values()))
    wait_for(lambda: double.objects("pods") == [])
    found = described(create_scheduler("another"), app_id)
    assert (found.state, len(found.roles)) == (AppState.CANCELLED, 2)
    assert [a.state for a in scheduler.list()] == [AppState.CANCELLED]
    scheduler.delete(app_id)
    wait_for(lambda: double.left() == [])


def test_delete_during_a_restart(scheduler: KubernetesScheduler, double: Double) -> None:
    app_id = scheduler.submit(
        app(role("exit 3", "a", max_retries=9), role("exec sleep 86400", "b", num_replicas=3)), CFG
    )
    wait_for(lambda: restarts(double) == "1")
    wait_for(
        lambda: any(
            r["method"] == "POST" and r["path"].endswith("jobs") and r["user"].startswith("system:")
            for r in double.requests()
        )
    )
    scheduler.delete(app_id)
    wait_for(lambda: double.left() == [])
    assert scheduler.describe(app_id) is None


@pytest.mark.parametrize("when", ["deleting", "creating"])
def test_a_supervisor_that_dies_is_replaced(
    scheduler: KubernetesScheduler, double: Double, when: str
) -> None:
    if when == "creating":
        # the supervisor can create only the first of the new Jobs
        double.fault(503, method="POST", path="/jobs$", after=1, count=-1)
    other = patient('[ -n "$ATTEMPT" ] || sleep 86400 & wait', "b")
    app_id = scheduler.submit(
        app(role('[ -n "$ATTEMPT" ] || exit 3; echo made', "a", max_retries=3), other), CFG
    )
    wait_for(lambda: restarts(double) == "1")
    if when == "creating":
        wait_for(
            lambda: [r for r in double.requests() if r["method"] == "POST" and r["code"] == 503]
        )
        assert len(jobs(double)) == 2
    (pod,) = supervisors(double)
    kill(double, pod)
    if when == "creating":
        wait_for(lambda: supervisors(double))
        wait_for(lambda: [r for r in double.requests() if r["code"] == 503][3:])
        double.fault_free()
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    assert [p["metadata"]["name"] for p in supervisors(double)] != [pod["metadata"]["name"]]
    assert list(scheduler.log_iter(app_id, "a")) == ["made\n"]


def test_a_restart_of_the_api_server_during_a_restart(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path
) -> None:
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done; {FAILS_ONCE}"
    app_id = scheduler.submit(app(role(waits, "a", max_retries=1), role(ENDS_LATER, "b")), CFG)
    wait_for(lambda: supervisors(double))
    double.restart(3)
    double.fault(500, path="system|jobs", method="GET|PATCH", count=3)
    double.rotate_accounts()
    (tmp_path / "go").touch()
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    assert [line[:5] for line in scheduler.log_iter(app_id, "a")] == ["try 1"]


def test_an_eviction_is_not_a_failure(scheduler: KubernetesScheduler, double: Double) -> None:
    app_id = scheduler.submit(
        app(role(ENDS_LATER, "a", num_replicas=2, max_retries=1), role(ENDS_LATER, "b")),
        CFG,
    )
    described(scheduler, app_id, running)
    wait_for(lambda: supervisors(double))
    replicas = [p for p in double.objects("pods") if "-b-0-" in p["metadata"]["name"]]
    for pod in (*supervisors(double), *replicas):
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/default/pods/{name}/eviction"
        assert Client(str(double.path)).raw("POST", path, body)[0] == 201
    found = described(scheduler, app_id)
    # the app restarts although the evicted replica's role has no retries
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    wait_for(lambda: "Complete" in json.dumps(jobs(double)[""]["status"]))


def test_restarted_jobs_wait_in_kueue(scheduler: KubernetesScheduler, double: Double) -> None:
    double.kueue()
    cfg = {**CFG, "job_api": "batch", "queue": "users"}
    found = role(FAILS_ONCE, "a", max_retries=1, num_replicas=2)
    app_id = scheduler.submit(app(found), cfg)
    stop = threading.Event()

    def admit() -> None:
        while not stop.wait(0.3):
            double.admit()

    thread = threading.Thread(target=admit)
    thread.start()
    try:
        ended = described(scheduler, app_id)
    finally:
        stop.set()
        thread.join()
    assert (ended.state, ended.num_restarts) == (AppState.SUCCEEDED, 1)


# Tests of problems of the supervisor.


def test_a_user_cannot_grant_rights_he_lacks(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    # the check of a binding needs its Role, which a dry run does not create
    double.deny("bind", "roles")
    app_id = scheduler.submit(app(role("true", "a"), role("true", "b")), CFG)
    assert described(scheduler, app_id).state == AppState.SUCCEEDED
    tried = [r for r in double.requests() if r["path"].endswith("rolebindings")]
    assert [(r["code"], "dryRun" in r["query"]) for r in tried] == [(404, True), (201, False)]


RBAC = "rbac.authorization.k8s.io"


def account(double: Double, verbs: list[str]) -> None:
    """Create the account ``robot`` with these verbs on Jobs, and ``get`` on config maps."""
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": verbs},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
    ]
    account_with(double, "robot", rules)


def account_with(double: Double, name: str, rules: list[dict[str, Any]]) -> None:
    """Create a service account, and bind it to a new Role with these rules."""
    head = {"metadata": {"name": name}}
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ServiceAccount", **head}
    double.create("serviceaccounts", "default", body)
    body = {"apiVersion": f"{RBAC}/v1", "kind": "Role", **head, "rules": rules}
    double.create(f"roles.{RBAC}", "default", body)
    body = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        **head,
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
    }
    double.create(f"rolebindings.{RBAC}", "default", body)


def documented_rights() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rules in the README: for every user, and for users of the supervisor."""
    folder = Path(__file__).resolve().parents[2] / "packages" / "torchx-sched-k8s"
    blocks = re.findall(r"```yaml\n(.*?)```", (folder / "README.md").read_text(), re.S)
    every, more = map(yaml.safe_load, blocks)
    return every["rules"], more


@pytest.mark.parametrize("rights", ["all", "without accounts", "less than it gives"])
def test_the_rights_in_the_readme_are_enough_and_needed(
    double: Double, monkeypatch: pytest.MonkeyPatch, rights: str
) -> None:
    every, more = documented_rights()
    if rights == "without accounts":
        every = [*every, *more[:1]]
    else:
        every = [*every, *more]
    if rights == "less than it gives":
        every = [r for r in every if r["resources"] != ["jobs"]]
        verbs = ["create", "get", "list", "watch", "delete"]
        every.append({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": verbs})
    account_with(double, "someone", every)
    account(double, ["get", "create", "patch", "delete"])
    before = sorted(double.left())
    user = f"{ACCOUNT}default:someone"
    monkeypatch.setenv("KUBECONFIG", double.kubeconfig("someone", user=user))
    scheduler = create_scheduler("someone")
    roles = (role(FAILS_ONCE, "a", max_retries=1), role(ENDS_LATER, "b"))
    cfg = dict(CFG)
    if rights != "all":
        with pytest.raises(BackendError, match="restarts_service_account=NAME") as caught:
            scheduler.submit(app(*roles), cfg)
        assert "\n" not in str(caught.value)
        assert sorted(double.left()) == before
        cfg["restarts_service_account"] = "robot"
    if rights == "less than it gives":
        assert "attempting to grant RBAC permissions not currently held" in str(caught.value)
        return
    app_id = scheduler.submit(app(*roles), cfg)
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)
    assert [one.app_id for one in scheduler.list()] == [app_id]
    assert [line[:5] for line in scheduler.log_iter(app_id, "a")] == ["try 1"]
    other = scheduler.submit(app(role("exec sleep 86400", "a"), role("exec sleep 60", "b")), cfg)
    described(scheduler, other, running)
    scheduler.cancel(other)
    assert described(scheduler, other).state == AppState.CANCELLED
    for one in (app_id, other):
        scheduler.delete(one)
    wait_for(lambda: sorted(double.left()) == before)
    refused = [r for r in double.requests() if r["user"] == user and r["code"] == 403]
    # a missing API may also be reported as forbidden
    assert {r["path"].rpartition("/")[2] for r in refused} <= {"jobsets", "serviceaccounts", "jobs"}
    scheduler.close()


def test_the_token_is_read_from_the_pod(
    scheduler: KubernetesScheduler, double: Double, tmp_path: Path
) -> None:
    # pods of the double have another token folder; here the program uses the folder of real pods
    place = "/run/secrets/kubernetes.io/serviceaccount"
    script = f'mount -t tmpfs none /run && mkdir -p {place} && cp $0/* {place} && exec "$@"'
    inside = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    try:
        tried = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/run"],
            check=False,
            capture_output=True,
        )
    except OSError:
        pytest.skip("there is no program unshare")
    if tried.returncode or os.path.realpath("/var/run") != "/run":
        pytest.skip("a process may not have mounts of its own here, or /var/run is not /run")
    account(double, ["get", "create", "patch", "delete"])
    user = "system:serviceaccount:default:robot"
    config = yaml.safe_load(Path(double.kubeconfig("robot", user=user)).read_text())
    (tmp_path / "token").write_text(config["users"][0]["user"]["token"])
    server = config["clusters"][0]["cluster"]
    shutil.copy(server["certificate-authority"], tmp_path / "ca.crt")
    cfg = {**CFG, "restarts_image": "example.com/none:1", "restarts_service_account": "robot"}
    roles = (role(FAILS_ONCE, "a", max_retries=1), role(ENDS_LATER, "b"))
    info = scheduler.submit_dryrun(app(*roles), cfg)
    command = info.request.objects[-1]["spec"]["template"]["spec"]["containers"][0]["command"]
    app_id = scheduler.schedule(info)
    host, _, port = server["server"].rpartition("/")[2].partition(":")
    done = subprocess.run(
        [
            *inside,
            str(tmp_path),
            sys.executable,
            *[word.replace("$$", "$") for word in command[1:]],
        ],
        env={"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "PATH": os.defpath},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "attempt 2" in done.stdout
    found = described(scheduler, app_id)
    assert (found.state, found.num_restarts) == (AppState.SUCCEEDED, 1)


def test_status_shows_that_the_other_roles_are_not_ended(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    image = "busybox:local"  # it has no python3, and the supervisor gets the first role's image
    roles = (role("sleep 1; exit 3", "a", image=image), role("exec sleep 86400", "b"))
    app_id = scheduler.submit(app(*roles), {})
    words = "the app's supervisor does not run: StartError: "
    found = described(scheduler, app_id, lambda d: d.state == AppState.FAILED and words in d.msg)
    assert "a/0: exit code 3" in found.msg


def test_a_submission_that_fails_in_its_last_step_deletes_its_objects(
    scheduler: KubernetesScheduler, double: Double
) -> None:
    double.fault(403, method="PATCH", path="/jobs/", message="no more today")
    with pytest.raises(BackendError, match="no more today"):
        scheduler.submit(app(shell("sleep 86400", "a"), shell("sleep 60", "b")), CFG)
    wait_for(lambda: double.left() == [])
