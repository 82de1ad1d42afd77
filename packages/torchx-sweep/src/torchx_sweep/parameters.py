"""Sets of parameters: grids, zips, rows of files, and random samples of their combinations."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TextIO

from torchx_kit.logs.regular_files import open_regular
from torchx_specs.errors import RequestError, nearest
from torchx_specs.text_values import split_list

#: A larger sweep is refused unless the caller confirms its size.
LARGEST_UNCONFIRMED = 100_000
#: How many problems an error message shows.
MOST_PROBLEMS = 20
#: The longest line of a file with sets of parameters, in characters.
LONGEST_LINE = 1 << 20

_NOT_UTF_8 = "not UTF-8; save the file in this encoding"
_RANGE = re.compile(r"(-?\d+):(-?\d+)(?::(-?\d+))?\Z")


class ParameterSet(NamedTuple):
    """The parameters of one element.

    Attributes:
        values: Maps the name of each parameter to its value: a text, or a value of the right type.
        origin: Where the values come from, for error messages, such as ``rows.csv:917``.
    """

    values: dict[str, Any]
    origin: str


class Axis(NamedTuple):
    """Parameters that change together, and their values.

    Attributes:
        option: The option that defines the axis, for error messages.
        names: The names of the parameters.
        size: The number of sets.
        row: Returns the set at an index.
    """

    option: str
    names: Collection[str]
    size: int
    row: Callable[[int], ParameterSet]


def component_spelling(name: str) -> str:
    """Return the name of a component's parameter, which has underscores in place of hyphens."""
    return name.replace("-", "_")


def text_axis(
    texts: Sequence[str],
    option: str,
    integers: Collection[str] | None = (),
    spelling: Callable[[str], str] = component_spelling,
) -> Axis:
    """Return the axis of ``--grid NAME=VALUES``, or of ``--zip NAME=VALUES NAME=VALUES...``.

    ``VALUES`` is a list such as ``1e-3,1e-4``. For a parameter of type int, it may be a range as in
    Python: ``0:8`` has the values 0 to 7, and ``0:8:2`` has 0, 2, 4 and 6.

    Args:
        texts: The texts after the option.
        option: The option.
        integers: Names of the parameters of type int; None means that any may be a range.
        spelling: Returns the name of a parameter from the text before ``=``.

    Raises:
        RequestError: A text is malformed, has no values or repeats a name, or the numbers of values
            differ.
    """
    columns: dict[str, Sequence[Any]] = {}
    for text in texts:
        name, values = _name_and_values(text, option, integers, spelling)
        if name in columns:
            raise RequestError(f"{option} has the parameter '{name}' twice")
        columns[name] = values
    return value_axis(columns, option)


def value_axis(columns: Mapping[str, Sequence[Any]], option: str) -> Axis:
    """Return an axis with the given values.

    Args:
        columns: The values of each parameter.
        option: The option or argument that has the values, for error messages.

    Raises:
        RequestError: There are no parameters, a parameter has no values, the values are no list, or
            the numbers of values differ.
    """
    for name, values in columns.items():
        # An array of numpy is no Sequence, but has these methods.
        is_list = hasattr(values, "__len__") and hasattr(values, "__getitem__")
        if isinstance(values, (str, bytes, Mapping)) or not is_list:
            raise RequestError(
                f"{option}: the values of the parameter '{name}' are {values!r:.100}; give a list"
            )
        if not len(values):
            raise RequestError(f"{option}: the parameter '{name}' has no values")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise RequestError(f"{option} needs equally many values of each parameter; {counts}")
    if not lengths:
        raise RequestError(f"{option} has no parameters; write NAME=VALUE,VALUE")

    def row(i: int) -> ParameterSet:
        values = {name: column[i] for name, column in columns.items()}
        return ParameterSet(values, ", ".join(f"{name}={value}" for name, value in values.items()))

    return Axis(option, columns, min(lengths.values()), row)


def rows_axis(rows: Sequence[ParameterSet], option: str) -> Axis:
    """Return sets of parameters, which may have different names, as one axis.

    Raises:
        RequestError: There are no sets, or one of them is empty.
    """
    if not rows or not all(row.values for row in rows):
        raise RequestError(f"{option} has no set of parameters, or a set without parameters")
    names = dict.fromkeys(name for row in rows for name in row.values)
    return Axis(option, names, len(rows), rows.__getitem__)


