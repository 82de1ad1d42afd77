"""Functions that other programs call to check log identifiers and to show logs.

``torchx.cli.cmd_log`` and ``torchx.util.log_tee_helpers`` also export these functions.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any, TextIO

from torchx_cli.logs.reader import LogReader, prefix_line
from torchx_cli.logs.replicas import LogSource, parse_identifier, started_replicas
from torchx_cli.output.colors import ENDC, GREEN
from torchx_cli.runner_context import log_blocks_of, open_runner
from torchx_specs.errors import RequestError
from torchx_specs.schedulers.logs import LogQuery

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.schedulers import Stream

logger = logging.getLogger(__name__)


def validate(job_identifier: str) -> None:
    """Exit with 1 if a log identifier is malformed."""
    try:
        parse_identifier(job_identifier)
    except RequestError as e:
        logger.error("%s", e)
        sys.exit(1)


def get_logs(
    file: TextIO,
    identifier: str,
    regex: str | None,
    should_tail: bool = False,
    runner: Runner | None = None,
    streams: Stream | None = None,
) -> None:
    """Wait until an app has started, and write the logs that an identifier selects.

    Each line comes after ``role/replica``.

    Args:
        file: Where the lines are written.
        identifier: ``scheduler://session/app[/role[/replicas]]``.
        regex: Only lines in which this regular expression is found.
        should_tail: Follow the logs until the replicas have ended.
        runner: The runner to use; None creates a runner. If the object is not a ``Runner``, such as
            a test double, its method ``log_lines`` reads the logs.
        streams: Standard output, standard error or both; None means the scheduler's default.

    Raises:
        RequestError: The identifier is malformed, or the app has no such role or replica.
        UnknownAppException: The app does not exist.
    """
    if runner is None:
        with open_runner() as own:
            get_logs(file, identifier, regex, should_tail, own, streams)
        return
    source = parse_identifier(identifier)
    replicas = started_replicas(runner, source)
    query = LogQuery(regex=regex, should_tail=should_tail, streams=streams)
    colorize = bool(GREEN and ENDC)
    log_blocks = log_blocks_of(runner)
    LogReader(log_blocks, source.app_handle, query, file, colorize).read_all(replicas)


def tee_logs(
    dst: TextIO,
    app_handle: str,
    regex: str | None,
    runner: Runner,
    should_tail: bool = False,
    streams: Stream | None = None,
    colorize: bool = False,
) -> threading.Thread:
    """Return a daemon thread, not yet started, that copies the logs of an app once it has started.

    Args:
        dst: Where the lines are written.
        app_handle: The app.
        regex: Only lines in which this regular expression is found.
        runner: The runner to use, as for :func:`get_logs`.
        should_tail: Follow the logs until the replicas have ended.
        streams: Standard output, standard error or both; None means the scheduler's default.
        colorize: Whether to colour the name of the replica.
    """

    def copy() -> None:
        replicas = started_replicas(runner, LogSource(app_handle))
        query = LogQuery(regex=regex, should_tail=should_tail, streams=streams)
        LogReader(log_blocks_of(runner), app_handle, query, dst, colorize).read_all(replicas)

    return threading.Thread(target=copy, name="tee-logs", daemon=True)


def print_log_lines(
    file: TextIO,
    runner: Runner,
    app_handle: str,
    role_name: str,
    replica_id: int,
    regex: str | None,
    should_tail: bool,
    exceptions: Any,
    streams: Stream | None = None,
) -> None:
    """Copy the log of one replica to ``file``, each line after the role and index in green.

    An exception is put into the queue ``exceptions``, and raised as well.
    """
    try:
        for line in runner.log_lines(
            app_handle, role_name, replica_id, regex, should_tail=should_tail, streams=streams
        ):
            file.write(prefix_line(f"{GREEN}{role_name}/{replica_id}{ENDC} ", line))
    except Exception as e:
        exceptions.put(e)
        raise
