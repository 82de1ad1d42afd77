"""The agreement of all ranks on the step at which they stop.

Each rank learns of a stop at another time, or not at all, and ranks may be several steps apart. In
each rank, a thread talks to the others through a board, so a rank whose main thread waits in a
collective can take part. Each rank does these steps once:

1. A rank whose process gets a stop signal sets ``request``. The threads of all ranks poll it.
2. The thread of rank r, on seeing the request, freezes the rank: it sets ``passed-r`` to ``p[r]``,
   the last step for which ``should_stop`` returned False. From now on, ``should_stop`` does not
   return for a step above ``p[r]`` before the rank knows the stop step.
3. The thread of rank 0 has all values and sets ``stop`` to ``S = max(p) + 1``.
4. ``should_stop(step)`` returns ``step >= S``. Each rank confirms ``S``. Rank 0 waits for this,
   because its process may be the server of the store.

Why all ranks stop at the same step: no rank has returned False for a step from ``S`` on. Before it
froze, it returned False only for steps up to ``p[r] < S``, and a lock makes the freeze and the
answer of ``should_stop`` exclude each other. After that, it knows ``S``. So each rank gets True at
the first step from ``S`` on for which it calls ``should_stop``. The order in which values become
visible does not matter, because each rank waits for what it needs.

Why no rank waits for ever, even if each step has a collective: the threads do step 2 without the
main threads, so ``S`` is known some polls after the request. A frozen rank then goes on.
"""

from __future__ import annotations

import atexit
import threading

from torchx_resilience.boards import BOARD_ERRORS
from torchx_resilience.errors import AgreementError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from torchx_resilience.boards import Board
    from torchx_resilience.signals import StopSignals

#: How often a rank polls, in seconds: before a stop is requested, and after.
POLL = 0.5
POLL_FAST = 0.1


class Agreement:
    """The part of one rank in the agreement.

    Args:
        board: The board of this attempt.
        rank: The rank.
        world_size: The number of ranks.
        signals: The stop signals of this process.
        timeout: How long to wait for the other ranks, in seconds.
    """

    def __init__(
        self, board: Board, rank: int, world_size: int, signals: StopSignals, timeout: float
    ) -> None:
        self._board = board
        self._rank = rank
        self._world_size = world_size
        self._signals = signals
        self._timeout = timeout
        self._lock = threading.Lock()
        self._passed = -1
        self._frozen = False
        self._posted = False
        self._stop: int | None = None
        self._error = ""
        self._settled = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="torchx-resilience", daemon=True)
        self._thread.start()
        # A thread in the library of the store must not be there when the interpreter ends.
        atexit.register(self.close)

    def should_stop(self, step: int) -> bool:
        """Return whether a step is the agreed stop step, or follows it."""
        with self._lock:
            if not self._frozen:
                self._passed = step
                return False
        return step >= self._wait()

    def finish(self, last: int) -> None:
        """Take note that this rank has done its last step, so it can stop at no step up to this.

        The process may end now. So the rank answers in advance, and rank 0 also decides.
        """
        with self._lock:
            was_frozen, self._frozen = self._frozen, True
            if not was_frozen:
                self._passed = max(self._passed, last)
                if self._rank == 0:
                    self._stop = self._passed + 1
        try:
            if self._rank == 0 and not was_frozen:
                self._board.set("stop", str(self._stop))
            elif self._rank == 0:
                self._wait()
            else:
                self._board.set(f"passed-{self._rank}", str(self._passed))
                self._board.set(f"heard-{self._rank}", "")
        except BOARD_ERRORS:
            pass  # the process of rank 0 has ended, or a newer attempt has started
        self._settled.set()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join(10)

    def _wait(self) -> int:
        if not self._settled.wait(self._timeout) or self._stop is None:
            raise AgreementError(
                f"rank {self._rank}: the {self._world_size} ranks did not agree on a step to stop "
                f"at within {self._timeout:g} s; a rank has ended or has not called attempt()"
                + (f" ({self._error})" if self._error else "")
            )
        return self._stop

    def _poll(self) -> None:
        while not self._settled.is_set():
            try:
                self._exchange()
            except BOARD_ERRORS as error:
                self._error = str(error)
            if self._closing.wait(POLL_FAST if self._frozen else POLL):
                return

    def _exchange(self) -> None:
        """Do what the next step of the agreement asks from this rank, if it can be done now."""
        board, rank = self._board, self._rank
        if not self._frozen:
            request = board.get(["request"])
            if request is None:
                if not self._signals.noted:
                    return
                left = self._signals.time_left()
                board.set("request", "" if left is None else str(left))
            elif request[0]:
                self._signals.expect_end(float(request[0]))
            with self._lock:
                self._frozen = True
        if not self._posted:
            board.set(f"passed-{rank}", str(self._passed))
            self._posted = True
        if self._stop is None:
            if rank == 0:
                passed = board.get(self._keys("passed", 0))
                if passed is None:
                    return
                step = max(map(int, passed)) + 1
                board.set("stop", str(step))
                self._stop = step
            else:
                stop = board.get(["stop"])
                if stop is None:
                    return
                self._stop = int(stop[0])
        if rank:
            board.set(f"heard-{rank}", "")
        elif board.get(self._keys("heard", 1)) is None:
            return
        self._settled.set()

    def _keys(self, name: str, first: int) -> list[str]:
        return [f"{name}-{rank}" for rank in range(first, self._world_size)]
