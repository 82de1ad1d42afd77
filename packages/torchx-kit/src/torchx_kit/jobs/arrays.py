"""Job arrays: an array is one job, and each of its elements runs one app.

The apps of an array differ only in arguments and environment variables; an element finds its
command by its index. In batch systems, the record of the array (:mod:`torchx_kit.jobs.records`)
contains files with the commands of all elements.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from torchx_specs.errors import CapacityError
from torchx_specs.model.app import Role
from torchx_specs.model.status import AppState, is_terminal

Info = TypeVar("Info")

#: Prefix of the names of the files with commands, and the number of commands in each file.
TASKS = "tasks"
TASKS_PER_FILE = 100

_ELEMENT_ID = re.compile(r"(.+)\.(0|[1-9]\d*)\Z")
_ENDS = (AppState.FAILED, AppState.CANCELLED, AppState.SUCCEEDED)

# Shell code that copies the commands of an element to the element's record.
_COPY_COMMANDS = """\
tx_index={index}
sed -n "$((tx_index % {per_file} + 1)){{p;q}}" "$tx_array/{tasks}-$((tx_index / {per_file}))" \\
    > "$tx_record/commands"
if [ ! -s "$tx_record/commands" ]; then
    echo "the commands of element $tx_index are missing in $tx_array" >&2
    exit 1
fi
"""


def element_id(array: str, index: int) -> str:
    """Return the id of an element, made from the id of its array.

    >>> element_id("train-x1", 7)
    'train-x1.7'
    """
    return f"{array}.{index}"


def split_element_id(app_id: str) -> tuple[str, int | None]:
    """Split the id of an element into array id and index; the index of any other app is None.

    >>> split_element_id("train-x1.7"), split_element_id("train-x1")
    (('train-x1', 7), ('train-x1', None))
    """
    match = _ELEMENT_ID.match(app_id)
    return (match[1], int(match[2])) if match else (app_id, None)


def shared_variables(
    envs: Sequence[Mapping[str, str]], varies: Callable[[str, str], bool]
) -> dict[str, str]:
    """Return the variables that have the same value in all elements.

    Args:
        envs: The environment variables of each element.
        varies: Called with the name and value of a variable; returns True if the value will differ
            between elements once their ids are known.
    """
    return {
        key: value
        for key, value in envs[0].items()
        if not varies(key, value) and all(env.get(key) == value for env in envs)
    }


def element_script(
    command: Sequence[str], env: Mapping[str, str], shared: Mapping[str, str]
) -> str:
    """Return commands for ``sh`` that set the variables of an element and run its command.

    Args:
        command: The argv of the element.
        env: The environment variables of the element.
        shared: The variables that are already set for all elements, so the script omits them.
    """
    own = [f"export {k}={shlex.quote(value)}" for k, value in env.items() if k not in shared]
    return "\n".join([*own, f"exec {shlex.join(command)}"])


def without_variations(role: Role) -> Role:
    """Return a copy of a role without arguments and variables, in which apps of an array differ."""
    return replace(role, args=[], env={})


def task_line(commands: Iterable[list[str]]) -> str:
    """Return one line of shell code that defines a function for each role of an element.

    Args:
        commands: The lines of the function of each role.
    """
    functions = (
        f"role_{number}() {{ {'; '.join(lines)}; }}" for number, lines in enumerate(commands)
    )
    return "; ".join(functions)


def task_files(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and contents of the files with commands for the record of an array.

    Args:
        lines: The result of :func:`task_line` for each element.
    """
    remaining = iter(lines)
    number = 0
    while part := list(islice(remaining, TASKS_PER_FILE)):
        yield f"{TASKS}-{number}", "".join(f"{line}\n" for line in part)
        number += 1


def copy_commands(index: str) -> str:
    """Return shell code that copies the commands of an element to ``$tx_record/commands``.

    The shell variables ``tx_array`` and ``tx_record`` are the paths of the records of the array and
    of the element.

    Args:
        index: Shell code that yields the element's index; the first element has index 0.
    """
    return _COPY_COMMANDS.format(index=index, per_file=TASKS_PER_FILE, tasks=TASKS)


class ParallelLimit:
    """Divides a limit of running elements among the arrays of one submission.

    Batch systems limit the running elements of each array separately. So an array gets a share of
    the limit. If there are more arrays than shares, several arrays get the same share: each starts
    when the previous one has ended.

    Args:
        arrays: The number of arrays.
        limit: How many elements may run at the same time; None means without a limit.
    """

    def __init__(self, arrays: int, limit: int | None) -> None:
        self._limit = limit
        self._count = arrays if limit is None else min(arrays, limit)
        self._last: list[str] = [""] * self._count
        self._next = 0

    @property
    def share(self) -> int | None:
        """How many elements of the next array may run at the same time; None without a limit."""
        if self._limit is None:
            return None
        return self._limit // self._count + (self._next < self._limit % self._count)

    @property
    def previous(self) -> str:
        """The job number of the array that must end before the next one starts, or empty."""
        return "" if self._limit is None else self._last[self._next]

    def add(self, number: str) -> None:
        """Add an array that was submitted with :attr:`share` and :attr:`previous`.

        Args:
            number: The array's job number.
        """
        self._last[self._next] = number
        self._next = (self._next + 1) % self._count


def ranges(numbers: Iterable[int]) -> str:
    """Return sorted element numbers as text; consecutive numbers become a range.

    >>> ranges([3, 1, 2, 7])
    '1-3,7'
    """
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def array_state(states: Iterable[AppState], unit: str = "elements") -> tuple[AppState, str]:
    """Return the state of a whole array, and a message with the number of elements in each state.

    The array ends when all its elements have ended. If all were deleted, its state is CANCELLED.

    Args:
        states: The states of the elements that were not deleted.
        unit: The noun for elements in the message.
    """
    counts = Counter(states)
    unfinished = [state for state in counts if not is_terminal(state)]
    if AppState.RUNNING in counts or (unfinished and len(unfinished) < len(counts)):
        state = AppState.RUNNING
    elif unfinished:
        state = unfinished[0]
    else:
        state = next((found for found in _ENDS if found in counts), AppState.CANCELLED)
    text = ", ".join(f"{count} {found.name}" for found, count in counts.items())
    return state, f"array of {counts.total()} {unit}: {text or 'all deleted'}"


def submit_one_by_one(
    submit: Callable[[Sequence[Info]], Iterator[str]],
    infos: Sequence[Info],
    max_parallel: int | None,
) -> Iterator[str]:
    """Submit the first ``max_parallel`` requests without an array, and yield the apps' ids.

    Args:
        submit: Submits requests one after another, and yields the ids of the apps.
        infos: The requests.
        max_parallel: How many apps may run at the same time; None means without a limit.

    Raises:
        CapacityError: There are more than ``max_parallel`` requests. The first ones were submitted.
    """
    yield from submit(infos[:max_parallel])
    if max_parallel is not None and max_parallel < len(infos):
        raise CapacityError(
            f"{len(infos) - max_parallel} apps would exceed max_parallel={max_parallel};"
            " submit them when others have ended"
        )
