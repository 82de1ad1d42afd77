"""Tests of grids, zips, files of rows and samples."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from torchx_specs.errors import RequestError
from torchx_sweep.parameters import (
    Axis,
    check_names,
    combine,
    file_axis,
    text_axis,
    value_axis,
)


def grid_axis(text: str, integers: Collection[str] = ()) -> Axis:
    return text_axis([text], "--grid", integers)


def zip_axis(texts: list[str]) -> Axis:
    return text_axis(texts, "--zip")


def values(*axes: Axis) -> list[dict[str, object]]:
    return [parameters.values for parameters in combine(axes)]


def test_a_grid_has_all_combinations_and_the_last_axis_changes_fastest() -> None:
    axes = grid_axis("lr=1e-3,1e-4"), grid_axis("seed=0:2", {"seed"})
    assert values(*axes) == [
        {"lr": "1e-3", "seed": 0},
        {"lr": "1e-3", "seed": 1},
        {"lr": "1e-4", "seed": 0},
        {"lr": "1e-4", "seed": 1},
    ]


def test_a_range_has_a_step() -> None:
    assert values(grid_axis("n=0:8:3", {"n"})) == [{"n": 0}, {"n": 3}, {"n": 6}]
    assert values(grid_axis("n=3:0:-1", {"n"})) == [{"n": 3}, {"n": 2}, {"n": 1}]


def test_a_range_of_a_text_parameter_is_a_text() -> None:
    assert values(grid_axis("image=repo:8")) == [{"image": "repo:8"}]
    assert values(grid_axis("ratio=1:8")) == [{"ratio": "1:8"}]


def test_quotes_protect_a_comma() -> None:
    assert values(grid_axis('msg="a,b",c')) == [{"msg": "a,b"}, {"msg": "c"}]


def test_parameters_of_a_zip_change_together() -> None:
    assert values(zip_axis(["a=1,2", "b=3,4"])) == [{"a": "1", "b": "3"}, {"a": "2", "b": "4"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "--grid lr: write NAME=VALUE,VALUE, such as lr=1e-3,1e-4"),
        ("=1", "--grid =1: write NAME=VALUE,VALUE, such as lr=1e-3,1e-4"),
        ("lr=", "--grid lr=: the parameter 'lr' has no values"),
        ("n=8:8", "--grid n=8:8: the parameter 'n' has no values"),
        ("n=0:8:0", "--grid n=0:8:0: the step of a range must not be 0"),
    ],
)
def test_a_malformed_grid_is_refused(text: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        grid_axis(text, {"n"})
    assert str(caught.value) == message


class ArrayLike:
    """Has the methods of a list that an array of numpy has."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, i: int) -> float:
        return i / 2


def test_values_may_be_an_array() -> None:
    axis: Any = {"lr": ArrayLike()}
    assert values(value_axis(axis, "grid")) == [{"lr": 0.0}, {"lr": 0.5}]


def test_values_that_are_a_dict_are_refused() -> None:
    axis: Any = {"lr": {0: 1}}
    with pytest.raises(RequestError, match=r"the parameter 'lr' are \{0: 1\}; give a list"):
        value_axis(axis, "grid")


def test_a_zip_of_different_lengths_is_refused() -> None:
    with pytest.raises(RequestError, match=r"equally many values.*a has 2, b has 1"):
        zip_axis(["a=1,2", "b=3"])


def test_a_parameter_in_two_axes_is_refused() -> None:
    with pytest.raises(RequestError, match="the parameter 'a' is in --grid and --zip"):
        combine([grid_axis("a=1"), zip_axis(["a=1"])])


def test_a_sweep_without_parameters_is_refused() -> None:
    with pytest.raises(RequestError, match="give --grid, --zip or --from"):
        combine([])


def test_too_many_elements_are_refused_with_their_number_unless_confirmed() -> None:
    axis = grid_axis("n=0:10000000", {"n"})
    with pytest.raises(RequestError, match="the sweep has 10,000,000 elements, more than 100,000"):
        combine([axis])
    assert len(combine([value_axis({"n": range(100_001)}, "grid")], confirmed=True)) == 100_001


