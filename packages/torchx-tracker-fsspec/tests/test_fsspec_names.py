from __future__ import annotations

import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from torchx_specs.trackers.api import TrackerValueError
from torchx_tracker_fsspec import names

ANY_TEXT = st.text(st.characters(), min_size=1)


@given(ANY_TEXT)
@example("../../etc/passwd")
@example("/")
@example(".")
@example("a\0b")
@example("é" * 200)
@example("\udcff")
def test_any_id_becomes_one_valid_file_name(run_id: str) -> None:
    name = names.encode(run_id)
    assert len(name) <= 255
    assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567=")
    decoded = names.decode(name.encode())
    # Older TorchX releases decode the name like this.
    assert base64.b32decode(name).decode("utf-8") == decoded
    assert decoded == (names.alias(run_id) or run_id)


@pytest.mark.parametrize(
    "foreign",
    [
        b"lost+found",
        b".git",
        b"metadata",
        b"MFRG",
        b"MFRGG=====",
        b"MF=GGZDF",
        b"1_000_00",
        b"-MFRGGZA",
        b"YPUQ====",
    ],
)
def test_other_directories_decode_to_none(foreign: bytes) -> None:
    assert names.decode(foreign) is None


def test_short_ids_are_plain_base32() -> None:
    assert names.encode("local_cwd://s/job1") == "NRXWGYLML5RXOZB2F4XXGL3KN5RDC==="


def test_empty_id_is_an_error() -> None:
    with pytest.raises(TrackerValueError, match="empty"):
        names.encode("")


def test_id_that_looks_like_an_alias_gets_its_own_alias() -> None:
    long = "x" * 500
    alias = names.alias(long)
    assert alias is not None
    assert names.encode(alias) != names.encode(long)


def test_record_names_are_unique_and_ordered() -> None:
    made = [names.record_names.new() for _ in range(10_000)]
    assert len(set(made)) == len(made)
    assert sorted(made) == made


def test_record_names_are_ordered_if_the_clock_steps_back() -> None:
    maker = names.RecordNames(iter([1_600_000_000, 1_500_000_000]).__next__)
    first = maker.new()
    assert maker.new() > first


@given(st.lists(st.one_of(st.none(), ANY_TEXT), min_size=1, unique=True))
@example(["a\nb", "\x1fa", " a", "a\u2028b", '"a"', None])
def test_lines_encode_any_name(artifacts: list[str | None]) -> None:
    text = "".join(names.encode_line(artifact) + "\n" for artifact in artifacts)
    assert names.decode_lines(text) == artifacts
    assert text.count("\n") == len(artifacts)
    text.encode()


def test_empty_file_links_the_whole_run() -> None:
    assert names.decode_lines("") == [None]
    assert names.decode_lines("a\r\nb") == ["a", "b"]


def test_empty_artifact_name_is_an_error() -> None:
    with pytest.raises(TrackerValueError, match=r"is empty; use None for the run as a whole$"):
        names.encode_line("")
