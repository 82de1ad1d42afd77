"""Runs checks at the same time, with a time limit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from torchx_kit.checks import CHECK_SECONDS, on_this_machine
from torchx_specs.errors import one_line
from torchx_specs.plugins.check_results import CheckResult
from torchx_specs.redaction import masked_text

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.records import CheckPlugin

#: The subject of the checks that concern this installation, not a scheduler.
INSTALLATION = "torchx"

OK = "ok"
WARNING = "warning"
ERROR = "error"
_LEVELS = (OK, WARNING, ERROR)

Options = Callable[[str], "Mapping[str, CfgVal]"]


class Outcome(NamedTuple):
    """One line of the report.

    Attributes:
        subject: The checked part, such as a scheduler.
        check: Name of the check.
        level: ``ok``, ``warning`` or ``error``.
        message: The result, on one line.
        remedy: What the user can do; empty if there is nothing to do.
    """

    subject: str
    check: str
    level: str
    message: str
    remedy: str


def subject_of(record: CheckPlugin) -> str:
    """Return the subject of a check: its name up to the first ``:``."""
    return record.name.partition(":")[0]


def run_checks(
    records: Iterable[CheckPlugin], options: Options, timeout: float | None = None
) -> list[Outcome]:
    """Run checks, each in a thread, and return their results in the order of the checks.

    A check that raises an exception, or does not end in time, adds one error; its results up to
    then are kept.

    Args:
        records: The checks.
        options: Returns the options of a subject.
        timeout: How long all checks together may wait, in seconds (default: 5, longer on a busy
            machine). The time in which this process computes, such as the import of a library, does
            not count.
    """
    if timeout is None:
        timeout = on_this_machine(CHECK_SECONDS)
    records = list(records)
    found: list[list[Outcome]] = [[] for _ in records]
    answers: queue.SimpleQueue[tuple[int, Outcome | None]] = queue.SimpleQueue()
    waited = _Waiting()
    for number, record in enumerate(records):
        # A daemon: a check that hangs must not keep the process from ending.
        threading.Thread(
            target=_run, args=(number, record, options, answers), name=record.name, daemon=True
        ).start()
    running = set(range(len(records)))
    while running:
        try:
            number, outcome = answers.get(timeout=max(0.0, timeout - waited.seconds()))
        except queue.Empty:
            if waited.seconds() < timeout:
                continue
            break
        if outcome is None:
            running.discard(number)
        else:
            found[number].append(outcome)
    for number in running:
        record = records[number]
        problem = f"the check '{record.name}' did not end within {timeout:.3g} s"
        # The checks of the installation only compute: it is the machine that is slow.
        level, also = ERROR, "; check the network and the address of the service"
        if subject_of(record) == INSTALLATION:
            level, also = WARNING, ""
        found[number].append(_outcome(record, level, problem, f"give a longer --timeout{also}"))
    return [outcome for outcomes in found for outcome in outcomes]


class _Waiting:
    """Measures how long this process has waited: the elapsed time minus the CPU time."""

    def __init__(self) -> None:
        self._began = time.monotonic() - time.process_time()

    def seconds(self) -> float:
        """Return how long the process has waited since this object was created, in seconds."""
        return time.monotonic() - time.process_time() - self._began


def _run(
    number: int,
    record: CheckPlugin,
    options: Options,
    answers: queue.SimpleQueue[tuple[int, Outcome | None]],
) -> None:
    """Run one check; put each result into the queue, and None at the end."""
    try:
        for result in record.load()(options(subject_of(record))) or ():
            answers.put((number, _checked(record, result)))
    except BaseException as e:
        # This includes SystemExit, and the BaseException that a panic in a Rust library raises.
        answers.put((number, _broken(record, f"{type(e).__name__}: {one_line(e)}")))
    finally:
        answers.put((number, None))


def _checked(record: CheckPlugin, result: object) -> Outcome:
    if not isinstance(result, CheckResult) or result.level not in _LEVELS:
        return _broken(record, f"it yielded {result!r:.100}, which is not a valid CheckResult")
    return _outcome(record, *result)


def _broken(record: CheckPlugin, problem: str) -> Outcome:
    message = f"the check '{record.name}' of {record.origin} failed: {problem}"
    return _outcome(record, ERROR, message, f"report this to the authors of {record.origin}")


def _outcome(record: CheckPlugin, level: str, message: object, remedy: object) -> Outcome:
    subject, _, check = record.name.partition(":")
    return Outcome(
        subject, check, level, masked_text(one_line(message)), masked_text(str(remedy).strip())
    )
