"""The parts below the commands: times, tables, log lines, merging of configuration files."""

from __future__ import annotations

import itertools
from datetime import datetime, timezone
from pathlib import Path

import pytest

from torchx_cli import config_merge
from torchx_cli.launch.waiting import has_reached, intervals
from torchx_cli.output import printing as output
from torchx_cli.output import times
from torchx_specs import AppState
from torchx_specs.errors import ConfigError

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
    assert output.to_plain_data(data) == {
        "n": 1,
        "b": True,
        "t": [1, 2.5],
        "o": "odd",
        "x": None,
        "3": 5,
    }


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
    config_merge.replace_file(str(link), "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_what_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        config_merge.replace_file(str(tmp_path / "no" / "such" / "file"), "x")
    assert list(tmp_path.iterdir()) == []
