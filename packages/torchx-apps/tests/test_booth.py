"""Tests of the program booth: of the value, the result file and the arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchx_apps.booth import booth, main, parse_args
from torchx_apps.results import FsspecResultTracker


@pytest.mark.parametrize(
    ("x1", "x2", "value"), [(1, 3, 0), (0, 0, 74), (-10, -10, 2594), (1.5, -2, 106.25)]
)
def test_booth_value(x1: float, x2: float, value: float) -> None:
    assert booth(x1, x2) == value


def test_main_stores_and_prints_the_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--x1", "-1.5", "--x2", "2", "--tracker_base", str(tmp_path), "--trial_idx", "7"])
    assert FsspecResultTracker(str(tmp_path))[7] == {"booth_eval": booth(-1.5, 2)}
    assert (tmp_path / "7").read_text() == f'{{\n  "booth_eval": {booth(-1.5, 2)}\n}}'
    assert capsys.readouterr().out == f"booth(-1.5, 2.0) = {booth(-1.5, 2)}\n"


def test_default_arguments() -> None:
    assert vars(parse_args(["--x1", "1", "--x2", "3"])) == {
        "x1": 1.0,
        "x2": 3.0,
        "tracker_base": "/tmp/torchx-utils-booth",
        "trial_idx": 0,
    }


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--x1", "1"], "--x2"),
        (["--x1", "one", "--x2", "2"], "invalid float value: 'one'"),
        (["--x1", "1", "--x2", "2", "--trial_idx", "1.5"], "invalid int value: '1.5'"),
    ],
)
def test_invalid_arguments_are_an_error(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(argv)
    assert exited.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
