"""Tests of whole stories from submission to deletion, on a real cluster or on the double.

The environment variable ``KUBECONFIG`` selects a real cluster.

A real cluster needs only the two images on its nodes, and neither a registry nor an operator. A
story that needs a feature which the double lacks is skipped on the double, with the reason.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from k8s_apps import UNTIL_GO, go, reason, running
from k8s_double.handle import Double
from k8s_site import KUBECONFIG, Site

from patience import PATIENCE, wait_for
from torchx_sched_k8s.scheduler import create_scheduler
from torchx_specs import (
    AppDef,
    AppState,
    BindMount,
    DeviceMount,
    Resource,
    RetryPolicy,
    VolumeMount,
    is_terminal,
    macros,
)
from torchx_specs.errors import BackendError, RequestError, UnknownAppException
from torchx_specs.overlays import JOIN, set_overlay

Torchx = Callable[..., "CompletedProcess[str]"]

#: A script that ends at SIGTERM. Without a handler, process 1 of a container ignores SIGTERM, and
#: runs until SIGKILL 30 seconds later.
SLEEP = "trap 'exit 143' TERM; sleep 86400 & wait"


@pytest.fixture
def site(
    request: pytest.FixtureRequest,
    namespace: str,
    image: str,
    python_image: str,
    api_cfg: dict[str, str],
) -> Iterator[Site]:
    double: Double | None = None if KUBECONFIG else request.getfixturevalue("double")
    site = Site(double, namespace, image, python_image, api_cfg)
    yield site
    site.close()


@pytest.fixture
def environment(environment: dict[str, str], site: Site) -> dict[str, str]:
    """Environment of a user whose kubeconfig names the site's cluster."""
    return {**environment, "KUBECONFIG": site.kubeconfig}


# Tests of the command torchx.


@pytest.fixture
def component(tmp_path: Path, site: Site) -> str:
    """Write a user's component with a small resource, and return the component's name."""
    path = tmp_path / "story.py"
    path.write_text(
        f"""import torchx_specs as specs


def job(script: str, replicas: int = 1) -> specs.AppDef:
    '''A job.

    Args:
        script: of a shell
        replicas: how many
    '''
    role = specs.Role("main", {site.image!r}, entrypoint="sh", args=["-c", script])
    role.num_replicas = replicas
    role.resource = specs.Resource(cpu=0.2, gpu=0, memMB=64)
    return specs.AppDef("story", [role])
"""
    )
    return f"{path}:job"


@pytest.fixture
def run(torchx: Torchx, site: Site, component: str) -> Callable[..., tuple[Any, str]]:
    """Run the component; return the finished process and the app's handle."""

    def call(script: str, *flags: str, replicas: int = 1, **cfg: str) -> tuple[Any, str]:
        options = ",".join(f"{key}={value}" for key, value in {**site.cfg, **cfg}.items())
        done = torchx(
            "run", "--workspace=", *flags, "-s", "kubernetes", "-cfg", options,
            component, "--replicas", replicas, "--script", script, timeout=PATIENCE,
        )  # fmt: skip
        found = re.search(rf"kubernetes://torchx/({site.namespace}:[a-z0-9-]+)", done.stdout)
        if found and done.returncode in (0, 1):
            site.register(found[1])
        return done, found[0] if found else ""

    return call


def test_from_run_to_delete(torchx: Torchx, site: Site, run: Any) -> None:
    done, handle = run(f'echo "{macros.replica_id} \\$(HOME) $((1+1))"', "--wait", replicas=2)
    assert done.returncode == 0, done.stderr
    assert "SUCCEEDED" in torchx("status", handle).stdout
    log = torchx("log", handle)
    assert log.returncode == 0, log.stderr
    assert sorted(log.stdout.splitlines()) == ["main/0 0 $(HOME) 2", "main/1 1 $(HOME) 2"]
    assert torchx("describe", handle).returncode == 0
    listed = torchx("list", "-s", "kubernetes", "-cfg", f"namespace={site.namespace}")
    assert handle in listed.stdout
    assert torchx("delete", handle).returncode == 0
    assert torchx("status", handle).returncode == 1
    wait_for(lambda: not site.left(handle.rpartition("/")[2]))


