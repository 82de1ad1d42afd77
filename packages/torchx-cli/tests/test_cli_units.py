"""The parts below the commands: times, tables, log lines, merging of configuration files."""

from __future__ import annotations

import io
import itertools
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from torchx_cli import config_merge
from torchx_cli.launch.waiting import has_reached, intervals
from torchx_cli.logs import log_lines
from torchx_cli.output import printing as output
from torchx_cli.output import times
from torchx_kit.logs import file_logs
from torchx_kit.logs.file_logs import Tail
from torchx_specs import AppDef, AppState, Role
from torchx_specs.errors import BackendError, ConfigError, RequestError

if TYPE_CHECKING:
    from torchx_runner import Runner

# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("10m", 600), ("2H", 7200), ("1h30m", 5400), ("500ms", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert times.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10x", "-5", "1h30", "1 h", "soon"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        times.parse_duration(text)


def test_points_in_time() -> None:
    now = datetime(2026, 5, 1, 12, 0, 0)
    assert times.parse_when("10m", now) == datetime(2026, 5, 1, 11, 50)
    assert times.parse_when("2026-05-01") == datetime(2026, 5, 1)
    assert times.parse_when("2026-05-01T10:20:30") == datetime(2026, 5, 1, 10, 20, 30)
    zoned = datetime(2026, 5, 1, 10, tzinfo=timezone.utc)
    expected = zoned.astimezone().replace(tzinfo=None)
    assert times.parse_when("2026-05-01T10:00:00Z") == expected
    assert times.parse_when("2026-05-01T12:00:00+02:00") == expected
    with pytest.raises(ValueError, match="is no time"):
        times.parse_when("yesterday")


# -- states ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "goal", "reached"),
    [
        ("SUCCEEDED", None, True),
        ("FAILED", None, False),
        ("CANCELLED", None, False),
        ("RUNNING", None, False),
        ("RUNNING", "RUNNING", True),
        ("RUNNING", "PENDING", True),
        ("SUCCEEDED", "RUNNING", True),
        ("FAILED", "RUNNING", False),
        ("PENDING", "RUNNING", False),
        ("UNKNOWN", "PENDING", False),
        ("FAILED", "FAILED", True),
        ("SUCCEEDED", "FAILED", False),
        ("CANCELLED", "CANCELLED", True),
    ],
)
def test_has_reached(state: str, goal: str | None, reached: bool) -> None:
    assert has_reached(AppState[state], None if goal is None else AppState[goal]) is reached


def test_intervals_grow_to_a_limit() -> None:
    values = list(itertools.islice(intervals(0.5, 2.0), 6))
    assert values[0] == 0.5
    assert values == sorted(values)
    assert values[-1] == 2.0


# -- tables and data -------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", ["10", "40", "300"])
def test_a_table_is_whole_on_a_terminal_of_any_width(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", columns)
    handles = [f"kubernetes://torchx/{'a-long-name-' * n}\u65e5\u672c" for n in (1, 20)]
    output.write_table(["APP HANDLE", "APP STATUS"], [[h, "SUCCEEDED"] for h in handles])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["APP", "HANDLE", "APP", "STATUS"]
    assert [line.split() for line in lines] == [[h, "SUCCEEDED"] for h in handles]


def test_an_empty_table_has_headers_as_scripts_know_them() -> None:
    text = output.format_table(["APP HANDLE", "APP NAME", "APP STATUS"], [])
    assert text == ("APP HANDLE    APP NAME    APP STATUS\n------------  ----------  ------------")


def test_a_table_is_aligned_and_has_no_blanks_at_line_ends() -> None:
    text = output.format_table(["A", "B"], [["long cell", "x"], ["b", ""]])
    assert text.splitlines() == ["A          B", "---------  ---", "long cell  x", "b"]


def test_plain_data_keeps_what_yaml_knows_and_writes_out_the_rest() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd"

    data = {"n": 1, "b": True, "t": (1, 2.5), "o": Odd(), "x": None, 3: AppState.FAILED}
    assert output.plain(data) == {
        "n": 1,
        "b": True,
        "t": [1, 2.5],
        "o": "odd",
        "x": None,
        "3": 5,
    }


# -- log identifiers and lines ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("local_cwd://s/app", ("local_cwd://s/app", None, None)),
        ("my-sched:///app", ("my-sched:///app", None, None)),
        ("k8s://s/ns:app", ("k8s://s/ns:app", None, None)),
        ("s://s/app/", ("s://s/app", None, None)),
        ("s://s/app/r", ("s://s/app", "r", None)),
        ("s://s/app/r/", ("s://s/app", "r", None)),
        ("s://s/app/r/0", ("s://s/app", "r", (0,))),
        ("s://s/app/r/0,2-4,", ("s://s/app", "r", (0, 2, 3, 4))),
        ("s://s/app/r/1,1/", ("s://s/app", "r", (1,))),
    ],
)
def test_log_identifiers(identifier: str, expected: tuple[Any, ...]) -> None:
    assert tuple(log_lines.parse_identifier(identifier)) == expected


