"""Chooses the provider of spans: the program's own, or one that the environment configures."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import ProxyTracerProvider, TracerProvider

from torchx_specs.errors import RequestError
from torchx_specs.once import once

#: The variable of OpenTelemetry that names the exporter: ``otlp``, ``console`` or ``none``.
ENV_EXPORTER = "OTEL_TRACES_EXPORTER"

_GROUP = "opentelemetry_traces_exporter"
# `otlp` names a protocol. Each exporter of this protocol has a name of its own.
_EXPORTERS = {"otlp": ("otlp_proto_http", "otlp_proto_grpc")}


def get_provider() -> TracerProvider:
    """Return the program's provider, or a new one with the exporter that the environment names.

    Raises:
        RequestError: ``$OTEL_TRACES_EXPORTER`` names an exporter that is not installed.
    """
    provider = trace.get_tracer_provider()
    return _from_environment() if isinstance(provider, ProxyTracerProvider) else provider


@once
def _from_environment() -> TracerProvider:
    service = os.environ.get("OTEL_SERVICE_NAME") or "torchx"
    provider = SdkTracerProvider(resource=Resource.create({"service.name": service}))
    exporter = make_exporter(os.environ.get(ENV_EXPORTER) or "otlp")
    if exporter is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider  # at the end of the process, it sends the spans that are still in memory


def make_exporter(name: str) -> SpanExporter | None:
    """Return the exporter of this name, or None for ``none``.

    Raises:
        RequestError: The exporter is not installed.
    """
    if name == "none":
        return None
    if name == "console":
        return ConsoleSpanExporter(out=sys.stderr)  # standard output is for results
    names = _EXPORTERS.get(name, (name,))
    installed = {entry.name: entry for entry in entry_points(group=_GROUP)}
    for candidate in names:
        if candidate in installed:
            exporter: SpanExporter = installed[candidate].load()()
            return exporter
    hint = "; run: pip install 'torchx-otel[otlp]'" if name in _EXPORTERS else ""
    raise RequestError(
        f"{ENV_EXPORTER} is '{name}', and no such exporter is installed{hint}, or set it to one of:"
        f" {', '.join(sorted({'console', 'none', *installed}))}"
    )
