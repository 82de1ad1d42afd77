"""Functions that go on in the next attempt of their job, as those of submitit do.

A callable object with a method ``checkpoint(*args, **kwargs)`` is asked before its job is stopped
what the next attempt calls. The job records the answer in the folder of the call.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle

from torchx_functions.folders import PrivateFolder

#: The file with the pickled call that the next attempt continues with.
CHECKPOINT = "checkpoint.pkl"

# The contract of torchx_resilience, which jobs of functions need not have installed: the signals
# before a job is stopped, and the exit code that asks the scheduler for another attempt.
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
_EXIT_REQUEUE = 75

# The names of the method in two versions of submitit.
_METHODS = ("__submitit_checkpoint__", "checkpoint")


class DelayedSubmission:
    """The call with which the next attempt of a job continues.

    Args:
        function: The callable.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """

    def __init__(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs


def checkpoint_method(function: object) -> Callable[..., Any] | None:
    """Return the method of a callable that describes the next attempt; None if it has none."""
    found = (getattr(function, name, None) for name in _METHODS)
    return next((method for method in found if callable(method)), None)


class Checkpoints:
    """Records a checkpoint when a signal announces the end of the job, and ends the program.

    The signals keep their effect if the function has no method for checkpoints.

    Args:
        folder: The folder of the call.
        function: The function of this attempt.
        args: Its arguments.
        kwargs: Its keyword arguments.
        on_error: Records why there is no checkpoint.
    """

    def __init__(
        self,
        folder: PrivateFolder,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        on_error: Callable[[str], object],
    ) -> None:
        self._folder = folder
        self._call = function, args, kwargs
        self._on_error = on_error
        self._process = os.getpid()

    def __enter__(self) -> None:
        self._set_handlers(self._stop)

    def __exit__(self, *exc_info: object) -> None:
        # The function has ended: its outcome counts, and a signal must not lose it.
        self._set_handlers(signal.SIG_IGN)

    def _set_handlers(self, handler: Any) -> None:
        if checkpoint_method(self._call[0]) is not None:
            for number in _STOP_SIGNALS:
                signal.signal(number, handler)

    def _stop(self, number: int, frame: object) -> None:
        if os.getpid() != self._process:  # a forked child, such as a worker of a DataLoader
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return
        self._set_handlers(signal.SIG_IGN)  # further signals must not interrupt the checkpoint
        name = signal.Signals(number).name
        code = 1
        try:
            self._record()
        except BaseException as e:  # a handler's exception would continue in the function
            traceback.print_exc()
            self._on_error(f"no checkpoint was made after {name}: {type(e).__name__}: {e}")
        else:
            print(f"torchx_functions: checkpoint made after {name}", file=sys.stderr)
            code = _EXIT_REQUEUE
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # the function could catch an exception, and go on

    def _record(self) -> None:
        function, args, kwargs = self._call
        method = checkpoint_method(function)
        following = method(*args, **kwargs) if method else None
        if all(hasattr(following, name) for name in ("function", "args", "kwargs")):
            call = following.function, following.args, following.kwargs  # type: ignore[union-attr]
        elif callable(following):
            call = following, args, kwargs
        else:
            raise TypeError(
                f"checkpoint() returned {following!r:.100}; return a callable, or"
                " DelayedSubmission(callable, *args, **kwargs)"
            )
        self._folder.write(CHECKPOINT, cloudpickle.dumps(call))
