"""Tests of the spans of the runner's events, and of the choice of an exporter and a provider."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from torchx_otel.handler import SpanHandler
from torchx_otel.plugin import torchx_event_handlers
from torchx_otel.provider import make_exporter
from torchx_specs.errors import RequestError

SESSION = "6f1c2f70-3a10-4a7e-9a3f-0d6f6f0f7a11"
EVENT = {
    "session": SESSION,
    "scheduler": "slurm",
    "api": "schedule",
    "app_id": "42",
    "app_metadata": {"team": "vision"},
    "runcfg": '{"token": "***"}',
    "cpu_time_usec": 7,
    "wall_time_usec": 1500,
    "start_epoch_time_usec": 1_700_000_000_000_000,
}


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    provider = TracerProvider()
    yield provider
    provider.shutdown()


@pytest.fixture
def exporter(provider: TracerProvider) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


def send(provider: TracerProvider, *events: Any) -> None:
    handler = SpanHandler(provider)
    for event in events:
        text = event if isinstance(event, str) else json.dumps(event)
        handler.handle(logging.LogRecord("x", logging.INFO, "", 0, text, None, None))


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    [span] = exporter.get_finished_spans()
    return span


def test_a_call_is_a_span_with_its_times_and_attributes(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    send(provider, EVENT)
    span = only(exporter)
    assert span.name == "torchx.schedule"
    assert span.start_time == 1_700_000_000_000_000_000
    assert span.end_time == span.start_time + 1_500_000
    assert dict(span.attributes or {}) == {
        "torchx.api": "schedule",
        "torchx.session": SESSION,
        "torchx.scheduler": "slurm",
        "torchx.app_id": "42",
        "torchx.options": '{"token": "***"}',
        "torchx.cpu_time_usec": 7,
        "torchx.metadata.team": "vision",
    }
    assert span.status.status_code == StatusCode.UNSET


def test_the_calls_of_a_process_are_one_trace(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    send(provider, EVENT, {**EVENT, "api": "wait"}, {**EVENT, "session": "named by a user"})
    first, second, other = (span.context.trace_id for span in exporter.get_finished_spans())
    assert first == second == uuid.UUID(SESSION).int
    assert other not in (0, first)


def test_an_active_span_is_the_parent(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with provider.get_tracer("program").start_as_current_span("nightly") as nightly:
        send(provider, EVENT)
    call = exporter.get_finished_spans()[0]
    assert call.parent is not None
    assert call.parent.span_id == nightly.get_span_context().span_id


def test_a_failed_call_is_an_error(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    failure = {"exception_type": "BackendError", "exception_message": "no answer"}
    send(provider, {**EVENT, **failure, "raw_exception": "Traceback"})
    span = only(exporter)
    assert span.status.status_code == StatusCode.ERROR
    assert span.status.description == "BackendError: no answer"
    [event] = span.events
    assert dict(event.attributes or {}) == {
        "exception.type": "BackendError",
        "exception.message": "no answer",
        "exception.stacktrace": "Traceback",
    }


def test_a_malformed_event_raises_nothing(
    provider: TracerProvider, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    send(provider, "not JSON", EVENT)
    assert only(exporter).name == "torchx.schedule"


def test_an_exporter_that_is_not_installed_is_refused() -> None:
    with pytest.raises(RequestError, match="OTEL_TRACES_EXPORTER is 'otpl'"):
        make_exporter("otpl")
    assert make_exporter("none") is None


def test_the_plugin_imports_no_library_until_it_is_used() -> None:
    [record] = torchx_event_handlers()
    assert record.name == "otel"
    assert record.load() is SpanHandler
    code = "import sys, torchx_otel.plugin; sys.exit('opentelemetry' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_programs_provider_is_used(exporter: InMemorySpanExporter) -> None:
    code = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "mine = TracerProvider()\n"
        "trace.set_tracer_provider(mine)\n"
        "from torchx_otel.provider import get_provider\n"
        "assert get_provider() is mine\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert trace.get_current_span() is trace.INVALID_SPAN
