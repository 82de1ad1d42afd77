"""Tests of job arrays: commands in files, limits of running elements, states, and ids."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from torchx_kit.jobs import arrays
from torchx_specs import AppState
from torchx_specs.errors import CapacityError


def test_an_element_finds_its_commands_by_its_index(tmp_path: Path) -> None:
    lines = [arrays.task_line([[f"echo {i}", "true"], ["exit 9"]]) for i in range(250)]
    files = dict(arrays.task_files(iter(lines)))
    assert sorted(files) == ["tasks-0", "tasks-1", "tasks-2"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    code = arrays.copy_commands("$INDEX") + '. "$tx_record/commands"; role_0'
    for index, expected in ((0, "0\n"), (99, "99\n"), (100, "100\n"), (249, "249\n")):
        env = {"INDEX": str(index), "tx_array": str(tmp_path), "tx_record": str(tmp_path)}
        done = subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True)
        assert done.stdout == expected
    env["INDEX"] = "250"
    done = subprocess.run(["bash", "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "the commands of element 250 are missing" in done.stderr


@pytest.mark.parametrize(
    ("count", "limit", "expected"),
    [
        (2, None, [(None, ""), (None, "")]),
        (1, 8, [(8, "")]),
        (3, 8, [(3, ""), (3, ""), (2, "")]),
        (3, 2, [(1, ""), (1, ""), (1, "0")]),
    ],
)
def test_arrays_share_the_limit(
    count: int, limit: int | None, expected: list[tuple[int | None, str]]
) -> None:
    parallel = arrays.ParallelLimit(count, limit)
    found = []
    for number in range(count):
        found.append((parallel.share, parallel.previous))
        parallel.add(str(number))
    assert found == expected


def test_more_arrays_than_expected_wait_for_the_earlier_ones() -> None:
    parallel = arrays.ParallelLimit(1, 4)
    parallel.add("7")
    assert (parallel.share, parallel.previous) == (4, "7")


def test_requests_beyond_the_limit_are_refused() -> None:
    submitted = arrays.submit_one_by_one(lambda infos: map(str, infos), [1, 2, 3], 2)
    assert [next(submitted), next(submitted)] == ["1", "2"]
    with pytest.raises(CapacityError, match="1 apps would exceed max_parallel=2"):
        next(submitted)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["PENDING", "PENDING"], "PENDING"),
        (["PENDING", "SUCCEEDED"], "RUNNING"),
        (["FAILED", "RUNNING"], "RUNNING"),
        (["CANCELLED", "FAILED"], "FAILED"),
        (["SUCCEEDED"], "SUCCEEDED"),
        ([], "CANCELLED"),
    ],
)
def test_an_array_ends_with_its_last_element(states: list[str], expected: str) -> None:
    state, message = arrays.array_state(AppState[name] for name in states)
    assert state.name == expected
    assert message.startswith(f"array of {len(states)} elements: ")


def test_the_script_of_an_element_passes_values_unchanged() -> None:
    envs = [{"A": "it's\n$x", "N": str(i), "S": "same"} for i in range(2)]
    shared = arrays.shared_variables(envs, varies=lambda key, value: False)
    assert shared == {"A": "it's\n$x", "S": "same"}
    assert arrays.shared_variables(envs, lambda key, value: "same" in value) == {"A": "it's\n$x"}
    text = arrays.element_script(["printf", "%s|%s|%s", "a b", "", "'"], envs[1], {"S": "same"})
    done = subprocess.run(["sh", "-c", f'{text} "$A"'], capture_output=True, text=True)
    assert done.stdout == "a b||'it's\n$x||"
    assert "S=" not in text
