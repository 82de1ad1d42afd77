"""Run the commands of a batch system, with translated errors and with retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from torchx_kit.hosts.api import Host
from torchx_kit.hosts.errors import CommandNotFoundError, HostError, HostUnreachableError
from torchx_kit.hosts.local import LocalHost
from torchx_kit.retry import Backoff, retry
from torchx_specs.errors import BackendError

#: A warning reports a command that takes longer than this number of seconds.
NOTICE_AFTER = 5.0


@contextmanager
def if_slower(seconds: float, callback: Callable[[], None]) -> Iterator[None]:
    """Call a function, in a thread, if the body of the ``with`` statement takes longer.

    Args:
        seconds: How long the body may take, in seconds.
        callback: The function.
    """
    timer = threading.Timer(seconds, callback)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class ClusterClient:
    """Client for the commands of a batch system on a host.

    Subclasses set the class variables, and override :meth:`error_summary` and :meth:`is_empty`
    where their commands need it.

    Args:
        host: Where to run the commands; by default this machine.
        timeout: How long one command may take, in seconds.
        patience: How long to retry while the batch system is unreachable, in seconds.
        sleep: Function that waits for a number of seconds.
    """

    #: The error for a command that failed.
    error: ClassVar[type[BackendError]]
    #: The error if the batch system is unreachable; a subclass of ``error``.
    unreachable_error: ClassVar[type[BackendError]]
    #: The message if a command does not exist; ``{name}`` stands for the command.
    not_installed: ClassVar[str]
    #: Parts of error messages, in lower case, that mean that the batch system is unreachable.
    unreachable_messages: ClassVar[tuple[str, ...]]
    #: Variables to set for every command.
    env: ClassVar[Mapping[str, str | None]] = {}

    def __init__(
        self,
        host: Host | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.host = host or LocalHost()
        self.timeout = timeout
        self.patience = patience
        self.sleep = sleep

    def run(
        self, *argv: str, timeout: float | None = None, env: Mapping[str, str | None] | None = None
    ) -> str:
        """Run a command once and return its standard output.

        Args:
            argv: The command and its arguments.
            timeout: How long the command may take, in seconds, instead of the client's time limit.
            env: Variables to set for the command, instead of the client's; None removes a variable.

        Raises:
            BackendError: ``error`` if the command fails or does not exist, ``unreachable_error`` if
                the batch system does not answer.
        """
        with self._slow_notice(argv[0]):
            return self._run(argv, timeout, env)

    def run_idempotent(self, *argv: str) -> str:
        """Run a command that is safe to repeat; retry while the batch system is unreachable.

        A query that finds nothing returns its output, even if the command reports an error.

        Args:
            argv: The command and its arguments.

        Raises:
            BackendError: As for :meth:`run`; ``unreachable_error`` only after ``patience`` seconds.
        """
        backoff = Backoff(self.patience, sleep=self.sleep)
        with self._slow_notice(argv[0]):
            return retry(lambda: self._run(argv, allow_empty=True), self.unreachable_error, backoff)

    def _slow_notice(self, name: str) -> AbstractContextManager[None]:
        """Log a warning if a command and its retries together take longer than NOTICE_AFTER."""
        return if_slower(NOTICE_AFTER, lambda: self._warn_of_delay(name))

    def _warn_of_delay(self, name: str) -> None:
        import logging  # imported here, so that start-up does not load it

        logging.getLogger(__name__).warning(
            "%s has not answered for %g s; an unreachable cluster is tried for %g s",
            name,
            NOTICE_AFTER,
            self.patience,
        )

    def error_summary(self, output: str) -> str:
        """Return the error messages of a command on one line, without repetitions.

        Args:
            output: The command's standard error, or its standard output if that is empty.
        """
        lines = (" ".join(line.split()) for line in output.splitlines())
        return "; ".join(dict.fromkeys(line for line in lines if line))

    def is_empty(self, summary: str) -> bool:
        """Return whether a failed command only means that there is nothing to list.

        Args:
            summary: The command's error messages.
        """
        return False

    def _run(
        self,
        argv: Sequence[str],
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
        allow_empty: bool = False,
    ) -> str:
        name = argv[0]
        try:
            result = self.host.run(
                argv, timeout=timeout or self.timeout, env=self.env if env is None else env
            )
        except CommandNotFoundError:
            raise self.error(self.not_installed.format(name=name)) from None
        except HostUnreachableError as e:
            raise self.unreachable_error(str(e)) from None
        except HostError as e:
            raise self.error(str(e)) from None
        if result.exit_code == 0:
            return result.stdout
        summary = self.error_summary(result.stderr or result.stdout)
        if allow_empty and self.is_empty(summary):
            return result.stdout
        summary = summary or f"exit code {result.exit_code}"
        is_unreachable = any(text in summary.lower() for text in self.unreachable_messages)
        raise (self.unreachable_error if is_unreachable else self.error)(f"{name}: {summary}")
