"""Tests of the database of sweeps."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx_sweep.api import _status
from torchx_sweep.handles import complete_handle
from torchx_sweep.output.tables import element_data, element_rows, status_data
from torchx_sweep.store import ElementState, Store, StoreError, SweepRecord


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


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the content of a database with three sweeps."""
    home = tmp_path_factory.mktemp("filled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHX_HOME", str(home))
        fill_database()
    return (home / "sweeps" / "sweeps.db").read_bytes()


def fill_database() -> None:
    with Store() as store:
        for number in range(3):
            record = new_record(f"s{number}")
            parameters = [
                ({"lr": n / 7, "name": f"n{n}"}, f"x-{number}-{n}", "{}") for n in range(9)
            ]
            store.add(record, parameters)
            elements = store.elements(record.id)
            for element in elements:
                element.state, element.handle = ElementState.SUCCEEDED, "slurm://torchx/12"
                element.submitted, element.ended = 1.7e9, 1.8e9
                element.earlier = ["slurm://torchx/11"]
            store.update(record.id, elements)


def use_database() -> None:
    """Read and write everything, as the commands do."""
    complete_handle("@1")
    with Store() as store:
        for record in store.sweeps():
            json.dumps([status_data(_status(store, record, 3)), store.last_end(record.id)])
            elements = store.elements(record.id)
            json.dumps([element_data(element) for element in elements])
            element_rows(elements, {})
            store.set_note(record.id, "note")
            store.requeue(record.id, [ElementState.SUCCEEDED])
            store.cancel(record.id)


@given(data=st.data())
def test_each_damage_is_one_clear_error(
    data: st.DataObject, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A damaged file ends no command with an error of a library."""
    damaged, size = bytearray(content), len(content)
    for _ in range(data.draw(st.integers(1, 12))):
        start = data.draw(st.integers(0, size - 1) | st.integers(0, 200))
        end = min(size, start + data.draw(st.sampled_from([1, 1, 1, 2, 8, 512])))
        damaged[start:end] = data.draw(st.binary(min_size=end - start, max_size=end - start))
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHX_HOME", str(home))
        Store().close()
        path = home / "sweeps" / "sweeps.db"
        path.write_bytes(damaged[: data.draw(st.just(size) | st.integers(1, size))])
        with contextlib.suppress(StoreError):
            use_database()
        for file in path.parent.glob("sweeps.db*"):  # the remedy of the error
            file.unlink()
        with Store() as store:
            assert store.sweeps() == []


@pytest.mark.parametrize(
    "change",
    [
        "sweeps SET id = '../' || id",
        "sweeps SET cfg = '{'",
        "sweeps SET after = '{}'",
        "sweeps SET created = 'x'",
        "elements SET state = 'GONE'",
        "elements SET handle = x'00'",
        "elements SET earlier = x'ff'",
        "elements SET ended = 'soon'",
        "elements SET parameters = '[]'",
    ],
)
def test_a_damaged_value_is_one_clear_error(home: Path, change: str) -> None:
    fill_database()
    path = home / "sweeps" / "sweeps.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE {change}")
    with pytest.raises(StoreError, match=rf"the database {path} is damaged: .*; move {path}\* to"):
        use_database()


@pytest.mark.parametrize("name", ["sweeps.db", "sweeps.db-wal"])
@pytest.mark.parametrize("is_theirs", [False, True])
def test_a_file_that_another_user_can_change_is_not_used(
    home: Path, name: str, is_theirs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_database()
    path = home / "sweeps" / name
    path.touch()
    if not is_theirs:
        path.chmod(0o666)
    elif os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        pytest.skip("only root can give a file away")
    reason = "belongs to the user id 12345" if is_theirs else r"other users can write to it"
    with pytest.raises(StoreError, match=f"{name} is not used: .*{reason}"):
        Store()
    monkeypatch.setenv("TORCHX_TRUSTED_FOLDERS", str(home))
    Store().close()
