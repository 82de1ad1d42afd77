"""The conformance suite of groups, on the cluster of ``KUBECONFIG`` or on the double."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from k8s_site import KUBECONFIG

from torchx_sched_k8s.scheduler import KubernetesScheduler, create_scheduler
from torchx_specs import Resource
from torchx_testing.group_suite import GroupConformance


class TestKubernetesGroups(GroupConformance):
    scheduler_name = "kubernetes"
    timeout = 300.0

    def resource(self) -> Resource:
        return Resource(cpu=0.2, gpu=0, memMB=64)

    @pytest.fixture(autouse=True)
    def _image_and_home(self, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.image = image  # type: ignore[misc]
        monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))

    @pytest.fixture
    def scheduler(
        self, request: pytest.FixtureRequest, _image_and_home: None
    ) -> Iterator[KubernetesScheduler]:
        if not KUBECONFIG:
            request.getfixturevalue("double")
        scheduler = create_scheduler("conformance")
        yield scheduler
        scheduler.close()

    @pytest.fixture
    def cfg(self, namespace: str, api_cfg: dict[str, str]) -> dict[str, Any]:
        return {**api_cfg, "namespace": namespace, "image_pull_policy": "IfNotPresent"}
