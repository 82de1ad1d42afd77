"""The jobs of all schedulers: polled only while a page shows them, and sent as changes.

Each scheduler is polled by itself. While one does not answer, it is not polled again, so a
scheduler that hangs occupies one thread, and the jobs of the others stay up to date.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torchx_cli.commands.doctor import configured_options
from torchx_cli.output.status_text import pending_reason
from torchx_dashboard.stream import error_text
from torchx_runner.config import api as config
from torchx_runner.submissions.journal import Submission, journal_folder, submissions
from torchx_specs.errors import ConfigError, one_line
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState
from torchx_specs.redaction import masked_text

if TYPE_CHECKING:
    from datetime import datetime

    from torchx_dashboard.runners import Runners
    from torchx_specs.schedulers import ListAppResponse

#: The shortest time between two polls of a scheduler, in seconds.
INTERVAL = 2.0
#: A scheduler that needs T seconds for an answer is polled every T * SLOWNESS seconds at most.
SLOWNESS = 10.0
#: The page shows that a scheduler does not answer after this many seconds.
PATIENCE = 5.0
# The reasons of this many waiting jobs are queried again after this many seconds.
_REASONS = 20
_REASON_SECONDS = 20.0
# How many of the newest submissions are read; the journal may have ten thousand.
_SUBMISSIONS = 2000
# How many rows are in one message, so that the first rows appear soon.
_ROWS = 500
_LOADING = {"state": "loading", "error": ""}
_WAITING = (AppState.PENDING, AppState.SUBMITTED)

Row = dict[str, Any]


def milliseconds(moment: datetime | None) -> int | None:
    """Return a time in milliseconds since 1970, as browsers count."""
    return None if moment is None else round(moment.timestamp() * 1000)


class Journal:
    """The journal of this user's submissions, read again only after it has changed."""

    def __init__(self) -> None:
        self._version: object = None
        self._found: dict[tuple[str, str], Submission] = {}

    def by_app(self) -> Mapping[tuple[str, str], Submission]:
        """Return the submissions by scheduler and id of the app, the newest first."""
        try:
            version: object = os.stat(journal_folder()).st_mtime_ns
        except OSError:
            version = 0
        if version != self._version:
            found: dict[tuple[str, str], Submission] = {}
            for submission in submissions(_SUBMISSIONS):
                found.setdefault((submission.scheduler, submission.app_id), submission)
            self._version, self._found = version, found
        return self._found

    def find(self, handle: str) -> Submission | None:
        """Return the submission of an app, or None if the journal does not have it."""
        scheduler, _, app_id = parse_app_handle(handle)
        return self.by_app().get((scheduler, app_id))


