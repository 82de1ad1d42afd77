"""A client that runs the commands of a batch system, translates their errors, and retries."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from torchx_kit.batch.errors import (
    BatchError,
    EndedError,
    LimitError,
    RefusedError,
    UnreachableError,
)
from torchx_kit.hosts.api import CommandResult, Host
from torchx_kit.hosts.errors import (
    CommandNotFoundError,
    CommandTimeoutError,
    HostError,
    HostFileError,
    HostRefusedError,
    HostUnreachableError,
)
from torchx_kit.hosts.local import LocalHost
from torchx_kit.hosts.operations import Operation, Result, Run
from torchx_kit.retry import Backoff, retry
from torchx_specs.errors import CapacityError

#: Log a warning if a command takes longer than this number of seconds.
NOTICE_AFTER = 5.0


class ClusterClient:
    """Client for the commands of a batch system on a host.

    Subclasses set the class variables. They override :meth:`error_summary` if the output of a
    failed command has to be cleaned.

    Args:
        host: Where to run the commands; by default this machine.
        timeout: How long one command may take, in seconds.
        patience: How long to retry while the batch system is unreachable, in seconds.
        sleep: Function that waits for a number of seconds.
        clock: Function that returns a time in seconds.
    """

    #: The error message if a command does not exist; ``{error}`` stands for the host's message.
    not_installed: ClassVar[str]
    #: Patterns of error messages, in lower case, by the error that they mean. An error of several
    #: jobs is an EndedError only if the message about each job matches.
    messages: ClassVar[Mapping[type[BatchError], tuple[str, ...]]]
    #: Parts of the messages, in lower case, of a query that fails because there is nothing to list.
    empty_messages: ClassVar[tuple[str, ...]] = ()
    #: Environment variables to set for every command; None removes a variable.
    env: ClassVar[Mapping[str, str | None]] = {}
    #: Further environment variables of single commands, by the name of the command; None removes a
    #: variable.
    command_env: ClassVar[Mapping[str, Mapping[str, str | None]]] = {}

    #: Pattern of variables of the user's environment that commands do not get, because they would
    #: change the result of queries.
    ignored_variables: ClassVar[str] = ""

    def __init__(
        self,
        host: Host | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.host = host or LocalHost()
        self.timeout = timeout
        self.patience = patience
        self.sleep = sleep
        self.clock = clock

    def run(self, *argv: str) -> str:
        """Run a command once and return its standard output.

        Args:
            argv: The command and its arguments.

        Raises:
            UnreachableError: The batch system does not answer.
            BatchError: The command fails or does not exist.
        """
        return str(self.batch([self.command(argv)])[0])

    def run_idempotent(self, *argv: str) -> str:
        """Run a command that is safe to repeat; retry while the batch system is unreachable.

        If the command fails only because there is nothing to list (see :meth:`is_empty`), its
        output is returned, too.

        Args:
            argv: The command and its arguments.

        Raises:
            UnreachableError: The batch system has not answered for ``patience`` seconds.
            BatchError: The command fails or does not exist.
        """
        return str(self.batch([self.command(argv)], is_safe=True)[0])

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
            output: The command's standard error, or standard output if standard error is empty.
        """
        lines = (" ".join(line.split()) for line in output.splitlines())
        return "; ".join(dict.fromkeys(line for line in lines if line))

    def error_class(self, summary: str) -> type[BatchError]:
        """Return the class of the error for a command's messages.

        Args:
            summary: The result of :meth:`error_summary`.
        """
        text = summary.lower()
        for kind in (UnreachableError, LimitError, RefusedError):
            if any(re.search(pattern, text) for pattern in self.messages.get(kind, ())):
                return kind
        ended = self.messages.get(EndedError, ())
        if all(any(re.search(each, line) for each in ended) for line in text.split("; ")):
            return EndedError
        return BatchError

    def is_empty(self, summary: str) -> bool:
        """Return whether a failed command only means that there is nothing to list.

        Args:
            summary: The command's error messages.
        """
        return any(text in summary.lower() for text in self.empty_messages)

    def command(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        timeout: float | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> Run:
        """Return a command as an operation of :meth:`batch`.

        Args:
            argv: The command and its arguments.
            stdin: Its standard input.
            timeout: How long it may take, in seconds; None means the client's time limit.
            env: Environment variables to set for it; None means :attr:`env`. A variable whose value
                is None is removed.
        """
        env = {**(self.env if env is None else env), **self.command_env.get(argv[0], {})}
        if self.ignored_variables:
            pattern = re.compile(self.ignored_variables)
            ignored = filter(pattern.fullmatch, self.host.variable_names())
            env = {**dict.fromkeys(ignored), **env}
        return Run(argv, stdin, env, timeout or self.timeout)

    def batch(
        self, operations: Sequence[Operation], *, is_safe: bool = False, once: str = ""
    ) -> list[Any]:
        """Execute operations of the host in one request; see :meth:`Host.batch`.

        Args:
            operations: The operations; :meth:`command` makes the commands.
            is_safe: Whether the operations are safe to repeat. Then they are repeated while the
                batch system is unreachable, and a command that found nothing does not fail.
            once: A file of the host by which operations that are not safe may be sent again, as for
                :meth:`Host.batch`. They are sent again while a remote host is unreachable.

        Returns:
            The output of each command, the content of files, or None for other operations.

        Raises:
            BatchError: As for :meth:`run`, for the first command that failed.
            HostFileError: A file cannot be written.
        """
        if not operations:
            return []
        name = next((one.argv[0] for one in operations if isinstance(one, Run)), "the host")
        timer = threading.Timer(NOTICE_AFTER, self._warn_of_delay, (name,))
        timer.daemon = True
        timer.start()
        try:
            if not is_safe:
                return self._execute(operations, is_safe, once)
            return retry(
                lambda: self._execute(operations, is_safe), UnreachableError, self._backoff()
            )
        finally:
            timer.cancel()

    def _backoff(self) -> Backoff:
        return Backoff(self.patience, sleep=self.sleep, clock=self.clock)

    def _execute(
        self, operations: Sequence[Operation], allow_empty: bool, once: str = ""
    ) -> list[Any]:
        with self._host_errors():
            results = self._send_once(operations, once) if once else self.host.batch(operations)
        return [
            self._output(one.argv[0], result, allow_empty)
            if isinstance(one, Run) and isinstance(result, CommandResult)
            else result
            for one, result in zip(operations, results, strict=False)
        ]

    def _send_once(self, operations: Sequence[Operation], once: str) -> list[Result]:
        """Send a request; while a remote host is unreachable, send it again."""
        backoff = self._backoff()
        was_sent = False
        while True:
            try:
                return self.host.batch(operations, once=once)
            except HostUnreachableError as e:
                # A command that took too long is not repeated.
                if not self.host.name or isinstance(e, CommandTimeoutError):
                    raise
                was_sent = True
                backoff.pause_after(e)
            except HostRefusedError as e:
                if was_sent:
                    raise HostUnreachableError(str(e)) from None
                raise

    @contextmanager
    def _host_errors(self) -> Iterator[None]:
        """Translate the errors of commands; errors of files are not changed."""
        try:
            yield
        except CommandNotFoundError as e:
            raise BatchError(self.not_installed.format(error=e)) from None
        except HostUnreachableError as e:
            kind = self.error_class(str(e))
            # A command may wait as long as this user has too many jobs.
            is_limit = issubclass(kind, CapacityError)
            raise (kind if is_limit else UnreachableError)(str(e)) from None
        except HostFileError:
            raise
        except HostError as e:
            raise BatchError(str(e)) from None

    def _output(self, name: str, result: CommandResult, allow_empty: bool) -> str:
        """Return the output of a command, or raise its error."""
        if result.exit_code == 0:
            return result.stdout
        summary = self.error_summary(result.stderr or result.stdout)
        if allow_empty and self.is_empty(summary):
            return result.stdout
        summary = summary or f"exit code {result.exit_code}"
        raise self.error_class(summary)(f"{name}: {summary}")
