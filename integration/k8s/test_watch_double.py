"""Tests of the Kubernetes double's pages, watches, restarts and tokens, with the real client."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from double_client import ApiException, Client
from k8s_double.handle import Double, DoubleError
from kubernetes import watch


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


@pytest.mark.parametrize("style", ["token", "token-file", "exec"])
def test_tokens_are_checked(double: Double, style: str) -> None:
    path = double.kubeconfig("other", style=style)
    k8s = Client(path)
    make(k8s, "a")
    double.rotate("other", style=style)
    with pytest.raises(ApiException, match="401"):
        Client(str(double.path)).pods("a")
    assert Client(path).pods("a") == []


def test_requests_are_counted(k8s: Client, double: Double) -> None:
    before = double.counted()
    k8s.pods("x")
    asked: list[dict[str, Any]] = double.requests(before)
    assert [(r["method"], r["path"], r["code"], r["user"]) for r in asked] == [
        ("GET", "/api/v1/namespaces/default/pods", 200, "double-user")
    ]
    assert asked[0]["query"]["labelSelector"] == "job-name=x"


def test_unsupported_behaviour_is_an_error(double: Double) -> None:
    with pytest.raises(DoubleError, match="no sequence named sleepy; there are"):
        double.play("sleepy")
