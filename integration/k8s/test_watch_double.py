"""Tests of the Kubernetes double's pages, watches, restarts and tokens, with the real client."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import urllib3
from double_client import ApiException, Client, job, pod
from k8s_double.handle import Double, DoubleError
from kubernetes import watch

from patience import wait_for


@pytest.fixture
def k8s(double: Double) -> Client:
    return Client(str(double.path))


def make(k8s: Client, *names: str) -> None:
    for name in names:
        k8s.job(name, suspend=True)


def test_lists_have_pages(k8s: Client, double: Double) -> None:
    make(k8s, *"abcde")
    page = k8s.batch.list_namespaced_job("default", limit=2)
    assert page.metadata.remaining_item_count == 3
    k8s.batch.delete_namespaced_job("c", "default", propagation_policy="Background")
    found = [item.metadata.name for item in page.items]
    while token := page.metadata._continue:
        page = k8s.batch.list_namespaced_job("default", limit=2, _continue=token)
        found += [item.metadata.name for item in page.items]
    assert found == list("abcde")  # all pages are from the time of the first page
    page = k8s.batch.list_namespaced_job("default", limit=2)
    double.expire_pages()
    with pytest.raises(ApiException) as caught:
        k8s.batch.list_namespaced_job("default", limit=2, _continue=page.metadata._continue)
    assert caught.value.status == 410
    assert "The provided continue parameter is too old" in str(caught.value.body)


def test_a_watch_reports_changes(k8s: Client) -> None:
    make(k8s, "a")
    version = k8s.batch.list_namespaced_job("default").metadata.resource_version
    events: list[tuple[str, str]] = []

    def follow() -> None:
        stream = watch.Watch().stream(
            k8s.batch.list_namespaced_job,
            "default",
            resource_version=version,
            label_selector="seen=yes",
            timeout_seconds=2,
            allow_watch_bookmarks=True,
        )
        for event in stream:
            name = "" if event["type"] == "BOOKMARK" else event["object"].metadata.name
            events.append((event["type"], name))

    follower = threading.Thread(target=follow)
    follower.start()
    k8s.batch.patch_namespaced_job("a", "default", {"metadata": {"labels": {"seen": "yes"}}})
    make(k8s, "b")
    k8s.batch.patch_namespaced_job("a", "default", {"metadata": {"annotations": {"x": "1"}}})
    k8s.batch.patch_namespaced_job("a", "default", {"metadata": {"labels": {"seen": "no"}}})
    follower.join(120)
    plain = [event for event in events if event[0] != "BOOKMARK"]
    assert plain == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert ("BOOKMARK", "") in events


def test_a_watch_of_an_expired_version_is_refused(k8s: Client, double: Double) -> None:
    make(k8s, "a")
    version = k8s.batch.list_namespaced_job("default").metadata.resource_version
    make(k8s, "b")
    double.forget()
    with pytest.raises(ApiException, match="Expired: too old resource version") as caught:
        list(
            watch.Watch().stream(
                k8s.batch.list_namespaced_job,
                "default",
                resource_version=version,
                timeout_seconds=2,
            )
        )
    assert caught.value.status == 410


def test_a_restart_keeps_the_objects(k8s: Client, double: Double, tmp_path: Path) -> None:
    # the second half of the lines comes after the restart, however slow this machine is
    script = (
        "i=0; while [ $i -lt 20 ]; do echo line $i; i=$((i+1)); done;"
        f" until [ -e {tmp_path}/restarted ]; do sleep 0.05; done;"
        " while [ $i -lt 40 ]; do echo line $i; i=$((i+1)); done"
    )
    k8s.core.create_namespaced_pod("default", pod("one", script))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Running")
    answer = k8s.core.read_namespaced_pod_log("one", "default", follow=True, _preload_content=False)
    got = b""
    restart = threading.Thread(target=double.restart, args=(0.5,))
    with pytest.raises(urllib3.exceptions.HTTPError):  # noqa: PT012 (it breaks somewhere within)
        for piece in answer.stream(10):
            got += piece
            if b"line 19\n" in got:
                restart.start()
    restart.join()
    (tmp_path / "restarted").touch()
    assert got == b"".join(b"line %d\n" % i for i in range(20))
    wait_for(lambda: _answers(k8s))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Succeeded")
    assert k8s.log("one") == "".join(f"line {i}\n" for i in range(40))


def _answers(k8s: Client) -> bool:
    try:
        k8s.core.read_namespaced_pod("one", "default", _request_timeout=5)
    except urllib3.exceptions.HTTPError:
        return False
    return True


@pytest.mark.parametrize("clean", [True, False])
def test_a_stream_can_be_cut(k8s: Client, double: Double, clean: bool) -> None:
    k8s.core.create_namespaced_pod("default", pod("one", "echo up; exec sleep 86400"))
    wait_for(lambda: k8s.core.read_namespaced_pod("one", "default").status.phase == "Running")
    timer = threading.Timer(0.5, double.cut, (clean,))
    timer.start()
    if clean:
        assert k8s.log("one", follow=True) == "up\n"
    else:
        with pytest.raises(urllib3.exceptions.HTTPError):
            k8s.log("one", follow=True)
    timer.join()


@pytest.mark.parametrize("style", ["token", "token-file", "exec"])
def test_tokens_are_checked(double: Double, style: str) -> None:
    path = double.kubeconfig("other", style=style)
    k8s = Client(path)
    make(k8s, "a")
    double.rotate("other", style=style)
    with pytest.raises(ApiException, match="401"):
        Client(str(double.path)).pods("a")
    assert Client(path).pods("a") == []


def test_faults_before_and_after_a_request_is_served(k8s: Client, double: Double) -> None:
    retries = urllib3.Retry(0)
    k8s.api.rest_client.pool_manager.connection_pool_kw["retries"] = retries
    double.fault(0, method="POST", path="/jobs")
    with pytest.raises(urllib3.exceptions.HTTPError):
        make(k8s, "never")
    double.fault(0, method="POST", path="/jobs", served=True)
    with pytest.raises(urllib3.exceptions.HTTPError):
        make(k8s, "made")
    assert [o["metadata"]["name"] for o in double.objects("jobs.batch")] == ["made"]


def test_requests_are_counted(k8s: Client, double: Double) -> None:
    before = double.counted()
    k8s.pods("x")
    asked: list[dict[str, Any]] = double.requests(before)
    assert [(r["method"], r["path"], r["code"], r["user"]) for r in asked] == [
        ("GET", "/api/v1/namespaces/default/pods", 200, "double-user")
    ]
    assert asked[0]["query"]["labelSelector"] == "job-name=x"


def test_simulated_pods_run_no_process(k8s: Client, double: Double) -> None:
    double.play("pretended")
    k8s.batch.create_namespaced_job("default", job("many", completions=1000))
    wait_for(lambda: k8s.batch.read_namespaced_job("many", "default").status.ready == 1000)
    assert len(double.objects("pods")) == 1000


def test_unsupported_behaviour_is_an_error(double: Double) -> None:
    with pytest.raises(DoubleError, match="no sequence named sleepy; there are"):
        double.play("sleepy")
