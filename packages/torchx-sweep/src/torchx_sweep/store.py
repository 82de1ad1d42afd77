"""The database of sweeps: one SQLite file, with a row for each sweep and each element."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from torchx_kit.home import TORCHX_HOME, home_path
from torchx_kit.trust import ENV_TRUSTED_FOLDERS, distrust_path
from torchx_specs.errors import BackendError, one_line
from torchx_specs.redaction import masked_text

_VERSION = 3
# How long to wait for a transaction of another process, in seconds. A transaction may write 100,000
# elements.
_BUSY_SECONDS = 120.0

# Processes may create the tables at the same time.
_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS sweeps (
    id TEXT PRIMARY KEY,
    session TEXT NOT NULL,
    component TEXT NOT NULL,
    scheduler TEXT NOT NULL,
    cfg TORCHX_JSON NOT NULL,
    folder TEXT NOT NULL,
    created REAL NOT NULL,
    max_parallel INTEGER NOT NULL,
    retries INTEGER NOT NULL,
    limits TORCHX_JSON NOT NULL,
    after TORCHX_JSON NOT NULL,
    cancelled INTEGER NOT NULL DEFAULT 0,
    note TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS elements (
    sweep TEXT NOT NULL,
    number INTEGER NOT NULL,
    parameters TORCHX_JSON NOT NULL,
    state TORCHX_STATE NOT NULL DEFAULT 'QUEUED',
    attempt INTEGER NOT NULL DEFAULT 0,
    retries INTEGER NOT NULL DEFAULT 0,
    submission TEXT NOT NULL UNIQUE,
    handle TEXT NOT NULL DEFAULT '',
    earlier TORCHX_JSON NOT NULL DEFAULT '[]',
    reason TEXT NOT NULL DEFAULT '',
    submitted REAL,
    started REAL,
    ended REAL,
    app TEXT NOT NULL,
    PRIMARY KEY (sweep, number)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS elements_by_state ON elements (sweep, state, number);
PRAGMA user_version = {_VERSION};
COMMIT;
"""
_COLUMNS = (
    "number, parameters, state, attempt, submission, handle, earlier, reason, submitted, started,"
    " ended, retries"
)
# Errors of SQLite that have other causes than damage: the disk, the permissions, other processes.
_ENVIRONMENT = re.compile("full|I/O|readonly|unable to open|locked")


class ElementState(str, Enum):
    """The state of an element."""

    QUEUED = "QUEUED"
    STARTING = "STARTING"
    SUBMITTED = "SUBMITTED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


def _read_state(content: bytes) -> ElementState:
    return ElementState(content.decode())


# sqlite3 calls these functions for values of columns with these types.
sqlite3.register_converter("TORCHX_JSON", json.loads)
sqlite3.register_converter("TORCHX_STATE", _read_state)
# The types of the values in a row. Damage of a file can change the type of a value.
_OPTIONAL_TIME = (float, type(None))
_SWEEP_TYPES = (*[str] * 4, dict, str, float, int, int, dict, list, int, str)
_ELEMENT_TYPES = (
    *(int, dict, ElementState, int, str, str, list, str),
    *[_OPTIONAL_TIME] * 3,
    *(int, str),
)
#: The states of elements that have not ended.
UNFINISHED = tuple(ElementState)[:4]
#: How the note of a sweep begins that was cancelled because of the app of ``--after``.
AFTER_REASON = "--after "


def has_unfinished(counts: Mapping[ElementState, int]) -> bool:
    """Return True if an element has not ended.

    Args:
        counts: How many elements are in each state; states without elements are absent.
    """
    return any(state in counts for state in UNFINISHED)


@dataclass
class SweepRecord:
    """A sweep, without its elements.

    Args:
        id: The sweep's id.
        session: Name of the session of its apps.
        component: The component's name, for display.
        scheduler: Name of the scheduler.
        cfg: Options of the scheduler.
        folder: The working directory of the client and of the driver.
        created: When the sweep was created, in seconds since the epoch.
        max_parallel: How many elements may run at the same time.
        retries: How many times a failed element is submitted again.
        limits: The largest sum of ``cpus``, ``gpus`` and ``memMB`` of running elements.
        after: The handle of an app or sweep that must end first, and its required outcome (``ok``,
            ``any`` or ``failed``); empty if the sweep starts at once.
        cancelled: Whether the sweep was cancelled.
        note: Why the driver submits nothing at present; empty if there is no reason.
    """

    id: str
    session: str
    component: str
    scheduler: str
    cfg: dict[str, Any]
    folder: str
    created: float
    max_parallel: int
    retries: int
    limits: dict[str, float]
    after: list[str]
    cancelled: bool = False
    note: str = ""