@pytest.mark.parametrize(
    ("cfg", "code", "words"),
    [
        ({"namespace": "torchx-no-such-namespace"}, 2, "namespace 'torchx-no-such-namespace'"),
        ({"context": "torchx-no-such-context"}, 2, "has no context 'torchx-no-such-context'"),
        ({"job_api": "jobset"}, 2, "JobSet is not installed in this cluster"),
        ({"job_api": "volcano", "queue": "default"}, 2, "Volcano is not installed"),
    ],
)
def test_an_error_is_one_line(
    site: Site, run: Any, cfg: dict[str, str], code: int, words: str
) -> None:
    if "job_api" in cfg and site.double is not None:
        site.double.serve_operators([])
    elif "job_api" in cfg:
        group = {"jobset": "jobset.x-k8s.io", "volcano": "batch.volcano.sh"}[cfg["job_api"]]
        if site.scheduler._cluster_of(None).get_or_none(f"/apis/{group}", "look"):
            pytest.skip(f"this cluster has {cfg['job_api']}, whose absence was to be told")
    done, handle = run("true", **cfg)
    assert (done.returncode, handle) == (code, "")
    assert words in done.stderr
    assert len([line for line in done.stderr.splitlines() if "error:" in line]) == 1
    assert "Traceback" not in done.stderr


# Tests of the status.


@pytest.mark.parametrize(
    ("cfg", "fields", "words"),
    [
        (
            {"image_pull_policy": "Never"},
            {"image": "torchx.invalid/none:1"},
            r'ErrImageNeverPull: .*"torchx\.invalid/none:1" is not present',
        ),
        ({}, {"image": "torchx.invalid/none:1"}, r"ImagePullBackOff: .*torchx\.invalid/none:1"),
        (
            {"node_selector": {"torchx-test": "none"}},
            {},
            r"Unschedulable: 0/\d+ nodes are available: ",
        ),
        (
            {"gpu_resource": "torchx.invalid/gpu"},
            {"resource": Resource(cpu=0.2, gpu=1, memMB=64)},
            r"Unschedulable: 0/\d+ nodes are available: .*Insufficient torchx\.invalid/gpu",
        ),
        (
            {"env_secrets": {"TOKEN": "torchx-none/key"}},
            {},
            r'CreateContainerConfigError: secret "torchx-none" not found',
        ),
    ],
)
def test_status_shows_why_an_app_waits(
    site: Site, cfg: dict[str, Any], fields: dict[str, Any], words: str
) -> None:
    app_id = site.submit(site.shell("true", **fields), **cfg)
    found = site.until(app_id, lambda d: re.search(words, reason(d)))
    assert found.state == AppState.PENDING
    assert re.search(words, found.msg)
    assert "\n" not in found.msg


def test_out_of_memory_is_named(site: Site) -> None:
    if site.double is not None:
        site.double.play("oom-killed")  # the double does not limit memory
    app_id = site.submit(site.program("print(len(b'x' * 10**9))"))
    found = site.until(app_id)
    assert found.state == AppState.FAILED
    assert "OOMKilled" in found.msg
    assert found.roles_statuses[0].replicas[0].exit_code == 137


def test_status_shows_nodes_and_addresses(site: Site) -> None:
    app_id = site.submit(site.shell(SLEEP, num_replicas=2))
    (status,) = site.until(app_id, running).roles_statuses
    assert len({replica.hostname for replica in status.replicas}) == 2
    assert len({replica.hostaddr for replica in status.replicas}) == 2
    assert all(replica.node for replica in status.replicas)


