"""Lists the apps of several schedulers at the same time."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torchx_specs.errors import BackendError

#: An app, or a row of a table.
T = TypeVar("T")

#: How long to wait for the answers of all schedulers, in seconds.
DEFAULT_TIMEOUT = 10.0


@dataclass
class ListedApps(Generic[T]):
    """The apps of several schedulers.

    Args:
        apps: The apps, by scheduler. A scheduler that failed has no entry.
        errors: Why a scheduler has no entry in ``apps``, by scheduler.
    """

    apps: dict[str, list[T]] = field(default_factory=dict)
    errors: dict[str, Exception] = field(default_factory=dict)


class NoAnswerError(BackendError):
    """A scheduler did not answer in time."""


def list_all(
    schedulers: Iterable[str],
    list_one: Callable[[str], list[T]],
    timeout: float = DEFAULT_TIMEOUT,
    patience: float | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    answers: queue.SimpleQueue[tuple[str, list[T] | Exception]] | None = None,
) -> ListedApps[T]:
    """Query several schedulers, each in a separate thread, and return their apps.

    Args:
        schedulers: Names of the schedulers.
        list_one: Returns the apps of one scheduler. Each call runs in its own thread. A call must
            not hold a lock that another call needs, because a scheduler may never answer.
        timeout: How long to wait for the answers of all schedulers, in seconds.
        patience: How long to wait for the others after the first answer, in seconds; None means
            until the timeout.
        clock: Function that returns a time in seconds.
        answers: The queue of the answers (default: a new one).
    """
    names = list(dict.fromkeys(schedulers))
    received = queue.SimpleQueue() if answers is None else answers

    def ask(name: str) -> None:
        try:
            received.put((name, list_one(name)))
        except Exception as e:  # another scheduler may still answer
            received.put((name, e))

    begun = clock()
    deadline = begun + timeout
    for name in names:
        # A daemon: a scheduler that hangs must not keep the process from ending.
        threading.Thread(target=ask, args=(name,), name=f"list {name}", daemon=True).start()
    answered: dict[str, list[T] | Exception] = {}
    while len(answered) < len(names):
        try:
            name, answer = received.get(timeout=max(0.0, deadline - clock()))
        except queue.Empty:
            break
        if patience is not None and not answered:
            deadline = min(deadline, clock() + patience)
        answered[name] = answer
    silence = NoAnswerError(f"no answer within {round(deadline - begun, 1):g} s")
    # The order is that of the names, not of the answers.
    found = {name: answered.get(name, silence) for name in names}
    return ListedApps(
        {name: apps for name, apps in found.items() if not isinstance(apps, Exception)},
        {name: error for name, error in found.items() if isinstance(error, Exception)},
    )
