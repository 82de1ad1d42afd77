"""The command of a training job's containers, so that each word arrives byte for byte.

SageMaker takes two hundred words (half of them as entrypoint, half as arguments) of 256 characters
without line ends, and a hundred variables of 512 characters. What does not fit goes as the text of
a shell script, cut into such words: ``sh`` in the image puts it together and becomes the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchx_kit.scripts.shell import quote, quote_around
from torchx_specs.errors import RequestError
from torchx_specs.redaction import masked

#: Characters of one word of the command.
LONGEST_WORD = 256
#: Words of the entrypoint, and words of the arguments.
MOST_WORDS = 100
#: Characters of a variable's value.
LONGEST_VALUE = 512
#: Characters of a variable's name.
LONGEST_NAME = 512
#: Variables.
MOST_VARIABLES = 100
#: Stands for the index of the replica until the job knows it.
REPLICA_MARK = "%torchx_replica_id%"

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
# where the words of the API, whose pattern is Java's ".*", may not have a line end
_LINE_ENDS = re.compile("[\n\r\u0085\u2028\u2029]")
#: Puts the words together, undoes what stands for line ends, and runs that. Variables that are not
#: exported; their names touch none of the job's.
BOOT = (
    "__torchx_t=;for __torchx_w;do __torchx_t=$__torchx_t$__torchx_w;done;"
    'eval "$(printf %b "$__torchx_t")"'
)
# SageMaker's file of what the job consists of; hosts are named algo-1, algo-2 ...
_REPLICA = (
    """__torchx_k=$(sed -n 's/.*"current_host" *: *"algo-\\([0-9][0-9]*\\)".*/\\1/p'"""
    ' "${SAGEMAKER_BASE_DIR:-/opt/ml}/input/config/resourceconfig.json");'
    "__torchx_k=$((__torchx_k-1));"
)
# env(1) would take a program with a = for a variable
_EXEC = ["sh", "-c", 'exec "$@"', "torchx"]


@dataclass(frozen=True)
class Command:
    """What is sent.

    Args:
        entrypoint: of the containers
        arguments: of the entrypoint
        environment: variables that the API sets
        shown: entrypoint and arguments for people, with secrets masked; empty if they are the same
    """

    entrypoint: list[str]
    arguments: list[str]
    environment: dict[str, str]
    shown: list[str]


def make_command(words: Sequence[str], env: Mapping[str, str], room: int) -> Command:
    """Returns the command of a job.

    Args:
        words: program and arguments, :data:`REPLICA_MARK` in the place of the replica's index
        env: variables, likewise
        room: how many variables the API may be given

    Raises:
        RequestError: it is too much, or cannot be passed to a process
    """
    plain = dict(item for item in env.items() if _is_plain_variable(*item))
    while len(plain) > room:
        plain.popitem()
    scripted = {name: value for name, value in env.items() if name not in plain}
    if not scripted and len(words) <= 2 * MOST_WORDS and all(map(_is_plain_word, words)):
        first = max(1, len(words) - MOST_WORDS)
        return Command(list(words[:first]), list(words[first:]), plain, [])
    boot = ["sh", "-c", BOOT, "torchx"]
    pieces = _pieces(_script(words, scripted))
    room_for = 2 * MOST_WORDS - len(boot)
    if len(pieces) > room_for:
        raise RequestError(
            f"command and long variables have {sum(map(len, pieces))} characters with their"
            f" quotes, SageMaker carries {room_for * LONGEST_WORD}: put them into a file of the"
            " image"
        )
    first = max(0, len(pieces) - MOST_WORDS)
    shown = [*boot, _script(words, masked(scripted))]
    return Command([*boot, *pieces[:first]], pieces[first:], plain, shown)


def _is_plain_word(word: str) -> bool:
    return len(word) <= LONGEST_WORD and REPLICA_MARK not in word and not _LINE_ENDS.search(word)


def _is_plain_variable(name: str, value: str) -> bool:
    return (
        len(name) <= LONGEST_NAME
        and len(value) <= LONGEST_VALUE
        and REPLICA_MARK not in value
        and _NAME.match(name) is not None
    )


def _script(words: Sequence[str], env: Mapping[str, str]) -> str:
    command = list(words)
    if env:
        if "=" in command[0]:
            command = [*_EXEC, *command]
        command = ["env", *(f"{name}={value}" for name, value in env.items()), *command]
    prologue = _REPLICA if any(REPLICA_MARK in word for word in command) else ""
    known = {REPLICA_MARK: '"$__torchx_k"'}
    return prologue + "exec " + " ".join(quote_around(word, known, _quote) for word in command)


def _quote(word: str) -> str:
    # text full of apostrophes would grow to five times its length
    if "'" in word and not any(c in word for c in '"$`\\'):
        return f'"{word}"'
    return quote(word)


def _pieces(script: str) -> list[str]:
    """Cuts a script into words that the API takes; ``printf %b`` undoes what is done to it."""
    text = _LINE_ENDS.sub(_octal, script.replace("\\", "\\\\"))
    return [text[i : i + LONGEST_WORD] for i in range(0, len(text), LONGEST_WORD)]


def _octal(found: re.Match[str]) -> str:
    if found[0] == "\n":
        return "\\n"
    return "".join(f"\\0{byte:03o}" for byte in found[0].encode())


def read_command(specification: Mapping[str, object]) -> list[str]:
    """Returns program and arguments of a job, as far as they can be read back."""
    entrypoint = [str(word) for word in specification.get("ContainerEntrypoint") or ()]  # type: ignore[attr-defined]
    arguments = [str(word) for word in specification.get("ContainerArguments") or ()]  # type: ignore[attr-defined]
    if len(entrypoint) >= 4 and entrypoint[2] == BOOT:
        return ["sh", "-c", "".join([*entrypoint[4:], *arguments])]
    return [*entrypoint, *arguments]