def test_a_failed_replica_restarts(site: Site) -> None:
    role = site.shell(
        f"echo attempt of {macros.replica_id}; exit $(( {macros.replica_id} * 5 ))",
        num_replicas=2,
        max_retries=1,
        retry_policy=RetryPolicy.REPLICA,
    )
    app_id = site.submit(role)
    found = site.until(app_id)
    assert found.state == AppState.FAILED
    assert found.num_restarts == 1
    good, bad = found.roles_statuses[0].replicas
    assert (good.state, good.restarts, good.exit_code) == (AppState.SUCCEEDED, 0, 0)
    if site.cfg["job_api"] == "volcano":
        # Volcano deletes the pods that RestartPod restarts, with their exit codes and logs
        assert (bad.state, bad.exit_code) == (AppState.FAILED, None)
        assert "deleted: Volcano's RestartPod keeps no pod" in bad.reason
        assert found.msg.startswith(f"main/1: {bad.reason}")
        assert site.lines(app_id, k=0) == ["attempt of 0"]
        return
    assert (bad.state, bad.restarts, bad.exit_code) == (AppState.FAILED, 1, 5)
    # the log of an earlier attempt comes before the log of the last attempt
    assert site.lines(app_id, k=0) == ["attempt of 0"]
    assert site.lines(app_id, k=1) == ["attempt of 1"] * 2
    assert site.lines(app_id, k=1, should_tail=True) == ["attempt of 1"] * 2


def test_an_elastic_role_runs_until_all_replicas_have_ended(site: Site) -> None:
    """The first replica that succeeds must not end replicas that still save their state."""
    script = f"[ {macros.replica_id} = 0 ] && exit 0; {UNTIL_GO}; echo saved"
    app_id = site.submit(site.shell(script, num_replicas=2, min_replicas=1))
    ended_and_running = [AppState.SUCCEEDED, AppState.RUNNING]
    site.until(
        app_id, lambda d: [r.state for r in d.roles_statuses[0].replicas] == ended_and_running
    )
    go(site.scheduler, app_id, k=1)
    found = site.until(app_id)
    assert found.state == AppState.SUCCEEDED
    assert site.lines(app_id, k=1) == ["saved"]
    assert found.roles[0].min_replicas == 1


def test_a_success_policy_ends_the_other_replicas(site: Site) -> None:
    if site.cfg["job_api"] == "volcano":
        return  # a Volcano Job has no success policy for one role
    role = site.shell(f"[ {macros.replica_id} = 0 ] && exit 0; {SLEEP}", num_replicas=2)
    policy = {"rules": [{"succeededIndexes": "0"}]}
    set_overlay(role, "kubernetes", "V1Job", {"spec": {"successPolicy": policy}})
    found = site.until(site.submit(role))
    assert found.state == AppState.SUCCEEDED


# Tests of logs.


