"""The attempt as a training script sees it."""

from __future__ import annotations

import os
import sys
import time

from torchx_resilience.boards import BOARD_ERRORS, FileBoard, StoreBoard, connect_store
from torchx_resilience.contract import (
    ENV_ATTEMPT,
    ENV_JOB_ID,
    ENV_RESTART_REASON,
    ENV_RESUME_DIR,
    EXIT_REQUEUE,
)
from torchx_resilience.errors import CheckpointError, ResilienceError, ResumeDirError
from torchx_resilience.folder import ResumeFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import Any, NoReturn

    from torchx_resilience.boards import Board

#: How long to wait between two looks at a board or folder, in seconds: at first, and at most.
PAUSE = 0.01
LONGEST_PAUSE = 0.5


class Attempt:
    """One attempt of a run, in one rank; :func:`attempt` creates it.

    Attributes:
        number: The number of the attempt, 0 for the first one.
        reason: Why the previous attempt ended, such as ``"preempted"``; None if there is none.
        rank: The rank of this process.
        world_size: The number of ranks.
        resume_dir: The folder that all attempts of the run share.
        resume_step: The newest step that earlier attempts have committed; None if there is none.
        resume_path: The folder of that checkpoint; None if there is none.
    """

    def __init__(self, path: str, keep: int, timeout: float) -> None:
        from pathlib import Path

        from torchx_resilience.agreement import Agreement
        from torchx_resilience.signals import StopSignals

        self._keep = keep
        self._timeout = timeout
        self.reason = os.environ.get(ENV_RESTART_REASON) or None
        distributed = _process_group()
        self.rank, self.world_size = _ranks(distributed)
        restart = _number("TORCHELASTIC_RESTART_COUNT", "0")
        store = None
        if distributed and self.world_size > 1:
            store = connect_store(distributed, timeout)
        self._folder = folder = ResumeFolder(path)
        self._signals = StopSignals()
        run = os.environ.get(ENV_JOB_ID, "")
        folder.check_run(run)
        if os.environ.get(ENV_ATTEMPT):
            self.number = _number(ENV_ATTEMPT, "")
        elif self.world_size == 1:
            self.number = folder.newest_attempt()[0] + 1
        elif store is None:
            raise ResilienceError(
                f"{ENV_ATTEMPT} is not set, so the {self.world_size} ranks cannot tell this start"
                " from earlier ones; set it to another number for each start"
            )
        else:
            store = distributed.PrefixStore(f"torchx_resilience/{restart}", store)
            if self.rank == 0:
                store.set("number", str(folder.newest_attempt()[0] + 1))
            self.number = int(store.get("number"))
        folder.begin(self.number, restart, run)
        self._signals.install()
        self.resume_dir = Path(folder.path)
        self.resume_step = max(folder.committed(), default=None)
        self.resume_path = None
        if self.resume_step is not None:
            self.resume_path = self.resume_dir / folder.committed_path(self.resume_step)
        self._board: Board | None = None
        if store is not None:
            prefix = f"torchx_resilience/{self.number}.{restart}"
            self._board = StoreBoard(distributed.PrefixStore(prefix, store))
        elif self.world_size > 1:
            self._board = FileBoard(folder.own)
        self._agreement = None
        if self._board is not None:
            self._agreement = Agreement(
                self._board, self.rank, self.world_size, self._signals, timeout
            )

    def steps(self, start: int, end: int) -> Iterator[int]:
        """Yield the steps of the loop, without those that earlier attempts have committed.

        When all steps are done, the process handles signals as before :func:`attempt`.

        Args:
            start: The first step of the run.
            end: The step after the last one.
        """
        if self.resume_step is not None:
            start = max(start, self.resume_step + 1)
        yield from range(start, end)
        if self._agreement is not None:
            self._agreement.finish(end - 1)
        self._signals.restore()

    def should_stop(self, step: int) -> bool:
        """Return whether the ranks stop after this step; all ranks get True at the same step.

        A rank stops if a stop signal has reached any rank. Call this in each rank for the same
        steps, in ascending order. It waits for other ranks only if a stop has been requested.

        Raises:
            AgreementError: The ranks could not agree on a step within the timeout.
        """
        if self._agreement is None:
            return self._signals.noted
        return self._agreement.should_stop(step)

    def time_left(self) -> float | None:
        """Return the seconds until the processes are killed.

        None if no stop is known, or if the scheduler did not say how much time there is.
        """
        return self._signals.time_left()

    def checkpoint_path(self, step: int) -> Path:
        """Return a new folder for the checkpoint of a step, the same for all ranks.

        The ranks save files with different names in it. It counts after :meth:`commit` only.

        Raises:
            CheckpointError: The step is not newer than each committed step, or the folder cannot
                be created.
            SupersededError: A newer attempt has started. This ends the process with exit code 1.
        """
        return self.resume_dir / self._folder.create(step)

    def commit(self, step: int) -> None:
        """Make the checkpoint of a step count, when all ranks have called this.

        Afterwards, the next attempt resumes from this step, and older checkpoints are deleted
        except the newest ``keep``.

        Raises:
            CheckpointError: The checkpoint cannot be committed, or another rank did not commit it
                within the timeout. The committed checkpoints are unchanged.
            SupersededError: A newer attempt has started. This ends the process with exit code 1.
        """
        board, folder = self._board, self._folder
        folder.check_newest()
        if board is not None:
            try:
                board.set(f"done-{self.rank}", str(step))
            except BOARD_ERRORS as error:
                folder.check_newest()
                raise CheckpointError(f"checkpoint of step {step}: {error}") from error
            self._wait(step, board, self._is_committed if self.rank else self._is_done)
            if self.rank:
                return
        try:
            folder.commit(step)
        except CheckpointError as error:
            if board is not None:
                try:
                    board.set("failed", f"{step} {error}")
                except BOARD_ERRORS:
                    pass  # the other ranks wait until their timeout
            raise
        try:
            folder.prune(self._keep)
        except OSError as error:
            print(f"torchx_resilience: old checkpoints remain: {error}", file=sys.stderr)

    def requeue(self) -> NoReturn:
        """End the process with the exit code that asks the scheduler for another attempt.

        Raises:
            SystemExit: Always; the exit code is 75.
        """
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        self._folder.note_requeue()
        raise SystemExit(EXIT_REQUEUE)

    def _is_done(self, step: int, board: Board) -> bool:
        """Return whether all ranks have saved their part of a step."""
        done = board.get([f"done-{rank}" for rank in range(self.world_size)])
        return done == [str(step)] * self.world_size

    def _is_committed(self, step: int, board: Board) -> bool:
        """Return whether rank 0 has committed a step.

        Raises:
            CheckpointError: It could not commit the step.
        """
        if step in self._folder.committed():
            return True
        failed = board.get(["failed"])
        number, _, message = failed[0].partition(" ") if failed else ("", "", "")
        if number == str(step):
            raise CheckpointError(message)
        return False

    def _wait(self, step: int, board: Board, condition: Callable[[int, Board], bool]) -> None:
        """Wait until a condition of a step is true.

        Raises:
            CheckpointError: It is not true within the timeout.
            SupersededError: A newer attempt has started.
        """
        latest, pause, reason = time.monotonic() + self._timeout, PAUSE, ""
        while True:
            try:
                if condition(step, board):
                    return
            except BOARD_ERRORS as error:
                reason = f" ({error})"
            self._folder.check_newest()
            if time.monotonic() > latest:
                raise CheckpointError(
                    f"checkpoint of step {step}: not all of the {self.world_size} ranks have "
                    f"committed it within {self._timeout:g} s{reason}"
                )
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def _number(name: str, default: str) -> int:
    """Return the value of a variable that is a number from 0 on.

    Raises:
        ResilienceError: It is none.
    """
    text = os.environ.get(name) or default
    if not text.isdecimal():
        raise ResilienceError(f"{name}={text!r} is not valid; it must be a number, 0 or more")
    return int(text)


