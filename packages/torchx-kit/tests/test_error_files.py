"""Tests of the shortening of errors that replicas report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.error_files import READ_BYTES, error_text
from torchx_kit.jobs.records import JobRecord
from torchx_specs.model.status import AppState, ReplicaStatus, error_of

NOTE = "[shortened; the whole error is in /e.json]"


def shown(text: str) -> str:
    content = text.encode()
    return error_text(content[:READ_BYTES], len(content), "/e.json")


@pytest.mark.parametrize("text", ["", "no json", "[[", '"\\ud800"'])
def test_short_text_is_unchanged(text: str) -> None:
    assert shown(text) == text


def test_short_json_is_compact() -> None:
    assert shown(' {"a": [1, 2]}\n') == '{"a":[1,2]}'


def test_long_error_keeps_its_format() -> None:
    message = "first line\n" + 'a "quoted" \\line é\n' * 1_000 + "ValueError: last"
    inner = {"message": message, "errorCode": 3, "extraInfo": {"timestamp": 5, "py": message}}
    text = shown(json.dumps({"message": inner}))
    assert len(text) < 20_000
    status = ReplicaStatus(0, AppState.FAILED, "main", "host", structured_error_msg=text)
    found, code, _ = error_of(status)
    assert found is not None
    assert found.startswith('first line\na "quoted" \\line é\n')
    assert NOTE in found
    assert found.endswith("ValueError: last")
    assert code == 3


@pytest.mark.parametrize(
    "text",
    [
        "x" * 100_000,
        json.dumps({"unknown": "x" * 100_000}),
        json.dumps(["x"] * 100_000),
        '{"message": {"message": "' + "\\" * 3_000_001,
        '{"message": "' + "\\u12" * 1_000_000,
        "[" * 2_000_000,
    ],
    ids=["text", "other keys", "list", "backslashes", "escapes", "nested"],
)
def test_long_text_of_any_kind_is_shortened(text: str) -> None:
    assert len(shown(text)) < 20_000
    assert NOTE in shown(text)


def test_message_of_many_small_fields_is_shortened() -> None:
    extra = {f"key{i}": i for i in range(10_000)}
    text = shown(json.dumps({"message": {"message": "short", "extraInfo": extra}}))
    assert json.loads(text)["message"]["message"] == f"short\n{NOTE}"


def test_error_in_the_record_of_a_job_is_shortened(tmp_path: Path) -> None:
    record = JobRecord(LocalHost(), str(tmp_path))
    (tmp_path / "error-0-1.json").write_text('{"message": "' + "x" * 3_000_000 + '"}')
    text = record.error(0, 1)
    assert len(text) < 10_000
    assert f"the whole error is in {tmp_path}/error-0-1.json]" in text
    assert record.error(0, 2) == ""