def test_a_log_is_followed_from_before_the_pod_to_its_end(site: Site) -> None:
    count = 120
    script = (
        f"i=0; while [ $i -lt {count} ]; do echo {macros.replica_id} $i; i=$((i+1));"
        " [ $((i % 10)) = 0 ] && sleep 0.3; done; true"
    )
    app_id = site.submit(site.shell(script, num_replicas=3))
    got: dict[int, list[str]] = {}

    def follow(k: int) -> None:
        got[k] = site.lines(app_id, k=k, should_tail=True)

    threads = [threading.Thread(target=follow, args=(k,), daemon=True) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    expected = {k: [f"{k} {i}" for i in range(count)] for k in range(3)}
    assert got == expected
    assert site.until(app_id).state == AppState.SUCCEEDED
    assert {k: site.lines(app_id, k=k) for k in range(3)} == expected


def test_a_follower_says_that_its_app_was_deleted(site: Site) -> None:
    app_id = site.submit(f"echo first; {SLEEP}")
    lines = iter(site.scheduler.log_iter(app_id, "main", should_tail=True))
    assert next(lines) == "first\n"
    site.scheduler.delete(app_id)
    with pytest.raises(UnknownAppException, match=re.escape(app_id)):
        assert [line for line in lines if "Terminated" not in line] == []


def test_a_very_long_line_arrives_whole(site: Site) -> None:
    script = "head -c 100000 /dev/zero | tr '\\0' z; echo; echo; printf 'no end'"
    app_id = site.submit(script)
    site.until(app_id)
    for tail in (False, True):
        long, blank, end = site.lines(app_id, should_tail=tail)
        assert (len(long), set(long), blank, end) == (100_000, {"z"}, "", "no end")


# Tests of cancellation and deletion.


def test_cancel_ends_all_roles_and_keeps_the_app(site: Site) -> None:
    roles = [site.shell(SLEEP, "one", num_replicas=2), site.shell(SLEEP, "two")]
    app_id = site.submit(*roles)
    site.until(app_id, running)
    site.scheduler.cancel(app_id)
    other = create_scheduler("other")
    found = other.describe(app_id)
    assert found is not None
    assert found.state == AppState.CANCELLED
    wait_for(lambda: not [one for one in site.left(app_id) if one.startswith("pods/")])
    apps = {one.app_id: one.state for one in other.list({"namespace": site.namespace})}
    assert apps[app_id] == AppState.CANCELLED
    other.close()


@pytest.mark.parametrize("ended", [False, True])
def test_delete_leaves_nothing(site: Site, ended: bool) -> None:
    roles = [site.shell("true" if ended else SLEEP, name) for name in ("one", "two")]
    app_id = site.submit(*roles)
    site.until(app_id, lambda d: is_terminal(d.state) if ended else running(d))
    objects = [one for one in site.left(app_id) if one.startswith(("jobs/", "jobsets/"))]
    assert len(objects) >= (2 if site.cfg["job_api"] == "batch" else 1)
    site.scheduler.delete(app_id)
    assert site.scheduler.describe(app_id) is None
    wait_for(lambda: not site.left(app_id))


def test_ttl_deletes_all_objects(site: Site) -> None:
    app_id = site.submit(UNTIL_GO, ttl_seconds=1)
    site.until(app_id, running)
    if site.cfg["job_api"] == "batch":  # the operators make a Service later
        assert any(one.startswith("services/") for one in site.left(app_id))
    go(site.scheduler, app_id)
    wait_for(lambda: not site.left(app_id))
    assert site.scheduler.describe(app_id) is None


# Tests of arguments, variables and host names.


SERVE = """
import socket
server = socket.create_server(("", 29511))
server.settimeout(200)
print("served", server.accept()[0].recv(9).decode())
"""
CONNECT = """
import os, socket, sys, time
host, until = os.environ["TORCHX_RANK0_HOST"], time.time() + 200
while True:
    try:
        found = socket.create_connection((host, 29511), 5)
        break
    except OSError as e:
        if time.time() > until:
            sys.exit(f"{host}: {e}")
        time.sleep(0.5)
found.sendall(b"replica")
print("connected to", host)
"""


@pytest.mark.parametrize("ready", [True, False])
def test_replicas_reach_the_rank0_host(site: Site, ready: bool) -> None:
    """The host name resolves even before the pod is ready: a trainer may first wait for others."""
    site.only_real("cluster DNS and a network of pods")
    code = f"import os\nexec({SERVE!r} if os.environ['TORCHX_REPLICA_ID'] == '0' else {CONNECT!r})"
    role = site.program(code, num_replicas=2)
    if not ready:
        probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
        main = {"name": "main", "readinessProbe": probe}
        set_overlay(role, "kubernetes", "V1Pod", {"spec": {JOIN("containers", on="name"): [main]}})
    app_id = site.submit(role)
    found = site.until(app_id)
    assert found.state == AppState.SUCCEEDED, (found, site.lines(app_id, k=1))
    assert site.lines(app_id, k=0) == ["served replica"]
    assert site.lines(app_id, k=1) == [
        f"connected to {found.roles_statuses[0].replicas[0].hostname}"
    ]


# Tests of checks by the cluster.


def test_all_options_together_are_accepted(site: Site) -> None:
    """The server's dry run accepts all objects, and creates nothing."""
    role = site.shell(
        f"echo {macros.replica_id}",
        num_replicas=3,
        min_replicas=2,
        max_retries=1,
        retry_policy=RetryPolicy.REPLICA,
        env={"NODE": "[FIELD_PATH]spec.nodeName", "PLAIN": "$(NOT) expanded"},
        port_map={"http": 8080, "tensor_board": 6006},
        mounts=[
            BindMount("/tmp", "/host", read_only=True),
            VolumeMount("claim", "/data"),
            DeviceMount("/dev/null", "/dev/here"),
        ],
        resource=Resource(cpu=2.5, gpu=1, memMB=2048, devices={"vpc.amazonaws.com/efa": 1}),
    )
    pod = {"spec": {"terminationGracePeriodSeconds": 5, "runtimeClassName": "torchx"}}
    set_overlay(role, "kubernetes", "V1Pod", pod)
    cfg = {
        "service_account": "torchx",
        "priority_class": "torchx",
        "image_secret": "torchx",
        "env_secrets": {"A": "keys/a"},
        "env_config_maps": {"B": "all/b"},
        "env_from": ["configmap/all", "secret/keys"],
        "volumes": ["secret/keys:/keys"],
        "node_selector": {"zone": "a"},
        "tolerations": ["gpu=yes:NoSchedule", "*"],
        "affinity": json.dumps({"podAntiAffinity": {}}),
        "labels": {"team": "one"},
        "annotations": {"note": "any text at all"},
        "ttl_seconds": 600,
    }
    # Volcano refuses a queue that does not exist; Kueue accepts it, and the app waits.
    queues = ({},) if site.cfg["job_api"] == "volcano" else ({}, {"queue": "torchx"})
    for queue in queues:
        # Kueue admits the Job of each role by itself, so an app in a queue has one role.
        roles = [role] if queue else [role, site.shell("true", "Other.role")]
        app = AppDef("Any app_1", roles, {"kept": "as it is"})
        info = site.scheduler.submit_dryrun(app, {**site.cfg, **cfg, **queue})
        for one in info.request.objects:
            api = "api/v1" if one["apiVersion"] == "v1" else f"apis/{one['apiVersion']}"
            path = f"/{api}/namespaces/{site.namespace}/{one['kind'].lower()}s"
            site.scheduler._cluster_of(None).create(path, one, "ask", dry_run=True)
        assert site.left(f"{site.namespace}:{info.request.name}") == []


def test_a_rejected_app_creates_nothing(site: Site) -> None:
    role = site.shell("true")
    main = {"name": "main", "imag": "x"}
    set_overlay(role, "kubernetes", "V1Pod", {"spec": {JOIN("containers", on="name"): [main]}})
    info = site.scheduler.submit_dryrun(AppDef("story", [role]), site.cfg)
    with pytest.raises(
        RequestError,
        match=r'unknown field "spec\.[\w.\[\]]*template\.spec\.containers\[0\]\.imag"',
    ):
        site.scheduler.schedule(info)
    role = site.shell("true")
    set_overlay(role, "kubernetes", "V1Pod", {"spec": {"nodeSelector": {"a b": "c"}}})
    info = site.scheduler.submit_dryrun(AppDef("story", [role]), site.cfg)
    with pytest.raises((RequestError, BackendError), match="nodeSelector") as caught:
        site.scheduler.schedule(info)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert site.left(f"{site.namespace}:{info.request.name}") == []


def test_a_real_cluster() -> None:
    if not KUBECONFIG:
        pytest.skip("KUBECONFIG is not set: these stories were played on a double")