class Jobs:
    """The jobs of all schedulers, as rows for the page.

    Args:
        runners: List the jobs.
        journal: Says which jobs this user submitted from this machine.
    """

    def __init__(self, runners: Runners, journal: Journal) -> None:
        self._runners = runners
        self._journal = journal
        self._rows: dict[str, dict[str, Row]] = {}
        self._schedulers: dict[str, dict[str, Any]] = {}
        self._reasons: dict[str, tuple[float, str]] = {}
        self._pages = 0
        self._polls: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self._now = {name: asyncio.Event() for name in runners.schedulers}

    def rows(self) -> dict[str, Row]:
        """Return the known jobs by handle."""
        return {handle: row for rows in self._rows.values() for handle, row in rows.items()}

    def poll_now(self, scheduler: str) -> None:
        """Poll a scheduler without a pause, because an action has changed its jobs."""
        if scheduler in self._now:
            self._now[scheduler].set()

    async def listed(self, timeout: float = PATIENCE) -> dict[str, Row]:
        """Query all schedulers once, and return the jobs of those that answer in time."""
        await self._query(self._now, timeout)
        return self.rows()

    async def query_used(self) -> None:
        """Query the schedulers in use once, so that their jobs are known before a page asks."""
        await self._query(self._used(), PATIENCE)

    async def _query(self, names: Iterable[str], timeout: float) -> None:
        polls = [asyncio.create_task(self._poll_once(name)) for name in names]
        if polls:
            await asyncio.wait(polls, timeout=timeout)

    def _used(self) -> list[str]:
        return [name for name in self._now if self.is_used(name)]

    def known(self) -> dict[str, Any]:
        """Return the newest known jobs as the first message of :meth:`messages`."""
        rows = sorted(self.rows().values(), key=_newest, reverse=True)
        return {"rows": rows[:_ROWS], "removed": [], "schedulers": self._states()}

    async def messages(self, parameters: Mapping[str, Any]) -> AsyncIterator[Any]:
        """Yield all jobs, and then their changes; polling ends with the last such iterator."""
        self._pages += 1
        try:
            if not self._polls:
                used = self._used()
                self._polls = [asyncio.create_task(self._poll(name, used)) for name in self._now]
            known: dict[str, Row] = {}
            shown: dict[str, Any] = {}
            while True:
                rows, schedulers = self.rows(), self._states()
                changed = [row for handle, row in rows.items() if known.get(handle) != row]
                removed = [handle for handle in known if handle not in rows]
                if changed or removed or schedulers != shown:
                    changed.sort(key=_newest, reverse=True)
                    for first in range(0, max(len(changed), 1), _ROWS):
                        is_last = first + _ROWS >= len(changed)
                        yield {
                            "rows": changed[first : first + _ROWS],
                            "removed": removed if is_last else [],
                            "schedulers": schedulers,
                        }
                    known, shown = rows, schedulers
                async with self._changed:
                    if self.rows() == known and self._states() == shown:
                        await self._changed.wait()
        finally:
            self._pages -= 1
            if not self._pages:
                for poll in self._polls:
                    poll.cancel()
                self._polls = []

    def _states(self) -> dict[str, Any]:
        return {name: dict(state) for name, state in self._schedulers.items()}

    async def _poll(self, name: str, used: Collection[str]) -> None:
        """Poll a scheduler until no page shows the jobs.

        Args:
            name: Name of the scheduler.
            used: The schedulers in use. The others wait for their first answers, because the
                imports of their libraries would take the time of this process.
        """
        self._schedulers.setdefault(name, dict(_LOADING))
        if name not in used:
            async with self._changed:
                await self._changed.wait_for(
                    lambda: all(self._schedulers.get(n, _LOADING) != _LOADING for n in used)
                )
        while True:
            began = time.monotonic()
            poll = asyncio.create_task(self._poll_once(name))
            try:
                done, _ = await asyncio.wait([poll], timeout=PATIENCE)
                if not done:
                    text = f"no answer for {PATIENCE:g} s"
                    kind = "silent" if self.is_used(name) else "unused"
                    await self._set_state(name, {"state": kind, "error": text})
                    await asyncio.wait([poll])
            except asyncio.CancelledError:
                poll.cancel()
                raise
            self._now[name].clear()
            with contextlib.suppress(asyncio.TimeoutError):
                pause = max(INTERVAL, SLOWNESS * (time.monotonic() - began))
                await asyncio.wait_for(self._now[name].wait(), pause)

    async def _poll_once(self, name: str) -> None:
        try:
            cfg = await asyncio.to_thread(configured_options, name)
            apps = await self._runners.of(name).list(name, cfg or None)
            journal = self._journal.by_app()
            rows = {
                app.app_handle: _row(name, app, journal.get((name, app.app_id))) for app in apps
            }
            self._rows[name] = await self._with_reasons(rows)
            state = {"state": "ok", "error": ""}
        except Exception as e:  # the page shows the error; the last known jobs stay
            kind = "error" if self.is_used(name) else "unused"
            state = {"state": kind, "error": error_text(e)}
        await self._set_state(name, state)

    def is_used(self, name: str) -> bool:
        """Return whether this user has submitted to a scheduler or has configured it."""
        if any(scheduler == name for scheduler, _ in self._journal.by_app()):
            return True
        try:
            return any(value.section == name for value in config.list_values())
        except ConfigError:  # every scheduler reports this error
            return True

    async def _set_state(self, name: str, state: dict[str, Any]) -> None:
        async with self._changed:
            self._schedulers[name] = state
            self._changed.notify_all()

    async def _with_reasons(self, rows: dict[str, Row]) -> dict[str, Row]:
        """Add the reasons of waiting jobs; only a few jobs are queried at each poll."""
        queries = 0
        for handle, row in rows.items():
            if row["state"] not in ("PENDING", "SUBMITTED"):
                self._reasons.pop(handle, None)
                continue
            asked, reason = self._reasons.get(handle, (None, ""))
            is_old = asked is None or time.monotonic() - asked > _REASON_SECONDS
            if is_old and queries < _REASONS:
                queries += 1
                status = await self._runners.of_app(handle).status(handle)
                if status is not None and status.state in _WAITING:
                    reason = masked_text(one_line(pending_reason(status)))
                self._reasons[handle] = (time.monotonic(), reason)
            row["reason"] = reason
        return rows


def _newest(row: Row) -> int:
    return int(row["began"] or 0)


def _row(scheduler: str, app: ListAppResponse, submission: Submission | None) -> Row:
    submitted = app.submitted or (submission.time if submission else None)
    return {
        "handle": app.app_handle,
        "id": parse_app_handle(app.app_handle).app_id,
        "name": app.name or (submission.name if submission else ""),
        "scheduler": scheduler,
        "state": app.state.name,
        "submitted": milliseconds(submitted),
        "started": milliseconds(app.started),
        "ended": milliseconds(app.ended),
        "began": milliseconds(submitted or app.started),
        "exit_code": app.exit_code,
        "mine": submission is not None,
        "reason": "",
    }
