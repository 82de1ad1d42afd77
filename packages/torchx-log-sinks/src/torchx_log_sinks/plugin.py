"""Registers the log sinks ``file`` and ``fsspec``, and what saves logs in all log sinks."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import ALL, LogSinkPlugin


@hookimpl
def torchx_log_sinks() -> Iterable[LogSinkPlugin]:
    """Yield the log sinks."""
    yield LogSinkPlugin(
        ALL, "torchx_log_sinks.copies:Copies", "Saves logs in the sinks, and reads the copies."
    )
    yield LogSinkPlugin("file", "torchx_log_sinks.sinks:FolderSink", "A folder on this machine.")
    yield LogSinkPlugin(
        "fsspec",
        "torchx_log_sinks.sinks:FsspecSink",
        "Any URL of an fsspec file system, such as s3://bucket/prefix.",
    )
