"""Tests of commands inside the pods of apps, on the double of Kubernetes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from k8s_apps import IMAGE
from k8s_double.handle import Double

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from inside_cases import InsideCases


class TestInsidePods(InsideCases):
    run = ("-s", "kubernetes", "--workspace=")
    image = IMAGE

    @pytest.fixture
    def environment(self, environment: dict[str, str], double: Double) -> dict[str, str]:
        return {**environment, "KUBECONFIG": str(double.path)}
