"""The SQLite file that the users, the workers and the tracker share."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    cpus REAL NOT NULL,
    max_retries INTEGER NOT NULL,
    tasks TEXT NOT NULL,            -- JSON, see Task
    state TEXT NOT NULL,            -- the name of an AppState
    exit_codes TEXT NOT NULL,       -- JSON, one number for each task, after the end
    restarts INTEGER NOT NULL,
    cancelled INTEGER NOT NULL,     -- 1 if a user has cancelled the job
    worker TEXT,
    reported REAL,                  -- when the worker last reported, in seconds since 1970
    message TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS jobs_by_queue ON jobs (state, queue, priority);
CREATE TABLE IF NOT EXISTS records (
    number INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    kind TEXT NOT NULL,             -- metadata, artifact or source
    key TEXT NOT NULL,
    value TEXT NOT NULL,            -- JSON
    UNIQUE (run, kind, key)
);
"""

#: How long to wait while another process writes, in seconds.
_LOCK_SECONDS = 30.0


def acme_home() -> Path:
    """Return the folder with Acme's database and logs: ``$ACME_HOME``, else ``/var/lib/acme``."""
    return Path(os.environ.get("ACME_HOME") or "/var/lib/acme")


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the database; commit at the end of the context, and roll back after an exception.

    Raises:
        sqlite3.Error: The database cannot be opened, or is locked for too long.
    """
    with closing(sqlite3.connect(path, timeout=_LOCK_SECONDS, isolation_level=None)) as connection:
        connection.executescript(_TABLES)
        # Get the lock now: otherwise another process may write between a read and a write.
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