@pytest.mark.parametrize(
    "identifier",
    [
        "",
        "app",
        "s://app",
        "s://s/",
        "://s/a",
        "s://s//r",
        "a b://s/x",
        "s://s/a/r/x",
        "s://s/a/r/0/1",
    ],
)
def test_malformed_log_identifiers(identifier: str) -> None:
    with pytest.raises(RequestError, match="is not of the form"):
        log_lines.parse_identifier(identifier)


def test_validate_exits_as_older_programs_expect() -> None:
    log_lines.validate("local_cwd://s/app/role/0")
    with pytest.raises(SystemExit) as exit_info:
        log_lines.validate("nonsense")
    assert exit_info.value.code == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a\n", "P a\n"),
        ("a", "P a"),
        ("a\rb\n", "P a\rP b\n"),
        ("a\nb\n", "P a\nP b\n"),
        ("\n", "P \n"),
        ("a\n\nb", "P a\nP \nP b"),
        ("a\r\n", "P a\rP \n"),
        ("\ra\n", "\rP a\n"),
    ],
)
def test_prefixes(line: str, expected: str) -> None:
    assert log_lines._prefix_line("P ", line) == expected


def test_role_replicas() -> None:
    app = AppDef("a", roles=[Role("x", image="", num_replicas=2), Role("y", image="")])
    assert log_lines.find_role_replicas(app, None) == [("x", 0), ("x", 1), ("y", 0)]
    assert log_lines.find_role_replicas(app, "y") == [("y", 0)]
    assert log_lines.find_role_replicas(app, "z") == []


class FakeRunner:
    """Has the logs of replicas, and counts the threads that read them."""

    def __init__(self, logs: dict[tuple[str, int], list[str]]) -> None:
        self.logs = logs
        self.reading = 0
        self.most = 0
        self._lock = threading.Lock()

    def log_lines(self, handle: str, role: str, k: int, regex: str | None, **rest: Any) -> Any:
        with self._lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        lines = self.logs[role, k]
        if lines == ["fail"]:
            raise RuntimeError(f"no log of {role}/{k}")
        yield from lines
        with self._lock:
            self.reading -= 1


def read(runner: Any, options: log_lines.LogOptions | None = None) -> str:
    stream = io.StringIO()
    replicas = list(runner.logs)
    reader = log_lines.LogReader(
        runner, "s://s/a", replicas, options or log_lines.LogOptions(), stream
    )
    reader.read_all()
    return stream.getvalue()


def test_many_replicas_are_merged_in_whole_lines_by_few_threads() -> None:
    runner = FakeRunner(
        {("r", i): [f"{i} {n} {'x' * 50}\n" for n in range(200)] for i in range(40)}
    )
    lines = read(runner).splitlines()
    assert len(lines) == 40 * 200
    for i in range(40):
        mine = [line for line in lines if line.startswith(f"r/{i} ")]
        assert mine == [f"r/{i} {i} {n} {'x' * 50}" for n in range(200)]
    assert runner.most <= log_lines.MAX_READ


