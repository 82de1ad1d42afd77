"""The conformance suite with the API of ``--k8s-job-api``, on a real cluster or the double."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from k8s_double.handle import Double
from k8s_site import KUBECONFIG
from kubernetes import client

from torchx_runner import Runner
from torchx_sched_k8s.cluster.kubeconfig import connect
from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import Resource
from torchx_testing.scheduler_suite import SchedulerConformance


class _Suite(SchedulerConformance):
    scheduler_name = "kubernetes"
    # no node has this label, so the pods stay pending
    time_limit_cfg = {"time": "5s"}
    pending_cfg = {"node_selector": {"torchx-test": "no-such-node"}}

    def resource(self) -> Resource:
        # several apps must fit on one small node at the same time
        return Resource(cpu=0.2, gpu=0, memMB=64)

    @pytest.fixture(autouse=True)
    def _images(self, image: str) -> None:
        self.image = image  # type: ignore[misc]

    @pytest.fixture
    def cfg(self, namespace: str, api_cfg: dict[str, str], python_image: str) -> dict[str, Any]:
        return {
            **api_cfg,
            "namespace": namespace,
            "image_pull_policy": "IfNotPresent",
            # an app of several roles has a supervisor, which needs python3
            "restarts_image": python_image,
        }

    def test_exit_code_75_starts_another_attempt(self, runner: Runner, cfg: dict[str, Any]) -> None:
        if cfg["job_api"] != "batch":
            pytest.skip("only apps of plain Jobs have attempts")
        super().test_exit_code_75_starts_another_attempt(runner, cfg)

    @pytest.fixture
    def store_secret(
        self, scheduler: KubernetesScheduler, namespace: str
    ) -> Iterator[Callable[[str, str, str], object]]:
        api = client.CoreV1Api(connect())
        names = []

        def store(name: str, key: str, value: str) -> None:
            body = {"metadata": {"name": name}, "stringData": {key: value}}
            api.create_namespaced_secret(namespace, body)
            names.append(name)

        yield store
        for name in names:
            api.delete_namespaced_secret(name, namespace)


if KUBECONFIG:

    class TestRealCluster(_Suite):
        # a real cluster replaces a failed pod after 10 seconds, and again after 20
        timeout = 300.0
        poll_interval = 1.0

        @pytest.fixture
        def scheduler(
            self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
        ) -> Iterator[KubernetesScheduler]:
            monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
            scheduler = create_scheduler("conformance")
            yield scheduler
            scheduler.close()

else:

    class TestKubernetesDouble(_Suite):
        poll_interval = 0.1

        @pytest.fixture
        def scheduler(self, double: Double) -> Iterator[KubernetesScheduler]:
            scheduler = create_scheduler("conformance")
            yield scheduler
            scheduler.close()

        @pytest.fixture(autouse=True)
        def _nothing_left(self, double: Double) -> Iterator[None]:
            # this fixture starts before the fixture of the runner, so it ends after that fixture
            # has deleted the apps
            yield
            assert double.warnings() == []

    def test_a_real_cluster() -> None:
        pytest.skip("KUBECONFIG is not set: the conformance suite did not meet a real cluster")