@dataclass
class ElementRecord:
    """An element.

    Args:
        number: The element's number in the sweep, from 0.
        parameters: The parameters.
        state: The state.
        attempt: How many times the element was queued again with a new submission id.
        submission: The submission id, which is the name of the element's app.
        handle: The app's handle; empty before the app is submitted.
        earlier: The handles of earlier attempts.
        reason: Why the element is in its state; empty if there is no reason.
        submitted: When the app was submitted, in seconds since the epoch; None before that.
        started: When the app started, in seconds since the epoch; None if unknown.
        ended: When the app ended, in seconds since the epoch; None before that. If the scheduler
            does not know the time, this is the time at which the driver saw the end.
        retries: How many times the driver has retried the element since a client queued it.
        app: The AppDef as JSON; empty unless it was requested.
    """

    number: int
    parameters: dict[str, Any]
    state: ElementState
    attempt: int
    submission: str
    handle: str = ""
    earlier: list[str] = field(default_factory=list)
    reason: str = ""
    submitted: float | None = None
    started: float | None = None
    ended: float | None = None
    retries: int = 0
    app: str = ""


class StoreError(BackendError):
    """The database cannot be read or written: the disk is full, or the file is damaged."""


class Store:
    """The database; each thread needs an object of its own.

    Raises:
        StoreError: The database cannot be opened or is damaged, another version of TorchX has
            written it, or another user can change it.
    """

    def __init__(self) -> None:
        folder = TORCHX_HOME("sweeps")
        self._path = str(folder / "sweeps.db")
        try:
            _create_file(self._path)
            _check_owners(self._path)
            status = os.stat(self._path)
        except OSError as e:
            raise StoreError(f"cannot open {self._path}: {e.strerror or e}") from None
        self._file = (status.st_dev, status.st_ino)
        with self._errors():
            self._db = sqlite3.connect(
                self._path,
                timeout=_BUSY_SECONDS,
                isolation_level="IMMEDIATE",
                detect_types=sqlite3.PARSE_DECLTYPES,
            )
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        with self._errors():
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._db.executescript(_SCHEMA)
        if version not in (0, _VERSION):
            raise StoreError(
                f"{self._path} has version {version}, but this torchx-sweep reads version"
                f" {_VERSION}; upgrade torchx-sweep, or set another TORCHX_HOME"
            )

    @staticmethod
    def exists() -> bool:
        """Return True if the database exists; do not create it."""
        return os.path.exists(home_path("sweeps", "sweeps.db"))

    def is_deleted(self) -> bool:
        """Return True if the file of the database was deleted or replaced."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != self._file

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as e:  # sqlite3 cannot decode a name of the schema
            raise self._damaged(e) from e
        except sqlite3.Error as e:
            kind = type(e)
            if kind is sqlite3.DatabaseError or (
                kind is sqlite3.OperationalError and not _ENVIRONMENT.search(str(e))
            ):
                raise self._damaged(e) from e
            raise StoreError(f"the database {self._path} cannot be used: {e}") from e

    def _damaged(self, problem: object) -> StoreError:
        return StoreError(
            f"the database {self._path} is damaged: {one_line(problem)}; move {self._path}* to"
            " another folder: the next command then creates an empty database; elements that run on"
            " other machines continue ('torchx list' shows them), queued and local elements end"
        )

    def _select(self, query: str, values: Sequence[Any], types: Sequence[Any]) -> list[Any]:
        """Return rows whose values have the given types."""
        try:
            with self._errors():
                rows = self._db.execute(query, values).fetchall()
        except ValueError as e:  # of a converter
            raise self._damaged(e) from e
        for row in rows:
            if not all(map(isinstance, row, types)):
                raise self._damaged("a value has the wrong type")
        return rows

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Run the ``with`` block as one transaction: all its changes are written, or none.

        Raises:
            StoreError: The database cannot be written, for example because the disk is full.
        """
        with self._errors(), self._db:
            yield

    # The following methods read and write sweeps.

    def add(
        self,
        sweep: SweepRecord,
        elements: Iterable[tuple[dict[str, Any], str, str]],
    ) -> None:
        """Add a sweep in one transaction.

        Args:
            sweep: The sweep.
            elements: The parameters, submission id and AppDef (JSON) of each element.
        """
        with self._transaction():
            self._db.execute(
                "INSERT INTO sweeps VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    sweep.id,
                    sweep.session,
                    sweep.component,
                    sweep.scheduler,
                    json.dumps(sweep.cfg),
                    sweep.folder,
                    sweep.created,
                    sweep.max_parallel,
                    sweep.retries,
                    json.dumps(sweep.limits),
                    json.dumps(sweep.after),
                    sweep.cancelled,
                    sweep.note,
                ),
            )
            self._db.executemany(
                "INSERT INTO elements (sweep, number, parameters, submission, app)"
                " VALUES (?,?,?,?,?)",
                (
                    (sweep.id, number, json.dumps(parameters, default=str), submission, app)
                    for number, (parameters, submission, app) in enumerate(elements)
                ),
            )

    def sweep(self, sweep_id: str) -> SweepRecord | None:
        """Return a sweep, or None if it does not exist."""
        found = self._sweeps("WHERE id = ?", (sweep_id,))
        return found[0] if found else None

    def sweeps(self) -> list[SweepRecord]:
        """Return all sweeps, the newest first."""
        return self._sweeps("ORDER BY created DESC", ())

    def _sweeps(self, condition: str, values: Sequence[Any]) -> list[SweepRecord]:
        query = f"SELECT * FROM sweeps {condition}"  # noqa: S608 - constants
        found = [SweepRecord(*row) for row in self._select(query, values, _SWEEP_TYPES)]
        for record in found:
            if not record.id.isalnum():  # it becomes a part of paths
                raise self._damaged(f"{record.id!r} is not the id of a sweep")
        return found

    def set_note(self, sweep_id: str, note: str) -> None:
        """Record why the driver submits nothing at present; an empty note removes the reason."""
        with self._transaction():
            self._db.execute("UPDATE sweeps SET note = ? WHERE id = ?", (note, sweep_id))

    def is_cancelled(self, sweep_id: str) -> bool:
        """Return True if the sweep was cancelled or deleted."""
        with self._errors():
            row = self._db.execute(
                "SELECT cancelled FROM sweeps WHERE id = ?", (sweep_id,)
            ).fetchone()
        return row is None or bool(row[0])

    def cancel(self, sweep_id: str, reason: str = "cancelled") -> None:
        """Mark a sweep as cancelled, and cancel its queued elements."""
        with self._transaction():
            self._db.execute("UPDATE sweeps SET cancelled = 1 WHERE id = ?", (sweep_id,))
            self._db.execute(
                "UPDATE elements SET state = 'CANCELLED', reason = ?, ended = ?"
                " WHERE sweep = ? AND state = 'QUEUED'",
                (reason, time.time(), sweep_id),
            )

    def delete(self, sweep_id: str) -> None:
        """Delete the rows of a sweep."""
        with self._transaction():
            self._db.execute("DELETE FROM sweeps WHERE id = ?", (sweep_id,))
            self._db.execute("DELETE FROM elements WHERE sweep = ?", (sweep_id,))

    def counts(self, sweep_id: str) -> dict[ElementState, int]:
        """Return how many elements are in each state."""
        query = "SELECT state, count(*) FROM elements WHERE sweep = ? GROUP BY state"
        found = dict(self._select(query, (sweep_id,), (ElementState, int)))
        return {state: found[state] for state in ElementState if state in found}

    def last_end(self, sweep_id: str) -> float:
        """Return when the last element ended, in seconds since the epoch; 0 if none has ended."""
        query = "SELECT max(ended) FROM elements WHERE sweep = ?"
        [(ended,)] = self._select(query, (sweep_id,), (_OPTIONAL_TIME,))
        return ended or 0.0

    # The following methods read and write elements.

    def elements(
        self,
        sweep_id: str,
        states: Sequence[ElementState] = (),
        limit: int = -1,
        *,
        first: int = 0,
        with_apps: bool = False,
    ) -> list[ElementRecord]:
        """Return elements, ordered by number.

        Args:
            sweep_id: The sweep.
            states: Only elements in one of these states; empty means all.
            limit: At most this many; -1 means all.
            first: The smallest number.
            with_apps: Whether to read the AppDefs, too.
        """
        columns = f"{_COLUMNS}, app" if with_apps else _COLUMNS
        condition = f" AND state IN ({','.join('?' * len(states))})" if states else ""
        query = (
            f"SELECT {columns} FROM elements"  # noqa: S608 - constants
            f" WHERE sweep = ? AND number >= ?{condition} ORDER BY number LIMIT ?"
        )
        values = (sweep_id, first, *(state.value for state in states), limit)
        return [ElementRecord(*row) for row in self._select(query, values, _ELEMENT_TYPES)]

    def claim(
        self,
        sweep_id: str,
        elements: Iterable[ElementRecord],
        changed: Iterable[ElementRecord] = (),
    ) -> set[int]:
        """Set queued elements to STARTING before they are submitted, and return their numbers.

        Elements that a client has changed since they were read are left out.

        Args:
            sweep_id: The sweep.
            elements: The elements to set to STARTING, as they were read.
            changed: Other elements, which are written in the same transaction.
        """
        claimed = set()
        with self._transaction():
            self._update(sweep_id, changed)
            for element in elements:
                found = self._db.execute(
                    "UPDATE elements SET state = 'STARTING'"
                    " WHERE sweep = ? AND number = ? AND state = 'QUEUED' AND submission = ?",
                    (sweep_id, element.number, element.submission),
                ).rowcount
                if found:
                    claimed.add(element.number)
        return claimed

    def update(self, sweep_id: str, elements: Iterable[ElementRecord]) -> None:
        """Write the state, attempts, handles, times and reasons of elements in one transaction."""
        with self._transaction():
            self._update(sweep_id, elements)

    def _update(self, sweep_id: str, elements: Iterable[ElementRecord]) -> None:
        self._db.executemany(
            "UPDATE elements SET state = ?, attempt = ?, submission = ?, handle = ?,"
            " earlier = ?, reason = ?, submitted = ?, started = ?, ended = ?, retries = ?"
            " WHERE sweep = ? AND number = ?",
            [
                (
                    e.state.value,
                    e.attempt,
                    e.submission,
                    e.handle,
                    json.dumps(e.earlier),
                    masked_text(e.reason),
                    e.submitted,
                    e.started,
                    e.ended,
                    e.retries,
                    sweep_id,
                    e.number,
                )
                for e in elements
            ],
        )

    def requeue(self, sweep_id: str, states: Sequence[ElementState]) -> int:
        """Queue the elements in the given states, which must be final, for another attempt.

        Returns:
            How many elements were queued.
        """
        with self._transaction():
            self._db.execute("UPDATE sweeps SET cancelled = 0, note = '' WHERE id = ?", (sweep_id,))
            records = self.elements(sweep_id, states)
            for record in records:
                queue_again(record)
                record.retries = 0
            self._update(sweep_id, records)
        return len(records)


