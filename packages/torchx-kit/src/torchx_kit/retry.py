"""Retries of requests to a service that may be unreachable for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0


class Backoff:
    """Pauses between requests, which double, and a limit on how long a service may be unreachable.

    Args:
        limit: How long to retry an unreachable service, in seconds.
        first_pause: The first pause, in seconds.
        longest_pause: The longest pause, in seconds.
        sleep: Function that waits for a number of seconds.
        clock: Function that returns a time in seconds.
    """

    def __init__(
        self,
        limit: float,
        *,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit = limit
        self._first_pause = first_pause
        self._longest_pause = longest_pause
        self._sleep = sleep
        self._clock = clock
        self._next = first_pause
        self._unreachable_since: float | None = None

    def reset(self) -> None:
        """Start again with the first pause and the whole limit, after a success."""
        self._next = self._first_pause
        self._unreachable_since = None

    def pause(self) -> None:
        """Wait before the next request to a service that answered."""
        self._unreachable_since = None
        self._wait()

    def pause_after(self, error: Exception) -> None:
        """Wait before the next request to a service that did not answer.

        Args:
            error: The error of the request.

        Raises:
            Exception: ``error``, if the service would be unreachable for longer than the limit.
        """
        now = self._clock()
        if self._unreachable_since is None:
            self._unreachable_since = now
        if now + self._next - self._unreachable_since > self._limit:
            raise error
        self._wait()

    def _wait(self) -> None:
        self._sleep(self._next)
        self._next = min(self._next * 2, self._longest_pause)


class Outage:
    """A record that several clients of a service share, so that all of them give up, or none does.

    Args:
        clock: Function that returns a time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._answered: float | None = None
        self._given_up: Exception | None = None

    @property
    def is_given_up(self) -> bool:
        """Whether a client has given up; all other clients then give up as well."""
        return self._given_up is not None

    def answered(self) -> None:
        """Record that the service has answered a client.

        Raises:
            Exception: The error after which another client has given up.
        """
        if self._given_up is not None:
            raise self._given_up
        self._answered = self.clock()

    def unanswered(self, error: Exception, began: float) -> None:
        """Give up a request that had no answer, unless the service has answered another client.

        Args:
            error: The error of the request, after its last repetition.
            began: Time of the first attempt (:attr:`clock`).

        Raises:
            Exception: ``error``, if no client got an answer since ``began``.
        """
        if self._given_up is None and self._answered is not None and self._answered >= began:
            return
        self._given_up = self._given_up or error
        raise error


def retry(
    request: Callable[[], T],
    unreachable: type[Exception] | tuple[type[Exception], ...],
    backoff: Backoff,
) -> T:
    """Make a request, repeat it while the service is unreachable, and return the result.

    Args:
        request: Makes the request.
        unreachable: Errors that mean that the service did not answer.
        backoff: How long to wait, and when to give up.

    Raises:
        Exception: The error of the last request.
    """
    while True:
        try:
            return request()
        except unreachable as e:
            backoff.pause_after(e)
