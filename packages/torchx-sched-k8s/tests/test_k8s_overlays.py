"""Tests of overlays: their kinds and objects, and ``${replica_id}`` in overlays.

One test is about another way to address pods: the variable with the host name in pods of MCAD.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from torchx_sched_k8s.scheduler import create_scheduler
from torchx_specs import AppDef, Role, macros
from torchx_specs.errors import RequestError
from torchx_specs.overlays import JOIN, set_overlay


def role(**words: Any) -> Role:
    return Role(**{"name": "main", "image": "busybox:1", "entrypoint": "sh", **words})


def refused(app: AppDef, **cfg: Any) -> str:
    with pytest.raises(RequestError) as caught:
        create_scheduler("test").submit_dryrun(app, cfg)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("cfg", [{}, {"job_api": "jobset"}, {"queue": "q"}])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("V1Pd", "role 'main' has no overlay of kind 'V1Pd'; did you mean 'V1Pod'?"),
        ("JobSet", "role 'main' has no overlay of kind 'JobSet'; set it on the AppDef"),
    ],
)
def test_a_role_refuses_overlays_of_other_kinds(kind: str, words: str, cfg: dict[str, Any]) -> None:
    one = role()
    set_overlay(one, "kubernetes", kind, {"spec": {}})
    assert words in refused(AppDef("app", [one]), **cfg)


@pytest.mark.parametrize("cfg", [{}, {"job_api": "jobset"}, {"queue": "q"}])
@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"V1Pod": {"spec": {}}}, "app 'app' has no overlay of kind 'V1Pod'; set it on a Role"),
        ({"spec": {"suspend": True}}, "no overlay of kind 'spec'; kinds: V1Job, JobSet"),
        (7, "must be a dict, got int"),
    ],
)
def test_an_app_refuses_overlays_of_other_kinds(
    stored: Any, words: str, cfg: dict[str, Any]
) -> None:
    assert words in refused(AppDef("app", [role()], {"kubernetes": stored}), **cfg)


def test_an_overlay_file_may_have_several_kinds(tmp_path: Path) -> None:
    file = tmp_path / "overlay.yaml"
    file.write_text("V1Pod: {spec: {runtimeClassName: kata}}\nV1Jb: {spec: {}}\n")
    assert "did you mean 'V1Job'" in refused(
        AppDef("app", [role(metadata={"kubernetes": str(file)})])
    )


def test_ignored_overlays_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    one = role()
    set_overlay(one, "kubernetes", "V1Job", {"spec": {"activeDeadlineSeconds": 7}})
    create_scheduler("test").submit_dryrun(AppDef("app", [one]), {"queue": "q"})
    assert "ignoring its overlay V1Job" in caplog.text


@pytest.mark.parametrize("name", ["main-0", "main"])
@pytest.mark.parametrize("cfg", [{}, {"job_api": "jobset"}, {"queue": "q"}])
def test_an_overlay_reaches_the_only_container(name: str, cfg: dict[str, Any]) -> None:
    one = role()
    overlay = {"spec": {JOIN("containers", on="name"): [{"name": name, "tty": True}]}}
    set_overlay(one, "kubernetes", "V1Pod", overlay)
    info = create_scheduler("test").submit_dryrun(AppDef("app", [one]), cfg)
    ((main,),) = containers(info.request.objects)
    assert main["tty"] is True


@pytest.mark.parametrize("cfg", [{}, {"job_api": "jobset"}, {"queue": "q"}])
@pytest.mark.parametrize(
    ("replicas", "name", "words"),
    [
        (2, "main-0", "no container 'main-0': its 2 replicas share the container 'main'"),
        (1, "main-3", "no container 'main-3': its only replica has the container 'main'"),
    ],
)
def test_an_overlay_for_one_of_several_replicas_is_refused(
    cfg: dict[str, Any], replicas: int, name: str, words: str
) -> None:
    one = role(num_replicas=replicas)
    overlay = {"spec": {JOIN("containers", on="name"): [{"name": name, "tty": True}]}}
    set_overlay(one, "kubernetes", "V1Pod", overlay)
    assert words in refused(AppDef("app", [one]), **cfg)


def containers(value: Any) -> list[list[dict[str, Any]]]:
    """Return the containers of all pod templates in objects."""
    if isinstance(value, list):
        return [found for item in value for found in containers(item)]
    if not isinstance(value, dict):
        return []
    own = [value["containers"]] if "containers" in value else []
    return own + [found for item in value.values() for found in containers(item)]


HOST_FOLDER = {"name": "data", "hostPath": {"path": f"/data/{macros.replica_id}"}}
OWN_FOLDER = {"name": "data", "mountPath": "/data", "subPathExpr": f"r{macros.replica_id}"}


@pytest.mark.parametrize("cfg", [{}, {"job_api": "jobset"}, {"queue": "q"}])
@pytest.mark.parametrize(
    ("overlay", "where"),
    [
        ({"spec": {"volumes": [HOST_FOLDER]}}, "spec.volumes[1].hostPath.path"),
        ({"spec": {"priorityClassName": f"p{macros.replica_id}"}}, "spec.priorityClassName"),
        ({"metadata": {"annotations": {"a": f"{macros.replica_id}"}}}, "metadata.annotations.a"),
    ],
)
def test_a_replica_id_that_all_replicas_would_share_is_refused(
    cfg: dict[str, Any], overlay: dict[str, Any], where: str
) -> None:
    one = role(num_replicas=2)
    set_overlay(one, "kubernetes", "V1Pod", overlay)
    with pytest.raises(RequestError, match=re.escape(where)) as caught:
        create_scheduler("t").submit_dryrun(AppDef("app", [one]), cfg)
    assert "${replica_id}" in str(caught.value)
    assert "\0" not in str(caught.value)


def test_a_replica_id_in_an_overlay_of_jobs_is_refused() -> None:
    one = role()
    annotations = {"a": f"{macros.replica_id}"}
    set_overlay(one, "kubernetes", "V1Job", {"metadata": {"annotations": annotations}})
    with pytest.raises(RequestError, match=re.escape("overlay V1Job: `metadata.annotations.a`")):
        create_scheduler("t").submit_dryrun(AppDef("app", [one]), {"job_api": "batch"})


def test_a_replica_id_is_a_variable_where_nodes_expand_variables() -> None:
    one = role(name="main", num_replicas=2)
    sidecar = {"name": "side", "image": "i", "args": [f"--id={macros.replica_id}"]}
    main = {"name": "main", "volumeMounts": [OWN_FOLDER]}
    overlay = {"spec": {"initContainers": [sidecar], JOIN("containers", on="name"): [main]}}
    set_overlay(one, "kubernetes", "V1Pod", overlay)
    info = create_scheduler("t").submit_dryrun(AppDef("app", [one]), {"job_api": "batch"})
    spec = info.request.objects[1]["spec"]["template"]["spec"]
    assert spec["initContainers"][0]["args"] == ["--id=$(TORCHX_REPLICA_ID)"]
    assert spec["initContainers"][0]["env"][0]["name"] == "TORCHX_REPLICA_ID"
    assert spec["containers"][0]["volumeMounts"][-1]["subPathExpr"] == "r$(TORCHX_REPLICA_ID)"
    assert [e["name"] for e in spec["containers"][0]["env"]].count("TORCHX_REPLICA_ID") == 1
