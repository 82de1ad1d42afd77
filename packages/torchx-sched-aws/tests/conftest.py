"""Fixtures of the AWS tests: botocore's service models, and an environment without AWS."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Validate = Callable[[str, str, Mapping[str, Any]], None]


@pytest.fixture(scope="session")
def validate() -> Validate:
    """Return a function that checks a request: ``validate("batch", "SubmitJob", parameters)``."""
    import botocore.session
    from botocore.validate import ParamValidator

    session = botocore.session.get_session()

    def check(service: str, operation: str, parameters: Mapping[str, Any]) -> None:
        shape = session.get_service_model(service).operation_model(operation).input_shape
        report = ParamValidator().validate(dict(parameters), shape)
        assert not report.has_errors(), report.generate_report()

    return check


@pytest.fixture(autouse=True)
def no_aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the AWS configuration, and direct requests to a closed port."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set test credentials and a region."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
