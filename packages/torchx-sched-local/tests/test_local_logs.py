"""Tests of the logs of replicas."""

from __future__ import annotations

import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_helpers import finish, lines, run, sh, submit

from patience import wait_for
from torchx_sched_local.logs.combined import RecordedTimes, ReplicaLogs
from torchx_sched_local.scheduler import LocalScheduler, LogIterator, create_scheduler
from torchx_sched_local.store.app_folder import AppFolder
from torchx_specs import Role
from torchx_specs.errors import BackendError, RequestError
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.log_items import PartialLine
from torchx_specs.schedulers.logs import LogQuery


def test_combined_log_has_lines_in_the_order_of_writing(scheduler: LocalScheduler) -> None:
    app_id = submit(
        scheduler, sh("echo 1; sleep 0.2; echo 2 >&2; sleep 0.2; echo 3; sleep 0.2; echo 4 >&2")
    )
    finish(scheduler, app_id)
    assert lines(scheduler, app_id) == ["1\n", "2\n", "3\n", "4\n"]


def test_incomplete_last_lines_of_both_streams_are_separate_lines(
    scheduler: LocalScheduler,
) -> None:
    app_id = submit(scheduler, sh("printf out; printf err >&2"))
    finish(scheduler, app_id)
    assert sorted(lines(scheduler, app_id)) in (["err", "out\n"], ["err\n", "out"])


def test_following_ends_with_the_replica(scheduler: LocalScheduler) -> None:
    app_id = submit(scheduler, sh("echo short; printf end", "short"), sh("sleep 100", "long"))
    assert lines(scheduler, app_id, "short", should_tail=True) == ["short\n", "end"]
    assert scheduler.describe(app_id).roles_statuses[1].replicas[0].exit_code is None


@pytest.mark.parametrize("other", [False, True])
def test_following_sees_what_processes_write_while_they_end(
    scheduler: LocalScheduler, tmp_path: Path, other: bool
) -> None:
    child = (
        f"trap 'sleep 0.3; echo saved; exit' TERM;"
        f" touch {tmp_path}/up; while :; do sleep 0.01; done"
    )
    # SIGTERM ends the shell at once, but its child writes for some more time.
    app_id = submit(scheduler, sh(f'echo started; sh -c "{child}"; true'))
    reader = create_scheduler("other") if other else scheduler
    follower = iter(reader.log_iter(app_id, "main", 0, should_tail=True))
    assert next(follower) == "started\n"
    wait_for((tmp_path / "up").exists)
    ender = threading.Thread(target=scheduler.cancel, args=[app_id])
    ender.start()
    found = list(follower)
    ender.join()
    assert "saved\n" in found


def test_three_writers_are_merged_line_by_line(scheduler: LocalScheduler) -> None:
    # Each process writes pieces of lines, so that most of the time the last lines are incomplete.
    script = """
import os, random, sys
def write(fd, name, seed):
    choice = random.Random(seed)
    text = b"".join(b"%s %d\\n" % (name, i) for i in range(5000))
    while text:
        size = choice.randrange(1, 500)
        os.write(fd, text[:size])
        text = text[size:]
child = os.fork()
write(1 if child else 2, b"parent" if child else b"child", 1)
if child:
    os.waitpid(child, 0)
    write(2, b"again", 2)
"""
    role = Role("main", image="", entrypoint="python3", args=["-c", script])
    app_id = submit(scheduler, role)
    followed = lines(scheduler, app_id, should_tail=True)
    finish(scheduler, app_id)
    assert lines(scheduler, app_id) == followed
    for name in ("parent", "child", "again"):
        mine = [line for line in followed if line.startswith(name)]
        assert mine == [f"{name} {i}\n" for i in range(5000)]
    assert len(followed) == 15000


def test_log_truncated_by_the_replica_is_read_again(scheduler: LocalScheduler) -> None:
    script = (
        'log="${TORCHELASTIC_ERROR_FILE%/*}/stdout.log"; echo a long line that goes; sleep 0.2;'
        ' : > "$log"; echo stays'
    )
    app_id = submit(scheduler, sh(script))
    finish(scheduler, app_id)
    assert lines(scheduler, app_id, streams=Stream.STDOUT) == ["stays\n"]
    assert lines(scheduler, app_id) == ["a long line that goes\n", "stays\n"]


@pytest.mark.parametrize(
    ("role", "k", "words"),
    [
        ("trainr", 0, "no role 'trainr'; did you mean 'trainer'"),
        ("trainer", 2, "has no replica 2; its replicas are 0 to 1"),
    ],
)
def test_unknown_role_or_replica_is_an_error(
    scheduler: LocalScheduler, role: str, k: int, words: str
) -> None:
    app_id = submit(scheduler, sh("true", "trainer", num_replicas=2))
    for found in (scheduler, create_scheduler("other")):
        with pytest.raises(RequestError, match=words):
            lines(found, app_id, role, k)


