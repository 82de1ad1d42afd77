r"""Commands of containers, built so that every argument arrives byte for byte.

A command is sent unchanged unless a limit of the service affects it. All replicas of a role share
one command, so ``sh`` inserts the replica's index. ``env`` sets the variables that the service
cannot set. The image must then contain these programs.

Batch drops environment variables with an empty value. SageMaker allows 100 strings as entrypoint
and 100 as arguments, each of 256 characters without line ends, and 100 environment variables of 512
characters. A command that exceeds these limits is sent as a shell script, cut into strings of the
allowed length; ``sh`` joins the strings and runs the script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torchx_kit.scripts.shell import quote, quote_around
from torchx_sched_aws.limits import LINE_ENDS, is_valid, maximum, without_unset
from torchx_specs.errors import RequestError
from torchx_specs.model.templates import macros

_NAME = "torchx"
# sh starts a program whose name contains '=', because env(1) would read the name as a variable.
_EXEC = ["sh", "-c", 'exec "$@"', _NAME]
# Shell code with the replica's index. The variables of these scripts have a prefix, so that they do
# not replace variables of the job.
_INDEX = '"$__torchx_k"'
_BATCH_INDEX = "__torchx_k=$((AWS_BATCH_JOB_NODE_INDEX-{first_node}));"
# SageMaker describes the job's hosts, named algo-1, algo-2 ..., in this file of each container.
_SAGEMAKER_INDEX = (
    """__torchx_k=$(sed -n 's/.*"current_host" *: *"algo-\\([0-9][0-9]*\\)".*/\\1/p'"""
    ' "${SAGEMAKER_BASE_DIR:-/opt/ml}/input/config/resourceconfig.json");'
    "__torchx_k=$((__torchx_k-1));"
)
#: Shell code that joins the strings of a training job's command, restores the line ends, and runs
#: the script.
BOOTSTRAP = (
    "__torchx_t=;for __torchx_w;do __torchx_t=$__torchx_t$__torchx_w;done;"
    'eval "$(printf %b "$__torchx_t")"'
)
_ENTRYPOINT = "AlgorithmSpecification.ContainerEntrypoint"
_ARGUMENTS = "AlgorithmSpecification.ContainerArguments"


def make_placeholder(texts: Iterable[str]) -> str:
    """Return a text that occurs in none of ``texts``, to stand for the replica's index."""
    text = "\0".join(texts)
    placeholder = "%torchx_replica_id%"
    while placeholder in text:
        placeholder = f"%{placeholder}%"
    return placeholder


def _with_variables(argv: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """Return a command that sets environment variables with env(1), if there are any."""
    if not variables:
        return list(argv)
    command = [*_EXEC, *argv] if "=" in argv[0] else argv
    return ["env", *(f"{name}={value}" for name, value in variables.items()), *command]


def _script(command: Sequence[str], placeholder: str, index: str) -> str:
    """Return a shell script that runs a command.

    Args:
        command: The command, with ``placeholder`` in place of the replica's index.
        placeholder: The text that stands for the replica's index.
        index: Shell code that sets the variable with the replica's index.
    """
    prologue = index if any(placeholder in argument for argument in command) else ""
    words = (quote_around(argument, {placeholder: _INDEX}, _quote) for argument in command)
    return f"{prologue}exec {' '.join(words)}"


def _quote(text: str) -> str:
    # In single quotes, each apostrophe would take five characters.
    if "'" in text and not any(c in text for c in '"$`\\'):
        return f'"{text}"'
    return quote(text)


def batch_command(
    argv: Sequence[str], set_by_env: Mapping[str, str], placeholder: str, first_node: int
) -> list[str]:
    """Return the command of the Batch containers of a role.

    Args:
        argv: Program and arguments, with ``placeholder`` in place of the replica's index.
        set_by_env: Variables that env(1) sets, because Batch cannot; with ``placeholder`` in place
            of the replica's index.
        placeholder: The text that stands for the replica's index.
        first_node: Index of the role's first node.
    """
    command = _with_variables(argv, set_by_env)
    if not any(placeholder in argument for argument in command):
        return command
    index = _BATCH_INDEX.format(first_node=first_node)
    return ["sh", "-c", _script(command, placeholder, index), _NAME]


def read_batch_command(command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return argv and ``set_by_env`` of a command that :func:`batch_command` made.

    The macro ``replica_id`` replaces the placeholder. Any other command is returned unchanged, with
    an empty dict.
    """
    argv = list(command)
    start = _BATCH_INDEX.partition("{")[0]
    ours = len(argv) == 4 and argv[3] == _NAME and argv[2].startswith(start)
    if ours:
        script = argv[2].partition(";exec ")[2]
        argv = shlex.split(script.replace(_INDEX, macros.replica_id))
    variables: dict[str, str] = {}
    if argv[:1] == ["env"] and len(argv) > 1 and (ours or argv[1].endswith("=")):
        argv = argv[1:]
        while len(argv) > 1 and "=" in argv[0]:
            name, _, value = argv.pop(0).partition("=")
            variables[name] = value
        if argv[: len(_EXEC)] == _EXEC:
            argv = argv[len(_EXEC) :]
    return argv, variables


def training_command(
    argv: Sequence[str], env: Mapping[str, str], placeholder: str
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return the command of a training job, as fields of the request, and its environment.

    Args:
        argv: Program and arguments, with ``placeholder`` in place of the replica's index.
        env: Environment variables, with ``placeholder`` in place of the replica's index.
        placeholder: The text that stands for the replica's index.

    Raises:
        RequestError: The command is too long.
    """
    plain = {
        name: value
        for name, value in env.items()
        if placeholder not in value
        and is_valid(name, "Environment{name}")
        and is_valid(value, "Environment{value}")
    }
    while len(plain) > maximum("Environment"):
        plain.popitem()
    scripted = {name: value for name, value in env.items() if name not in plain}
    most = maximum(_ARGUMENTS)
    max_words = maximum(_ENTRYPOINT) + most
    words, least = list(argv), 1
    if (
        scripted
        or len(argv) > max_words
        or any(placeholder in text or not is_valid(text, f"{_ARGUMENTS}[]") for text in argv)
    ):
        pieces = _pieces(_script(_with_variables(argv, scripted), placeholder, _SAGEMAKER_INDEX))
        boot = ["sh", "-c", BOOTSTRAP, _NAME]
        words, least = [*boot, *pieces], len(boot)
        if len(words) > max_words:
            size = (max_words - least) * maximum(f"{_ARGUMENTS}[]")
            raise RequestError(
                f"the command and its long environment variables have {sum(map(len, pieces))}"
                f" characters with quotes; SageMaker allows {size}, move them into a file of the"
                " image"
            )
    first = max(least, len(words) - most)
    fields = {"ContainerEntrypoint": words[:first], "ContainerArguments": words[first:]}
    return without_unset(fields), plain


def _pieces(script: str) -> list[str]:
    """Cut a script into strings that the API accepts; ``printf %b`` reverts the escaping."""
    text = LINE_ENDS.sub(_escape, script.replace("\\", "\\\\"))
    length = maximum(f"{_ARGUMENTS}[]")
    return [text[i : i + length] for i in range(0, len(text), length)]


def _escape(line_end: re.Match[str]) -> str:
    if line_end[0] == "\n":
        return "\\n"
    return "".join(f"\\0{byte:03o}" for byte in line_end[0].encode())


def read_training_command(specification: Mapping[str, Any]) -> list[str]:
    """Return the argv of a training job, with the pieces of a shell script joined."""
    entrypoint = [str(text) for text in specification.get("ContainerEntrypoint") or ()]
    arguments = [str(text) for text in specification.get("ContainerArguments") or ()]
    if len(entrypoint) >= 4 and entrypoint[2] == BOOTSTRAP:
        return ["sh", "-c", "".join([*entrypoint[4:], *arguments])]
    return [*entrypoint, *arguments]
