"""A submission in progress: its app is recorded before the scheduler's backend can accept it.

A scheduler calls :func:`announce` with the app's id before it sends the request. The runner then
writes the journal entry. The scheduler calls :func:`withdraw` once it knows that no job of the app
exists, for example because the backend has refused the request. If the submission is interrupted
in between, its handle is logged, because the app may run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Submission:
    """A submission of this thread.

    Attributes:
        handle: The app's handle; empty before the announcement, after a withdrawal, and once the
            user has seen the handle.
        record: Records the handle of an app id in the journal, and returns this handle. The runner
            sets it. An empty id removes the record; the result is then empty, too.
    """

    def __init__(self) -> None:
        self.handle = ""
        self.record: Callable[[str], str] | None = None


_current: ContextVar[Submission | None] = ContextVar("torchx_submission", default=None)


@contextmanager
def submission() -> Iterator[Submission]:
    """Return the context of one submission; an inner context is part of the outer one.

    If the outer context ends by an exception, and the app may exist, its handle is logged.
    """
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    found = Submission()
    token = _current.set(found)
    try:
        yield found
    except BaseException:
        if found.handle:
            import logging  # imported here, so that start-up does not load it

            logging.getLogger(__name__).warning(
                "the submission of %s was interrupted, and the app may run: 'torchx status %s'"
                " shows whether it does, and 'torchx cancel %s' ends it",
                *[found.handle] * 3,
            )
        raise
    finally:
        _current.reset(token)


def announce(app_id: str) -> None:
    """Record that an app with this id may exist from now on.

    Args:
        app_id: The id. If the backend chooses the final id, the scheduler must accept this one,
            too.
    """
    current = _current.get()
    if current is not None and current.record is not None:
        current.handle = current.record(app_id)


def withdraw() -> None:
    """Record that no job of the announced app exists."""
    announce("")
