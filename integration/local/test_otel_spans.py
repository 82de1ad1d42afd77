"""Tests of the spans that torchx-otel exports for a real run, with OpenTelemetry's exporters."""

from __future__ import annotations

import json
from typing import Any


def _spans(text: str) -> list[dict[str, Any]]:
    """Return the spans in a text that also has log messages."""
    decoder = json.JSONDecoder()
    found = []
    start = text.find("{\n")
    while start >= 0:
        span, end = decoder.raw_decode(text, start)
        found.append(span)
        start = text.find("{\n", end)
    return found


def test_a_run_and_its_calls_are_spans_of_one_trace(
    torchx: Any, environment: dict[str, str]
) -> None:
    environment.update(TORCHX_EVENTS="otel", OTEL_TRACES_EXPORTER="console")
    run = ["run", "-s", "local_cwd", "--detach", "utils.echo", "--msg", "hello"]
    done = torchx(*run)
    assert done.returncode == 0, done.stderr
    handle = done.stdout.strip()
    assert handle.startswith("local_cwd://torchx/")
    spans = {span["name"]: span for span in _spans(done.stderr)}
    assert {"torchx.dryrun", "torchx.schedule"} <= spans.keys()
    assert len({span["context"]["trace_id"] for span in spans.values()}) == 1
    assert spans["torchx.schedule"]["attributes"]["torchx.app_id"] == handle.rpartition("/")[2]

    failed = torchx(
        "run", "-s", "local_cwd", "-cfg", "log_dir=/proc/x", "utils.echo", "--msg", "hi"
    )
    assert failed.returncode != 0
    statuses = [span["status"]["status_code"] for span in _spans(failed.stderr)]
    assert "ERROR" in statuses