def test_a_sample_has_distinct_combinations_and_its_seed_repeats_it() -> None:
    axes = [grid_axis("n=0:10000000", {"n"}), grid_axis("lr=1,2")]
    first, again, other = (combine(axes, 50, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len({tuple(parameters.values.items()) for parameters in first}) == 50


def test_a_sample_of_more_combinations_than_a_range_can_have() -> None:
    axes = [grid_axis(f"{name}=0:10000000000", {name}) for name in "abc"]
    sets = combine(axes, sample=50)
    assert len({tuple(s.values.values()) for s in sets}) == 50
    assert sets == combine(axes, sample=50)
    with pytest.raises(RequestError, match=r"has 1(,000){10} elements, more than"):
        combine(axes)


def test_a_range_that_is_too_large_is_refused() -> None:
    with pytest.raises(RequestError, match="n=0:99999999999999999999: a range has at most 9,223,"):
        grid_axis("n=0:99999999999999999999", {"n"})


def test_a_sample_of_everything_is_everything() -> None:
    assert len(combine([grid_axis("n=1,2,3")], sample=10)) == 3


def test_rows_of_csv_have_their_line_as_origin(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('n,msg\n1,a\n\n2,"two\nlines"\n3,c\n')
    rows = combine([file_axis(str(path))])
    assert [row.values for row in rows] == [
        {"n": "1", "msg": "a"},
        {"n": "2", "msg": "two\nlines"},
        {"n": "3", "msg": "c"},
    ]
    assert [row.origin for row in rows] == [f"{path}:2", f"{path}:4", f"{path}:6"]


def test_rows_of_json_keep_their_types(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1, "on": true}\n\n{"n": 2}\n')
    assert values(file_axis(str(path))) == [{"n": 1, "on": True}, {"n": 2}]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.csv", "", "r.csv:1: the header lacks names; the first line must name the parameters"),
        ("r.csv", "a,a\n1,2\n", "r.csv:1: the header repeats a; the first line must name"),
        ("r.csv", "a,b\n", "--from r.csv: the file has no rows"),
        ("r.csv", "a,b\n1\n1,2\n1,2,3\n", "r.csv:2: 1 values, but.*; r.csv:4: 3 values, but"),
        ("r.jsonl", '{"a": 1}\n[]\n{\n', "r.jsonl:2: must be a JSON object.*; r.jsonl:3: not JSON"),
        ("r.csv", 'a\n1\n"x\n', "r.csv:3: not CSV: unexpected end of data"),
        ("r.csv", '"a\n', "r.csv:1: not CSV: unexpected end of data"),
        ("r.csv", "a\n1\n" + "x" * 131_073, "r.csv:3: not CSV: field larger than field limit"),
        ("r.csv", "a\n1\n\xff\n2\n\xfe\n", "r.csv:3: not UTF-8; .*; r.csv:5: not UTF-8; "),
        ("r.csv", "\xff\n1\n", "r.csv:1: not UTF-8; save the file in this encoding"),
        ("r.csv", "a,b\n" + "1\n" * 1000, "r.csv:21: .*; the following lines were not checked"),
        ("r.jsonl", '{"a": 1}\n{"a": "\xff"}\n', "r.jsonl:2: not UTF-8; save the file in this"),
        ("r.jsonl", '{"a": 1, "b": 2, "a": 3}\n', "r.jsonl:1: not JSON: an object repeats a"),
        ("r.jsonl", '{"a-b": 1, "a_b": 3}\n', "r.jsonl:1: repeats a_b"),
        ("r.txt", "a\n", "the name must end in .csv, .jsonl or .ndjson"),
    ],
)
def test_a_malformed_file_is_refused_with_all_its_lines(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text, encoding="latin-1")
    with pytest.raises(RequestError, match=message):
        file_axis(name)


def test_a_missing_file_is_refused() -> None:
    with pytest.raises(RequestError, match=r"--from no.csv: cannot be read: No such file"):
        file_axis("no.csv")


def test_a_pipe_or_device_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zero.jsonl"):
        with pytest.raises(RequestError, match=f"--from {name}: cannot be read: not a regular"):
            file_axis(name)


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl"])
def test_a_line_without_end_is_refused_before_it_is_in_memory(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 1 << 40)
    with pytest.raises(RequestError, match=f"{name}:1: more than 1,048,576 characters in a line"):
        file_axis(name)


def test_a_header_of_many_names_is_checked_in_linear_time(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(100_000)]
    (tmp_path / "r.csv").write_text(",".join(names) + "\n" + ",".join("1" for _ in names) + "\n")
    axis = file_axis("r.csv")  # compared each name with each other, for minutes
    with pytest.raises(RequestError, match="and 99,980 more names are unknown"):
        check_names([axis], "echo", ["msg"])


def test_a_file_of_malformed_lines_is_read_until_twenty_of_them(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("[]\n" * 100_000)
    with pytest.raises(RequestError) as error:
        file_axis("r.jsonl")
    assert len(error.value.problems) == 21
    assert error.value.problems[-1] == "the following lines were not checked"
