"""Registers the log sinks ``file`` and ``fsspec``."""

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.hookspecs import hookimpl
from torchx_specs.plugins.records import LogSinkPlugin


@hookimpl
def torchx_log_sinks() -> Iterable[LogSinkPlugin]:
    """Yield the log sinks."""
    yield LogSinkPlugin("file", "torchx_log_sinks.folder:FolderSink", "A folder on this machine.")
    yield LogSinkPlugin(
        "fsspec",
        "torchx_log_sinks.object_store:FsspecSink",
        "Any URL of an fsspec file system, such as s3://bucket/prefix.",
    )
