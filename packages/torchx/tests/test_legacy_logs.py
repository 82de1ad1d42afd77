"""Tests of the functions of older releases that check log identifiers and show logs."""

from __future__ import annotations

import io
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from torchx.cli.cmd_log import get_logs, validate
from torchx_specs import AppDef, AppState, AppStatus, Role


def test_validate_exits_with_1_if_the_identifier_is_malformed() -> None:
    validate("local_cwd://s/app/role/0")
    with pytest.raises(SystemExit) as exit_info:
        validate("nonsense")
    assert exit_info.value.code == 1


def test_get_logs_reads_an_object_that_is_no_runner_by_log_lines() -> None:
    app = AppDef("a", roles=[Role("r", image="", num_replicas=2)])

    def log_lines(handle: str, role: str, k: int, regex: str | None, **kw: Any) -> Iterable[str]:
        return [f"{regex} {k} {kw['should_tail']}\n"]

    double: Any = SimpleNamespace(
        status=lambda handle: AppStatus(AppState.RUNNING),
        describe=lambda handle: app,
        log_lines=log_lines,
    )
    stream = io.StringIO()
    get_logs(stream, "s://s/a", "x", runner=double)
    assert sorted(stream.getvalue().splitlines()) == ["r/0 x 0 False", "r/1 x 1 False"]
