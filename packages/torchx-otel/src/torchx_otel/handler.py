"""Turns the runner's events into spans."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TracerProvider,
)
from opentelemetry.util.types import AttributeValue

from torchx_otel.provider import get_provider
from torchx_specs.errors import RequestError

logger = logging.getLogger(__name__)

#: The attributes of a span, and the fields of the event that they come from.
ATTRIBUTES = {
    "torchx.api": "api",
    "torchx.session": "session",
    "torchx.scheduler": "scheduler",
    "torchx.app_id": "app_id",
    "torchx.image": "app_image",
    "torchx.workspace": "workspace",
    # The runner has masked the secrets of the options.
    "torchx.options": "runcfg",
    "torchx.cpu_time_usec": "cpu_time_usec",
}
_METADATA_PREFIX = "torchx.metadata."
_NANOSECONDS = 1000
_64_BITS = (1 << 64) - 1


class SpanHandler(logging.Handler):
    """Makes one span of each event: ``torchx.run``, ``torchx.schedule``, ``torchx.wait`` ...

    A span that is active in the calling thread becomes the parent. Otherwise all calls of this
    process share one trace, whose id is made from the session id of the process.

    Args:
        provider: Creates the spans (default: see :func:`~torchx_otel.provider.get_provider`).
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        super().__init__()
        self._provider = provider
        self._is_disabled = False

    def emit(self, record: logging.LogRecord) -> None:
        """Make a span of the event in the message of a log record.

        If the exporter is not installed, log one warning, and ignore all events.
        """
        if self._is_disabled:
            return
        try:
            # A program may set its provider after it has created the runner.
            self._provider = self._provider or get_provider()
        except RequestError as e:
            self._is_disabled = True
            logger.warning("no spans are sent: %s", e)
            return
        try:
            self._end_span(self._provider.get_tracer("torchx"), json.loads(record.getMessage()))
        except Exception:  # an error of a logging handler must not end the traced call
            self.handleError(record)

    def _end_span(self, tracer: trace.Tracer, event: Mapping[str, Any]) -> None:
        start = int(event["start_epoch_time_usec"]) * _NANOSECONDS
        context = None
        if not trace.get_current_span().get_span_context().is_valid:
            context = trace.set_span_in_context(NonRecordingSpan(_session_context(event)))
        span = tracer.start_span(
            f"torchx.{event['api']}",
            context,
            SpanKind.CLIENT,
            attributes=_attributes(event),
            start_time=start,
        )
        end = start + int(event.get("wall_time_usec") or 0) * _NANOSECONDS
        if event.get("exception_type"):
            message = event.get("exception_message") or ""
            details = {
                "exception.type": event["exception_type"],
                "exception.message": message,
                "exception.stacktrace": event.get("raw_exception") or "",
            }
            span.add_event("exception", details, end)
            span.set_status(Status(StatusCode.ERROR, f"{event['exception_type']}: {message}"))
        span.end(end)


def _attributes(event: Mapping[str, Any]) -> dict[str, AttributeValue]:
    found = {name: event.get(field) for name, field in ATTRIBUTES.items()}
    metadata = event.get("app_metadata") or {}
    found.update({f"{_METADATA_PREFIX}{key}": str(value) for key, value in metadata.items()})
    return {name: value for name, value in found.items() if value not in (None, "")}


def _session_context(event: Mapping[str, Any]) -> SpanContext:
    """Return the context that puts a span into the trace of its process."""
    try:
        number = uuid.UUID(event["session"]).int
    except ValueError:  # the user has set a session id that is not a UUID
        number = uuid.uuid5(uuid.NAMESPACE_URL, f"torchx:{event['session']}").int
    return SpanContext(number, number & _64_BITS, True, TraceFlags(TraceFlags.SAMPLED))
