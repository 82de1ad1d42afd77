"""Tests of the comparison of a scheduler's methods with the contract."""

from __future__ import annotations

from typing import Any

import pytest

from torchx_specs.schedulers import Scheduler
from torchx_specs.schedulers.logs import Logs
from torchx_testing.scheduler_cases.signatures import OPTIONAL_METHODS, signature_problems


class Inherits(Scheduler[Any]):
    """Overrides nothing."""


class Extends(Scheduler[Any]):
    """Overrides methods so that they accept every call of the contract, and further ones."""

    def wait(self, app_id: str, timeout: float | None = None, verbose: bool = False) -> bool:
        return True

    def kill(self, *args: Any, **kwargs: Any) -> None:
        pass


class MissesAParameter(Scheduler[Any]):
    def wait(self, app_id: str) -> bool:  # type: ignore[override]
        return True


class RenamesAParameter(Scheduler[Any]):
    def kill(self, job: str) -> None:
        pass


class AddsARequiredParameter(Scheduler[Any]):
    def lives_in_client(self, cfg: Any, app: Any) -> bool:  # type: ignore[override]
        return True


class DropsADefault(Scheduler[Any]):
    def wait(self, app_id: str, timeout: float | None) -> bool:  # type: ignore[override]
        return True


class ReadsWithoutAQuery(Logs[Any]):
    def read(self, app_id: str, role: str, k: int) -> list[str]:  # type: ignore[override]
        return []


def test_every_optional_method_exists() -> None:
    methods = [(kind, name) for kind, names in OPTIONAL_METHODS.items() for name in names]
    assert [found for found in methods if not callable(getattr(*found))] == []


def test_compatible_overrides_have_no_problems() -> None:
    assert list(signature_problems(Inherits)) == []
    assert list(signature_problems(Extends)) == []


def test_keyword_only_parameters_of_the_contract_may_be_missing() -> None:
    class Older(Scheduler[Any]):
        def log_iter(  # type: ignore[override]
            self,
            app_id: str,
            role_name: str,
            k: int = 0,
            regex: str | None = None,
            since: Any = None,
            until: Any = None,
            should_tail: bool = False,
            streams: Any = None,
        ) -> list[str]:
            return []

    assert list(signature_problems(Older)) == []


@pytest.mark.parametrize(
    ("kind", "method", "call"),
    [
        (ReadsWithoutAQuery, "read", "all arguments by position"),
        (MissesAParameter, "wait", "all arguments by position"),
        (RenamesAParameter, "kill", "all arguments by name"),
        (AddsARequiredParameter, "lives_in_client", "all arguments by position"),
        (DropsADefault, "wait", "the required arguments"),
    ],
)
def test_a_refused_call_is_named(kind: type[Any], method: str, call: str) -> None:
    problem = f"{kind.__qualname__}.{method}: a call with {call} is not possible: "
    assert any(text.startswith(problem) for text in signature_problems(kind))
