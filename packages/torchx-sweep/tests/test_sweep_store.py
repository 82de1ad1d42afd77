"""Tests of the database of sweeps."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from torchx_sweep.store import Store, SweepRecord


def new_record(sweep_id: str) -> SweepRecord:
    values = ("test", "comp", "local_cwd", {}, "/", 0.0, 1, 0, {}, [])
    return SweepRecord(sweep_id, *values)


def in_another_process(program: str) -> str:
    program = f"from torchx_sweep.store import Store\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_second_connection_of_a_process_keeps_the_locks_of_the_first(home: Path) -> None:
    """Without its locks, the first connection would write to a log that SQLite has deleted."""
    with Store() as store:
        store.add(new_record("s"), [])
        with Store():
            pass
        in_another_process("Store().close()")
        store.set_note("s", "written")
        assert in_another_process("print(Store().sweep('s').note)") == "written"
    assert in_another_process("print(Store().sweep('s').note)") == "written"


def test_threads_that_create_the_database_together_lose_nothing(home: Path) -> None:
    def add(number: int) -> None:
        start.wait(60)
        with Store() as store:
            store.add(new_record(f"s{number}"), [])

    start = threading.Barrier(8)
    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store() as store:
        assert {record.id for record in store.sweeps()} == {f"s{number}" for number in range(8)}
    assert {path.stat().st_mode & 0o777 for path in (home / "sweeps").glob("sweeps.db*")} == {0o600}
