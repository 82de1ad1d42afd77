"""Tests of the checks for ``torchx doctor``, with a double of an API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchx_sched_k8s import checks

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def results(check: Any, **cfg: Any) -> list[tuple[str, str]]:
    return [(result.level, result.message) for result in check(cfg)]


def groups(**versions: str) -> dict[str, Any]:
    names = {name.replace("__", "-").replace("_", "."): text for name, text in versions.items()}
    return {
        "groups": [
            {"name": name, "versions": [{"version": v} for v in text.split(",")]}
            for name, text in names.items()
        ]
    }


def test_version_and_credentials_without_the_token(api: Any) -> None:
    api.answer("GET", "/version", {"major": "1", "minor": "31+"})
    rows = results(checks.check_cluster)
    assert [level for level, _ in rows] == ["ok", "ok"]
    assert f"context 'double' of {api.kubeconfig}" in rows[0][1]
    assert rows[1][1].startswith("Kubernetes 1.31 at http://127.0.0.1:")
    assert "first" not in rows[0][1]  # the token


def test_refused_credentials_and_a_missing_kubeconfig(
    api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answer("GET", "/version", (401, {"message": "Unauthorized"}))
    refused = list(checks.check_cluster({}))[1]
    assert refused.level == "error"
    assert "does not accept the credentials of context 'double'" in refused.message
    assert "log in" in refused.remedy
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    [missing] = checks.check_cluster({})
    assert missing.level == "error"
    assert "no cluster is configured" in missing.message
    assert "KUBECONFIG" in missing.remedy
    assert list(checks.check_operators({})) == []
    assert list(checks.check_rights({})) == []


def test_operators_are_needed_only_by_some_options(api: Any) -> None:
    api.answer("GET", "/apis", groups(batch="v1", jobset_x__k8s_io="v1alpha2"))
    assert results(checks.check_operators) == [
        ("ok", "JobSet: v1alpha2"),
        ("ok", "Volcano is not installed; only job_api=volcano needs it"),
        ("ok", "Kueue is not installed; only queue needs it"),
    ]
    assert results(checks.check_operators, queue="q", job_api="jobset")[2] == (
        "error",
        "Kueue is not installed, and your options need it (queue)",
    )
    assert results(checks.check_operators, queue="q")[1] == (
        "error",
        "Volcano is not installed, and your options need it (job_api=volcano)",
    )


def test_an_unsupported_version_of_kubernetes_is_a_warning(api: Any) -> None:
    api.answer("GET", "/version", {"major": "1", "minor": "27"})
    result = list(checks.check_cluster({}))[-1]
    assert "Kubernetes 1.27 at" in result.message
    assert "supports 1.29 and later" in result.message
    assert result.level == "warning"


def test_an_operator_of_another_version_is_reported(api: Any) -> None:
    api.answer("GET", "/apis", groups(jobset_x__k8s_io="v2,v3"))
    message = "JobSet has the versions v2, v3, and this release supports v1alpha2"
    assert results(checks.check_operators)[0] == ("warning", message)
    assert results(checks.check_operators, job_api="jobset")[0] == ("error", message)


def test_missing_rights_are_named(api: Any) -> None:
    def review(request: Any) -> tuple[int, Any]:
        asked = request.body["spec"]["resourceAttributes"]
        assert request.body["kind"] == "SelfSubjectAccessReview"
        assert asked["namespace"] == "team"
        denied = {("batch", "jobs", "", "create"), ("batch", "jobs", "", "delete")}
        denied.add(("", "pods", "log", "get"))
        right = tuple(asked[key] for key in ("group", "resource", "subresource", "verb"))
        return 201, {"status": {"allowed": right not in denied}}

    api.answer("POST", REVIEWS, review)
    [result] = checks.check_rights({"namespace": "team"})
    assert result.level == "error"
    assert result.message == "in namespace team, you may not create, delete jobs; get pods/log"
    assert "Role" in result.remedy


def test_the_missing_right_to_delete_pods_is_a_warning_for_plain_jobs(api: Any) -> None:
    def review(request: Any) -> tuple[int, Any]:
        asked = request.body["spec"]["resourceAttributes"]
        return 201, {
            "status": {"allowed": (asked["resource"], asked["verb"]) != ("pods", "delete")}
        }

    api.answer("POST", REVIEWS, review)
    [fine, lost] = results(checks.check_rights)
    assert fine == ("ok", "you have the rights that jobs need in namespace team")
    assert lost[0] == "warning"
    assert "in namespace team, you may not delete pods: single elements" in lost[1]
    assert len(results(checks.check_rights, job_api="jobset")) == 1


# Resources and verbs of the Role in README.md, without those for exec and port-forward.
DOCUMENTED = {
    "jobs": {"create", "get", "list", "watch", "patch", "delete"},
    "services": {"create", "get", "delete"},
    "pods": {"list", "delete"},
    "pods/log": {"get"},
    "events": {"list"},
    "configmaps": {"create", "get", "patch"},
}


def only(rights: dict[str, set[str]]) -> Any:
    """Return a function that answers a review: only these rights are allowed."""

    def review(request: Any) -> tuple[int, Any]:
        asked = request.body["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        return 201, {"status": {"allowed": asked["verb"] in rights.get(resource, ())}}

    return review


def test_the_documented_role_is_enough_for_jobs(api: Any) -> None:
    api.answer("POST", REVIEWS, only(DOCUMENTED))
    fine, *lost = results(checks.check_rights)
    assert fine == ("ok", "you have the rights that jobs need in namespace team")
    assert [level for level, _ in lost] == ["warning"] * 3
    shown = "\n".join(message for _, message in lost)
    assert "create serviceaccounts; create roles; create rolebindings: when a role" in shown
    assert "get pods/exec: 'torchx exec', 'shell' and 'cp' do not work" in shown
    assert "get pods/portforward: 'torchx forward' does not work" in shown


@pytest.mark.parametrize(
    ("cfg", "rights", "missing"),
    [
        ({"job_api": "jobset"}, {"jobsets": DOCUMENTED["jobs"]}, ""),
        ({"queue": "q"}, {"jobs": DOCUMENTED["jobs"]}, "patch jobs/status"),
        (
            {"requeue": "True"},
            {key: DOCUMENTED[key] for key in ("jobs", "services")},
            "watch, patch pods",
        ),
        ({"queue": "q"}, {"jobs": DOCUMENTED["jobs"], "jobs/status": {"patch"}}, ""),
        (
            {"queue": "q", "job_api": "jobset"},
            {"jobsets": DOCUMENTED["jobs"], "workloads": {"list"}},
            "patch workloads",
        ),
    ],
)
def test_only_the_rights_of_the_api_are_needed(
    api: Any, cfg: dict[str, str], rights: dict[str, set[str]], missing: str
) -> None:
    common = {key: DOCUMENTED[key] for key in ("pods", "pods/log", "events")}
    api.answer("POST", REVIEWS, only({**common, **rights}))
    level, message = results(checks.check_rights, **cfg)[0]
    if not missing:
        assert level == "ok"
        return
    assert (level, message) == ("error", f"in namespace team, you may not {missing}")


def test_a_review_that_the_cluster_refuses_is_a_warning(api: Any) -> None:
    api.answer(
        "POST", REVIEWS, (403, {"message": "reviews are not allowed", "reason": "Forbidden"})
    )
    assert results(checks.check_rights) == [
        ("warning", "cannot check your rights: reviews are not allowed")
    ]
    api.answer("POST", REVIEWS, (401, {"message": "Unauthorized"}))
    assert results(checks.check_rights) == []  # check_cluster reports 401


def test_rights_follow_the_api_of_the_jobs(api: Any) -> None:
    api.answer("POST", REVIEWS, (201, {"status": {"allowed": True}}))
    assert results(checks.check_rights) == [
        ("ok", "you have the rights that jobs need in namespace team")
    ]
    for check, cfg, group in (
        (checks.check_rights, {"job_api": "jobset"}, "jobset.x-k8s.io"),
        (checks.check_rights, {"queue": "q"}, "batch.volcano.sh"),
    ):
        api.requests.clear()
        list(check(cfg))
        asked = [request.body["spec"]["resourceAttributes"]["group"] for request in api.requests]
        assert group in asked
