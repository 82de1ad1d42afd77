"""The command of a training job, built so that every argument arrives byte for byte.

SageMaker allows 100 strings as entrypoint and 100 as arguments, each of 256 characters without line
ends, and 100 environment variables of 512 characters. A command that exceeds these limits is sent
as a shell script, cut into strings of the allowed length. ``sh`` joins the strings and runs the
script; the image must then contain ``sh``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchx_kit.scripts.shell import quote, quote_around
from torchx_specs.errors import RequestError
from torchx_specs.redaction import masked, masked_text

#: Largest length of one string of the command, in characters.
MAX_ARGUMENT_LENGTH = 256
#: Largest number of strings in the entrypoint, and in the arguments.
MAX_ARGUMENTS = 100
#: Largest length of an environment variable's value, in characters.
MAX_VALUE_LENGTH = 512
#: Largest length of an environment variable's name, in characters.
MAX_NAME_LENGTH = 512
#: Largest number of environment variables.
MAX_VARIABLES = 100
#: Placeholder for the replica's index, which only the running job knows.
REPLICA_PLACEHOLDER = "%torchx_replica_id%"

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
# The API checks strings with Java's pattern ".*", which matches none of these line ends.
_LINE_ENDS = re.compile("[\n\r\u0085\u2028\u2029]")
#: Shell code that joins the strings, restores the line ends, and runs the script. The names of the
#: shell variables have a prefix, so that they do not replace variables of the job.
BOOTSTRAP = (
    "__torchx_t=;for __torchx_w;do __torchx_t=$__torchx_t$__torchx_w;done;"
    'eval "$(printf %b "$__torchx_t")"'
)
# SageMaker describes the job's hosts, named algo-1, algo-2 ..., in this file of each container.
_REPLICA = (
    """__torchx_k=$(sed -n 's/.*"current_host" *: *"algo-\\([0-9][0-9]*\\)".*/\\1/p'"""
    ' "${SAGEMAKER_BASE_DIR:-/opt/ml}/input/config/resourceconfig.json");'
    "__torchx_k=$((__torchx_k-1));"
)
# sh starts a program whose name contains '=', because env(1) would read the name as a variable.
_EXEC = ["sh", "-c", 'exec "$@"', "torchx"]


@dataclass(frozen=True)
class Command:
    """The command of a training job.

    Attributes:
        entrypoint: Entrypoint of the containers.
        arguments: Arguments of the entrypoint.
        environment: Environment variables that the API sets.
        display_argv: Entrypoint and arguments to print, with secrets masked; empty unless the
            command is a shell script, in whose pieces secrets cannot be recognized.
    """

    entrypoint: list[str]
    arguments: list[str]
    environment: dict[str, str]
    display_argv: list[str]


def make_command(argv: Sequence[str], env: Mapping[str, str], room: int) -> Command:
    """Return the command of a job.

    Args:
        argv: Program and arguments, with :data:`REPLICA_PLACEHOLDER` in place of the replica's
            index.
        env: Environment variables, with the placeholder in place of the replica's index.
        room: Maximum number of environment variables to set with the API; the script sets the rest.

    Raises:
        RequestError: The command is too long.
    """
    plain = dict(item for item in env.items() if _is_plain_variable(*item))
    while len(plain) > room:
        plain.popitem()
    scripted = {name: value for name, value in env.items() if name not in plain}
    if not scripted and len(argv) <= 2 * MAX_ARGUMENTS and all(map(_is_plain_argument, argv)):
        first = max(1, len(argv) - MAX_ARGUMENTS)
        return Command(list(argv[:first]), list(argv[first:]), plain, [])
    boot = ["sh", "-c", BOOTSTRAP, "torchx"]
    pieces = _pieces(_script(argv, scripted))
    max_pieces = 2 * MAX_ARGUMENTS - len(boot)
    if len(pieces) > max_pieces:
        raise RequestError(
            f"the command and its long environment variables have {sum(map(len, pieces))}"
            f" characters with quotes; SageMaker allows {max_pieces * MAX_ARGUMENT_LENGTH}, move"
            " them into a file of the image"
        )
    first = max(0, len(pieces) - MAX_ARGUMENTS)
    display_argv = [*boot, masked_text(_script(masked(argv), masked(scripted)))]
    return Command([*boot, *pieces[:first]], pieces[first:], plain, display_argv)


def _is_plain_argument(text: str) -> bool:
    return (
        len(text) <= MAX_ARGUMENT_LENGTH
        and REPLICA_PLACEHOLDER not in text
        and not _LINE_ENDS.search(text)
    )


def _is_plain_variable(name: str, value: str) -> bool:
    return (
        len(name) <= MAX_NAME_LENGTH
        and len(value) <= MAX_VALUE_LENGTH
        and REPLICA_PLACEHOLDER not in value
        and _NAME.match(name) is not None
    )


def _script(argv: Sequence[str], env: Mapping[str, str]) -> str:
    command = list(argv)
    if env:
        if "=" in command[0]:
            command = [*_EXEC, *command]
        command = ["env", *(f"{name}={value}" for name, value in env.items()), *command]
    prologue = _REPLICA if any(REPLICA_PLACEHOLDER in argument for argument in command) else ""
    known = {REPLICA_PLACEHOLDER: '"$__torchx_k"'}
    return (
        prologue + "exec " + " ".join(quote_around(argument, known, _quote) for argument in command)
    )


def _quote(text: str) -> str:
    # In single quotes, each apostrophe would take five characters.
    if "'" in text and not any(c in text for c in '"$`\\'):
        return f'"{text}"'
    return quote(text)


def _pieces(script: str) -> list[str]:
    """Cut a script into strings that the API accepts; ``printf %b`` reverts the escaping."""
    text = _LINE_ENDS.sub(_escape, script.replace("\\", "\\\\"))
    return [text[i : i + MAX_ARGUMENT_LENGTH] for i in range(0, len(text), MAX_ARGUMENT_LENGTH)]


def _escape(line_end: re.Match[str]) -> str:
    if line_end[0] == "\n":
        return "\\n"
    return "".join(f"\\0{byte:03o}" for byte in line_end[0].encode())


def read_command(specification: Mapping[str, Any]) -> list[str]:
    """Return the argv of a job, with the pieces of a shell script joined."""
    entrypoint = [str(text) for text in specification.get("ContainerEntrypoint") or ()]
    arguments = [str(text) for text in specification.get("ContainerArguments") or ()]
    if len(entrypoint) >= 4 and entrypoint[2] == BOOTSTRAP:
        return ["sh", "-c", "".join([*entrypoint[4:], *arguments])]
    return [*entrypoint, *arguments]