def test_followed_replicas_are_read_at_the_same_time() -> None:
    logs: dict[tuple[str, int], list[str]] = {("r", i): [] for i in range(20)}
    barrier = threading.Barrier(20, timeout=10)

    class Together(FakeRunner):
        def log_lines(self, *args: Any, **rest: Any) -> Any:
            barrier.wait()  # passed only if all of them get here
            return iter(["one\n"])

    text = read(Together(logs), log_lines.LogOptions(tail=True))
    assert text.count("one\n") == 20


class FileRunner(FakeRunner):
    """Has the logs of replicas in files that have ended; those of some are no files."""

    def __init__(self, folder: Path, count: int, others: int) -> None:
        super().__init__({("r", k): [f"{k} {n}\n" for n in range(50)] for k in range(count)})
        self.folder = folder
        self.others = others
        self.threads: set[int] = set()
        for (_, k), lines in self.logs.items():
            (folder / str(k)).write_text("".join(lines))

    def log_lines(self, handle: str, role: str, k: int, regex: str | None, **rest: Any) -> Any:
        self.threads.add(threading.get_ident())
        if k >= len(self.logs) - self.others:
            return iter(self.logs[role, k])
        tail = Tail(lambda: True, is_quick=True) if rest["should_tail"] else None
        return file_logs.log_lines(self.folder / ("none" if k == 1 else str(k)), tail=tail)


@pytest.mark.parametrize("tail", [False, True])
@pytest.mark.parametrize("others", [0, 3])
def test_files_are_read_in_one_thread(tmp_path: Path, tail: bool, others: int) -> None:
    runner = FileRunner(tmp_path, 30, others)
    stream = io.StringIO()
    options = log_lines.LogOptions(tail=tail)
    reader = log_lines.LogReader(cast("Runner", runner), "s://s/a", [*runner.logs], options, stream)
    if tail:
        reader.read_all()  # a log that never appears is empty
    else:
        with pytest.raises(BackendError, match="no log at"):
            reader.read_all()
    lines = stream.getvalue().splitlines(keepends=True)
    for role, k in runner.logs:
        mine = [line for line in lines if line.startswith(f"{role}/{k} ")]
        there = [] if k == 1 else runner.logs[role, k]
        assert mine == [f"{role}/{k} {line}" for line in there]
    assert len(lines) == 29 * 50 == reader.lines
    if not others:
        assert len(runner.threads) == 1


def test_a_closed_pipe_ends_the_following_of_files(tmp_path: Path) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    class Endless(FileRunner):
        def log_lines(self, handle: str, role: str, k: int, *args: Any, **rest: Any) -> Any:
            tail = Tail(lambda: False, check_every=0.01, is_quick=True)
            return file_logs.log_lines(self.folder / str(k), tail=tail)

    runner = Endless(tmp_path, 5, 0)
    reader = log_lines.LogReader(
        cast("Runner", runner), "s://s/a", [*runner.logs], log_lines.LogOptions(tail=True), Closed()
    )
    with pytest.raises(BrokenPipeError):
        reader.read_all()


def test_a_runner_with_a_log_lines_of_its_own_is_asked_that_way() -> None:
    from torchx_runner import Runner

    class Own(Runner):
        logs = {("r", 0): ["of the scheduler\n"]}

        def log_lines(self, *args: Any, **rest: Any) -> Any:
            return iter(["its own\n"])

    assert read(Own("s", {})) == "r/0 its own\n"


def test_a_last_line_without_its_end_is_not_glued_to_the_next() -> None:
    text = read(FakeRunner({("r", 0): ["a\n", "b"], ("r", 1): ["c"]}))
    assert sorted(text.splitlines()) == ["r/0 a", "r/0 b", "r/1 c"]


