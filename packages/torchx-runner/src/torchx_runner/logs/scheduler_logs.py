"""Reads the logs of replicas by calling the methods of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from torchx_runner.logs.last_lines import keep_last
from torchx_runner.logs.parallel import Replica, read_in_threads
from torchx_runner.older_signatures import accepts_parameter

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_specs.schedulers import Scheduler, Stream

#: A replica, and either lines of its log or the error that ended its log.
Block = tuple[Replica, Iterable[str] | Exception]


def read_blocks(
    scheduler: Scheduler[Any],
    app_id: str,
    replicas: Iterable[Replica],
    since: datetime | None,
    until: datetime | None,
    should_tail: bool,
    streams: Stream | None,
    *,
    last: int | None,
    partial: bool,
) -> Iterator[Block]:
    """Read logs by the scheduler's ``log_blocks``, or by one call of ``log_iter`` for each replica.

    Methods of older schedulers lack the parameters ``last`` and ``partial``. If they lack ``last``,
    this function reads the whole logs and keeps their last lines. If they lack ``partial``, it
    returns complete lines only.
    """
    from torchx_kit.closing import closing_of  # imported here, so that help does not load it

    closing = closing_of(scheduler)

    def read(replicas: Iterable[Replica], should_tail: bool, **options: Any) -> Iterator[Block]:
        if partial and should_tail:
            options["partial"] = True
        blocks = scheduler.log_blocks(
            app_id,
            replicas,
            None,
            since,
            until,
            should_tail,
            streams=streams,
            **_accepted(scheduler.log_blocks, options),
        )
        if blocks is not None:
            return blocks
        options = _accepted(scheduler.log_iter, options)

        def read_log(role: str, k: int) -> Iterable[str]:
            return scheduler.log_iter(
                app_id, role, k, None, since, until, should_tail, streams, **options
            )

        if should_tail:  # do not begin to follow further logs after the scheduler was closed
            replicas = takewhile(lambda _: not closing.is_set(), replicas)
        return read_in_threads(read_log, replicas, should_tail)

    if last is None:
        return read(replicas, should_tail)
    methods = (scheduler.log_blocks, scheduler.log_iter)
    if all(accepts_parameter(method, "last") for method in methods):
        return read(replicas, should_tail, last=last)
    return keep_last(read, replicas, last, should_tail)


def _accepted(method: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if accepts_parameter(method, name)}