def _create_file(path: str) -> None:
    """Create the empty file of a database with the mode 0600, unless it exists.

    SQLite gives the other files of the database the same mode. The file is not opened: when a
    process closes a file, it loses the locks of all its connections to this database. Another
    process could then delete the write-ahead log that these connections still use
    (https://www.sqlite.org/howtocorrupt.html, section 2.2).
    """
    try:
        os.mknod(path, 0o600)
    except FileExistsError:
        pass
    except OSError:
        # On macOS, only root may call mknod. A new file has no connections yet.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _check_owners(path: str) -> None:
    """Raise an error if another user can change a file of the database; the files are not opened.

    Raises:
        StoreError: Another user owns a file, or can write to it.
    """
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(FileNotFoundError):
            if reason := distrust_path(name, os.stat(name)):
                raise StoreError(
                    f"{name} is not used: {reason}; run `chmod go-w {name}` if only you have used"
                    f" it, set TORCHX_HOME to another folder, or add it to {ENV_TRUSTED_FOLDERS}"
                )


def queue_again(element: ElementRecord) -> None:
    """Set an element that has ended or was withdrawn to QUEUED, with a new submission id."""
    if element.handle:
        element.earlier.append(element.handle)
    stem, _, _ = element.submission.rpartition("-")
    element.attempt += 1
    element.submission = f"{stem}-{element.attempt}"
    element.state = ElementState.QUEUED
    element.handle = element.reason = ""
    element.submitted = element.started = element.ended = None