def test_the_first_failure_is_raised_after_the_other_logs_were_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = io.StringIO()
    runner: Any = FakeRunner({("r", 0): ["fail"], ("r", 1): ["fail"], ("r", 2): ["fine\n"]})
    options = log_lines.LogOptions()
    reader = log_lines.LogReader(runner, "s://s/a", list(runner.logs), options, stream)
    with pytest.raises(RuntimeError, match="no log of r/"):
        reader.read_all()
    assert stream.getvalue() == "r/2 fine\n"
    assert sum("no log of r/" in r.message for r in caplog.records) == 1


@pytest.mark.parametrize("tail", [False, True])
def test_last_lines(tail: bool) -> None:
    runner = FakeRunner({("r", 0): [f"{n}\n" for n in range(10)], ("r", 1): ["only\n"]})
    text = read(runner, log_lines.LogOptions(last=2, tail=tail))
    assert sorted(text.splitlines()) == ["r/0 8", "r/0 9", "r/1 only"]


def test_following_the_last_lines_goes_on_with_what_is_added() -> None:
    answers = iter([["1\n", "2\n", "3\n"], ["1\n", "2\n", "3\n", "4\n"]])

    class Growing(FakeRunner):
        def log_lines(self, *args: Any, **rest: Any) -> Any:
            return iter(next(answers))

    text = read(Growing({("r", 0): []}), log_lines.LogOptions(last=1, tail=True))
    assert text == "r/0 3\nr/0 4\n"


def test_a_closed_pipe_ends_the_reading() -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    def endless() -> Any:
        while True:
            yield "line\n"

    class Endless(FakeRunner):
        def log_lines(self, *args: Any, **rest: Any) -> Any:
            return endless()

    runner: Any = Endless({("r", 0): [], ("r", 1): []})
    reader = log_lines.LogReader(
        runner, "s://s/a", list(runner.logs), log_lines.LogOptions(), Closed()
    )
    with pytest.raises(BrokenPipeError):
        reader.read_all()


def test_no_replicas_at_all() -> None:
    assert read(FakeRunner({})) == ""


# -- configuration files ---------------------------------------------------------------------------

ADDITION = "[slurm]\npartition = None\ntime = 1\n\n[local_cwd]\nlog_dir = None\n\n"


def test_merging_keeps_every_byte_and_adds_what_is_missing() -> None:
    existing = "# mine\n[slurm]\n  # why\npartition: gpu ; both\n\n\n[cli:run]\nwait=true"
    merged, added = config_merge.merge(existing, ADDITION, "file")
    assert merged == (
        "# mine\n[slurm]\n  # why\npartition: gpu ; both\ntime = 1\n\n\n[cli:run]\nwait=true\n"
        "\n[local_cwd]\nlog_dir = None\n"
    )
    assert added == ["[slurm] time", "[local_cwd]"]
    again, more = config_merge.merge(merged, ADDITION, "file")
    assert again == merged
    assert more == []


def test_merging_keeps_line_ends_and_knows_either_spelling() -> None:
    merged, added = config_merge.merge(
        "[local_cwd]\r\nlogDir = /x\r\n[slurm]\r\n", ADDITION, "file"
    )
    assert merged == "[local_cwd]\r\nlogDir = /x\r\n[slurm]\r\npartition = None\r\ntime = 1\r\n"
    assert added == ["[slurm] partition", "[slurm] time"]


def test_merging_into_an_empty_file() -> None:
    merged, _ = config_merge.merge("", ADDITION, "file")
    assert merged == "[slurm]\npartition = None\ntime = 1\n\n[local_cwd]\nlog_dir = None\n"


def test_a_malformed_file_is_left_alone() -> None:
    with pytest.raises(ConfigError, match="file:1"):
        config_merge.merge("no section\n", ADDITION, "file")


def test_writing_replaces_what_a_link_points_at_and_keeps_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "real"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    config_merge.write_atomically(str(link), "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_what_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        config_merge.write_atomically(str(tmp_path / "no" / "such" / "file"), "x")
    assert list(tmp_path.iterdir()) == []