def _process_group() -> Any:
    """Return ``torch.distributed`` if this process has imported and initialised it, else None."""
    module = sys.modules.get("torch.distributed")
    return module if module and module.is_available() and module.is_initialized() else None


def _ranks(distributed: Any) -> tuple[int, int]:
    """Return the rank of this process and the number of ranks.

    Args:
        distributed: ``torch.distributed``, or None.

    Raises:
        ResilienceError: A variable is not valid.
    """
    if distributed:
        return distributed.get_rank(), distributed.get_world_size()
    for rank, size in (("RANK", "WORLD_SIZE"), ("TORCHX_REPLICA_ID", "TORCHX_NUM_REPLICAS")):
        if os.environ.get(rank) and os.environ.get(size):
            return _number(rank, ""), _number(size, "")
    return 0, 1


def attempt(
    resume_dir: str | os.PathLike[str] | None = None, *, keep: int = 2, timeout: float = 1800.0
) -> Attempt:
    """Begin this process's part of an attempt; every rank calls it once, in its main thread.

    Call it after ``torch.distributed.init_process_group``, if the script has a process group. It
    installs handlers for SIGTERM, SIGUSR1 and SIGUSR2.

    Args:
        resume_dir: The resume folder if ``TORCHX_RESUME_DIR`` is not set, such as for a run
            without a scheduler. All ranks and all attempts must share it.
        keep: How many committed checkpoints to keep, at least 1.
        timeout: How long a rank waits for the others, in seconds.

    Raises:
        ResumeDirError: The resume folder is not set, cannot be written, or belongs to another run
            or user.
        ResilienceError: A variable of the environment is not valid.
        SupersededError: A newer attempt has started. This ends the process with exit code 1.
    """
    if keep < 1:
        raise ValueError(f"keep={keep} is not valid; it must be 1 or more")
    path = os.environ.get(ENV_RESUME_DIR) or os.fspath(resume_dir or "")
    if not path:
        raise ResumeDirError(
            f"{ENV_RESUME_DIR} is not set; submit the job with --resume_dir, or call "
            "attempt(resume_dir=...)"
        )
    return Attempt(path, keep, timeout)