def test_replica_without_log_files_is_an_error(scheduler: LocalScheduler) -> None:
    from torchx_specs import AppDef

    info = scheduler.submit_dryrun(AppDef("app", [sh("exit 3")]), {})
    param = info.request.role_params["main"][0]
    param.stdout = param.stderr = param.combined = None
    app_id = scheduler.schedule(info)
    assert finish(scheduler, app_id).msg == "main/0: exit code 3"
    with pytest.raises(BackendError, match="not configured to log into a file"):
        lines(scheduler, app_id)


# -- The tests below read several logs at once.


Replica = tuple[str, int]


def read_blocks(
    scheduler: LocalScheduler, app_id: str, replicas: list[Replica], **kwargs: Any
) -> tuple[dict[Replica, list[str]], dict[Replica, Exception]]:
    """Return the lines and the errors in the result of ``read_many``, both by replica."""
    lines: dict[Replica, list[str]] = {}
    errors: dict[Replica, Exception] = {}
    for replica, found in scheduler.app_logs.read_many(app_id, replicas, LogQuery(**kwargs)):
        if isinstance(found, Exception):
            errors[replica] = found
        else:
            lines.setdefault(replica, []).extend(found)
    return lines, errors


def test_reading_many_logs_needs_no_thread_for_a_log(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    script = f"echo up; until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo done"
    app_id = submit(scheduler, sh(script, num_replicas=20))
    threads = threading.active_count()
    replicas = [("main", k) for k in range(20)]
    seen: dict[Replica, list[str]] = {replica: [] for replica in replicas}
    most_threads = 0
    for replica, found in scheduler.app_logs.read_many(
        app_id, replicas, LogQuery(should_tail=True)
    ):
        assert not isinstance(found, Exception)
        seen[replica] += found
        most_threads = max(most_threads, threading.active_count())
        if all(seen.values()):
            (tmp_path / "go").touch()
    assert seen == {replica: ["up\n", "done\n"] for replica in replicas}
    assert most_threads <= threads + 1  # the thread that reads file events


def test_many_logs_are_filtered_like_one(scheduler: LocalScheduler) -> None:
    app_id = submit(scheduler, sh("echo out 1; echo x; echo err 2 >&2"))
    finish(scheduler, app_id)
    found, _ = read_blocks(scheduler, app_id, [("main", 0)], regex="[12]", streams=Stream.STDOUT)
    assert found == {("main", 0): ["out 1\n"]}


# -- The tests below use the times at which lines were written.


def test_short_job_needs_no_times_file(scheduler: LocalScheduler, home: Path) -> None:
    found = run(scheduler, sh("echo one; echo two >&2"))
    folder = home / "local" / "test" / found.app_id / "main" / "0"
    assert sorted(path.name for path in folder.iterdir()) == [
        "combined.log",
        "stderr.log",
        "stdout.log",
    ]
    times = RecordedTimes(str(folder), "stdout.log")
    assert times.written_before(0.0) == 0
    assert times.written_before(time.time() + 60) is None


def test_times_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    folder = tmp_path / "app"
    files = AppFolder(str(folder))
    files.create("")
    logs = ReplicaLogs(
        files,
        *(str(folder / f"{name}.log") for name in ("stdout", "stderr", "combined")),
    )
    with (folder / "stdout.log").open("ab", buffering=0) as log:
        for _ in range(1000):
            log.write(b"x\n")
            logs.merge()
            clock[0] += 0.01
    logs.merge(final=True)
    assert (folder / ".times").stat().st_size / 32 < 250
    times = RecordedTimes(str(folder), "stdout.log")
    assert abs(times.written_before(1005.0) / 2 - 500) <= 11


# -- The test below merges logs after a crash.


@pytest.mark.parametrize("seed", range(5))
def test_merge_continues_after_the_death_of_the_merging_process(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = random.Random(seed)  # noqa: S311 - a seed makes the test repeatable
    clock = [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    paths = [str(tmp_path / f"{name}.log") for name in ("stdout", "stderr", "combined")]
    written: dict[str, list[str]] = {paths[0]: [], paths[1]: []}
    folder = tmp_path / "app"
    files = AppFolder(str(folder))
    files.create("")
    logs = ReplicaLogs(files, *paths)
    for i in range(300):
        path = choice.choice(paths[:2])
        line = f"{os.path.basename(path)} {i}\n"
        written[path].append(line)
        with open(path, "a") as file:
            file.write(line)
        clock[0] += choice.random() / 5
        logs.merge()
    # The merging process dies while it writes a line.
    with open(paths[2], "a") as file:
        file.write("stdout.log torn")
    again = ReplicaLogs(files, *paths)
    again.recover()
    again.merge(final=True)
    merged = Path(paths[2]).read_text().splitlines(keepends=True)
    for path, expected in written.items():
        assert [line for line in merged if line.startswith(os.path.basename(path))] == expected


# -- The tests below, up to the tests of partial lines, use LogIterator.


class Described:
    """Stands for a scheduler, but has only the method ``describe``."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def describe(self, app_id: str):
        from torchx_specs import AppState
        from torchx_specs.schedulers import DescribeAppResponse

        state = AppState.SUCCEEDED if self.ended.is_set() else AppState.RUNNING
        return DescribeAppResponse(app_id, state)


def test_iterator_yields_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    line = "x" * 100_000
    path.write_text(f"{line}\n{line}\nend")
    iterator = LogIterator("app", str(path), Described(), should_tail=False)
    assert list(iterator) == [f"{line}\n", f"{line}\n", "end"]


def test_iterator_waits_for_the_file_and_follows_it(tmp_path: Path) -> None:
    path, described = tmp_path / "log", Described()
    result: list[str] = []
    thread = threading.Thread(
        target=lambda: result.extend(LogIterator("app", str(path), described))
    )
    thread.start()
    time.sleep(0.05)
    with path.open("w") as file:
        for i in range(3):
            file.write(f"line {i}")
            file.flush()
            time.sleep(0.03)
            file.write("\n")
        file.write("end")
    described.ended.set()
    thread.join(120)
    assert result == ["line 0\n", "line 1\n", "line 2\n", "end"]


def test_iterator_without_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="finished without writing"):
        iter(LogIterator("app", str(tmp_path / "no"), Described(), should_tail=False))
    described = Described()
    described.ended.set()
    with pytest.raises(RuntimeError, match="finished without writing"):
        iter(LogIterator("app", str(tmp_path / "no"), described))


def test_iterator_subclass_may_replace_init(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("one\ntwo\n")
    checks = []

    class Mine(LogIterator):
        def __init__(self, app_id, log_file, scheduler) -> None:
            self._app_id = app_id
            self._log_file = log_file
            self._log_fp = None
            self._scheduler = scheduler
            self._app_finished = False

        def _check_finished(self) -> None:
            checks.append(1)
            if len(checks) > 2:
                self._app_finished = True

    assert list(Mine("app", str(path), None)) == ["one\n", "two\n"]
    assert len(checks) == 3


@pytest.mark.parametrize("streams", [None, Stream.STDOUT])
def test_text_without_a_newline_reaches_followers(
    scheduler: LocalScheduler, tmp_path: Path, streams: Stream | None
) -> None:
    wait = f"until [ -e {tmp_path}/{{}} ]; do sleep 0.01; done"
    script = f"echo begin; printf 10%%; {wait.format('a')}; printf '\\r20%%\\n'; printf end"
    app_id = submit(scheduler, sh(script))
    query = LogQuery(should_tail=True, streams=streams, partial=True)
    blocks = scheduler.app_logs.read_many(app_id, [("main", 0)], query)
    items: list[str] = []
    for _, block in blocks:
        assert not isinstance(block, Exception), block
        for item in block:
            items.append(item)
            if item == "10%":
                assert isinstance(item, PartialLine)
                (tmp_path / "a").touch()
    assert "".join(items) == "begin\n10%\r20%\nend"
    assert "10%" in items
    assert lines(scheduler, app_id, streams=streams) == ["begin\n", "10%\r20%\n", "end"]


# This program follows the log of a replica that writes 80 KB to each stream. No file of this
# program and its children may have more than 120 KB, so that the combined log is incomplete.
_LIMITED = """
import json, resource
from torchx_sched_local.scheduler import create_scheduler
import torchx_specs as specs
resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, 120_000))
scheduler = create_scheduler("launcher")
script = "import sys\\nfor i in range(800): print(f'o{i:099}'); print(f'e{i:099}', file=sys.stderr)"
role = specs.Role("main", image="", entrypoint=sys.executable, args=["-c", script])
app_id = scheduler.schedule(scheduler.submit_dryrun(specs.AppDef("app", [role]), {}))
print(json.dumps([app_id, list(scheduler.log_iter(app_id, "main", should_tail=True))]))
"""


def test_lines_that_could_not_be_merged_are_read_from_the_streams(
    scheduler: LocalScheduler,
    launcher: Callable[..., subprocess.Popen[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = launcher(_LIMITED)
    assert process.stdout is not None
    app_id, followed = json.load(process.stdout)
    expected = sorted(f"{stream}{i:099}\n" for stream in "oe" for i in range(800))
    assert sorted(followed) == expected
    assert sorted(lines(scheduler, app_id)) == expected
    assert "combined.log is incomplete" in caplog.text
    assert len(set(lines(scheduler, app_id, last=2)) & set(expected[-2:] + expected[798:800])) == 2
    assert lines(scheduler, app_id, regex="^o0*7$") == [f"o{7:099}\n"]
