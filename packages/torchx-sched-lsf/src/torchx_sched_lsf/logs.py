"""The logs of a replica: files beside the job, read while they are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import chain

from torchx_specs.errors import BackendError
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.file_logs import Tail, log_lines, merged

_SUFFIXES = {
    Stream.STDOUT: ("out",),
    Stream.STDERR: ("err",),
    Stream.COMBINED: ("out", "err"),
}


def log_files(base: str, stream: Stream) -> list[str]:
    """Returns the paths of a replica's logs, which begin with ``base``."""
    return [f"{base}.{suffix}" for suffix in _SUFFIXES[stream]]


def read(paths: list[str], regex: str | None) -> Iterable[str]:
    """Returns the lines that are there now; with two files, one after the other.

    Raises:
        BackendError: (while reading) a file can't be read
        RequestError: ``regex`` is no regular expression
    """
    return chain.from_iterable([log_lines(path, regex) for path in paths])


def follow(
    paths: list[str], regex: str | None, is_finished: Callable[[], bool], watch: list[str]
) -> Iterable[str]:
    """Returns the lines as they are written, until the replica has ended; with two files, each
    line when it comes.
    """
    tails = [log_lines(path, regex, tail=Tail(is_finished, watch=watch)) for path in paths]
    return tails[0] if len(tails) == 1 else merged(tails)


def missing(paths: list[str], report: str) -> BackendError:
    """Returns an error for logs that aren't there; LSF's own report may say more."""
    text = f"no log at {paths[0]}: it was removed, or the replica never started"
    return BackendError(f"{text}; see {report}" if os.path.exists(report) else text)