def file_axis(
    path: str,
    confirmed: bool = False,
    spelling: Callable[[str], str] = component_spelling,
) -> Axis:
    """Return the rows of a file: CSV with a header, or one JSON object a line (``.jsonl``).

    Args:
        path: The file; the suffix ``.csv``, ``.jsonl`` or ``.ndjson`` defines the format.
        confirmed: Whether the file may have more than :data:`LARGEST_UNCONFIRMED` rows.
        spelling: Returns the name of a parameter from the name in the file.

    Raises:
        RequestError: The suffix is unknown, or the file cannot be read, is not a regular file, is
            malformed, has a line of more than :data:`LONGEST_LINE` characters, or has no rows or
            too many. The message lists the first :data:`MOST_PROBLEMS` malformed lines.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".csv", ".jsonl", ".ndjson"):
        raise RequestError(f"--from {path}: the name must end in .csv, .jsonl or .ndjson")
    rows: list[ParameterSet] = []
    problems: list[str] = []
    try:
        # A byte that is not UTF-8 becomes a surrogate, so that the line of the byte is known.
        descriptor = open_regular(path, os.O_RDONLY)
        with open(descriptor, encoding="utf-8-sig", newline="", errors="surrogateescape") as file:
            read = _csv_rows if suffix == ".csv" else _json_rows
            for line, row in read(_lines(file, path), spelling):
                if isinstance(row, str):
                    problems.append(f"{path}:{line}: {row}")
                    if len(problems) == MOST_PROBLEMS:
                        problems.append("the following lines were not checked")
                        break
                elif not problems:
                    rows.append(ParameterSet(row, f"{path}:{line}"))
                    if not confirmed:
                        _check_count(len(rows), "at least ")
    except OSError as e:
        raise RequestError(f"--from {path}: cannot be read: {e.strerror or e}") from None
    if problems:
        raise RequestError(problems)
    if not rows:
        raise RequestError(f"--from {path}: the file has no rows")
    return rows_axis(rows, f"--from {path}")


def combine(
    axes: Sequence[Axis], sample: int | None = None, seed: int = 0, confirmed: bool = False
) -> list[ParameterSet]:
    """Return each combination of the values of all axes, or a random sample of them.

    Args:
        axes: The axes; the last one changes fastest.
        sample: How many combinations to choose at random, without repetition; None means all.
        seed: Seed of the random choice. The same seed and axes give the same sample.
        confirmed: Whether the result may have more than :data:`LARGEST_UNCONFIRMED` sets.

    Raises:
        RequestError: There are no axes, two axes have the same parameter, ``sample`` is less than
            1, or the result is too large.
    """
    if not axes:
        raise RequestError("a sweep needs parameters: give --grid, --zip or --from")
    seen: dict[str, str] = {}
    for axis in axes:
        for name in axis.names:
            if name in seen:
                raise RequestError(f"the parameter '{name}' is in {seen[name]} and {axis.option}")
            seen[name] = axis.option
    total = math.prod(axis.size for axis in axes)
    if sample is not None and sample < 1:
        raise RequestError(f"--sample is {sample}; it must be a number, 1 or more")
    chosen: Sequence[int]
    if sample is not None and sample < total:
        if not confirmed:
            _check_count(sample)
        chosen = _sample(total, sample, random.Random(seed))  # noqa: S311 - no cryptography
    else:
        if not confirmed:
            _check_count(total)
        chosen = range(total)
    return [_parameter_set(axes, index) for index in chosen]


def shortened(problems: Sequence[str], what: str = "elements are invalid") -> list[str]:
    """Return the first :data:`MOST_PROBLEMS` problems, and the number of the others, if any.

    Args:
        problems: The problems, one for each invalid element or name.
        what: Follows the number of the others.
    """
    shown = list(problems[:MOST_PROBLEMS])
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown):,} more {what}")
    return shown


def check_names(axes: Sequence[Axis], component: str, names: Collection[str]) -> None:
    """Check that each parameter of the axes is a parameter of the component.

    Raises:
        RequestError: Names are unknown; the message lists the first :data:`MOST_PROBLEMS` of them.
    """
    known = set(names)
    unknown = [(axis, name) for axis in axes for name in axis.names if name not in known]
    problems = [
        f"{axis.option}: {component} has no parameter '{name}';{nearest(name, names)} parameters:"
        f" {', '.join(names) or 'none'}"
        for axis, name in unknown
    ]
    if problems:
        raise RequestError(shortened(problems, "names are unknown"))


def _name_and_values(
    text: str, option: str, integers: Collection[str] | None, spelling: Callable[[str], str]
) -> tuple[str, Sequence[Any]]:
    name, equals, values = text.partition("=")
    name = spelling(name.strip())
    if not equals or not name:
        raise RequestError(f"{option} {text}: write NAME=VALUE,VALUE, such as lr=1e-3,1e-4")
    numbers: Sequence[Any] = split_list(values)
    if (integers is None or name in integers) and (found := _RANGE.match(values.strip())):
        start, stop, step = int(found[1]), int(found[2]), int(found[3] or 1)
        if step == 0:
            raise RequestError(f"{option} {text}: the step of a range must not be 0")
        numbers = range(start, stop, step)
        if (stop - start) // step > sys.maxsize:
            raise RequestError(f"{option} {text}: a range has at most {sys.maxsize:,} values")
    if not numbers:
        raise RequestError(f"{option} {text}: the parameter '{name}' has no values")
    return name, numbers


def _sample(total: int, count: int, generator: random.Random) -> list[int]:
    """Return ``count`` distinct numbers that are less than ``total``, in ascending order."""
    if total <= sys.maxsize:
        return sorted(generator.sample(range(total), count))
    found: set[int] = set()  # a range of this size has no len()
    while len(found) < count:
        found.add(generator.randrange(total))
    return sorted(found)


def _check_count(count: int, prefix: str = "") -> None:
    if count > LARGEST_UNCONFIRMED:
        raise RequestError(
            f"the sweep has {prefix}{count:,} elements, more than {LARGEST_UNCONFIRMED:,}; choose"
            " some of them with --sample, or confirm the number with --yes"
        )


def _parameter_set(axes: Sequence[Axis], index: int) -> ParameterSet:
    values: dict[str, Any] = {}
    origins: list[str] = []
    for axis in reversed(axes):
        index, i = divmod(index, axis.size)
        part = axis.row(i)
        values = {**part.values, **values}
        origins.insert(0, part.origin)
    return ParameterSet(values, ", ".join(origins))


def _lines(file: TextIO, path: str) -> Iterator[str]:
    number = 0
    while text := file.readline(LONGEST_LINE + 1):
        number += 1
        if len(text) > LONGEST_LINE:
            raise RequestError(f"{path}:{number}: more than {LONGEST_LINE:,} characters in a line")
        yield text


def _csv_rows(
    lines: Iterator[str], spelling: Callable[[str], str]
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    records = _csv_records(lines)
    _, header = next(records, (1, []))
    if isinstance(header, str):
        yield 1, header
        return
    names = [spelling(name.strip()) for name in header]
    repeated = _repeated(names)
    if not names or repeated or "" in names:
        problem = f"repeats {', '.join(sorted(repeated))}" if any(repeated) else "lacks names"
        yield 1, f"the header {problem}; the first line must name the parameters"
        return
    for line, row in records:
        if isinstance(row, str):
            yield line, row
        elif row and len(row) != len(names):
            yield line, f"{len(row)} values, but the header has {len(names)} names"
        elif row:
            yield line, dict(zip(names, row, strict=True))


def _csv_records(lines: Iterator[str]) -> Iterator[tuple[int, list[str] | str]]:
    reader = csv.reader(lines, strict=True)
    line = 1
    try:
        for row in reader:
            yield line, _NOT_UTF_8 if _has_other_bytes("".join(row)) else row
            line = reader.line_num + 1  # a quoted value may contain newlines
    except csv.Error as e:
        yield line, f"not CSV: {e}"


def _json_rows(
    lines: Iterator[str], spelling: Callable[[str], str]
) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for line, text in enumerate(lines, 1):
        if text.strip():
            yield line, _json_row(text, spelling)


def _json_row(text: str, spelling: Callable[[str], str]) -> dict[str, Any] | str:
    """Return the parameters in a line, or its problem."""
    if _has_other_bytes(text):
        return _NOT_UTF_8
    try:
        row = json.loads(text, object_pairs_hook=_json_object)
    except (ValueError, RecursionError) as e:
        return f"not JSON: {e}"
    if not isinstance(row, dict) or not row:
        return 'must be a JSON object with the parameters, such as {"lr": 0.001}'
    twins = _repeated(map(spelling, row))
    if twins:
        return f"repeats {', '.join(twins)}"
    return {spelling(name): value for name, value in row.items()}


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    repeated = _repeated(name for name, _ in pairs)
    if repeated:
        raise ValueError(f"an object repeats {', '.join(repeated)}")
    return dict(pairs)


def _repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _has_other_bytes(text: str) -> bool:
    """Return True if text that was read from a file stands for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
