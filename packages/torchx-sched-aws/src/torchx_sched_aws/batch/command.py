"""The words of a container's command, so that each arrives byte for byte.

Batch gives the words to the container as they are, with two gaps: all replicas of a role share one
command, and variables without a value are dropped. What the gaps touch goes through a few lines of
``sh`` (the image then has to have one), and everything else is passed as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torchx_specs.model.templates import macros

#: Puts the replica's index in the place of ``$2`` in all words, and runs them. ``$1`` is the index
#: of the role's first node. The names are such that no variable of the job is touched.
PROLOGUE = (
    "__torchx_m=$2 __torchx_k=$((AWS_BATCH_JOB_NODE_INDEX-$1)) __torchx_n=$(($#-2)); shift 2; "
    "while [ $__torchx_n -gt 0 ]; do __torchx_w=$1 __torchx_o=; shift; "
    'while case $__torchx_w in *"$__torchx_m"*) ;; *) false;; esac; do '
    '__torchx_o=$__torchx_o${__torchx_w%%"$__torchx_m"*}$__torchx_k; '
    '__torchx_w=${__torchx_w#*"$__torchx_m"}; done; '
    'set -- "$@" "$__torchx_o$__torchx_w"; __torchx_n=$((__torchx_n-1)); done; '
    'exec "$@"'
)
_NAME = "torchx"
# env(1) would take a program with a = for a variable
_EXEC = ["sh", "-c", 'exec "$@"', _NAME]


def replica_mark(words: Iterable[str]) -> str:
    """Returns a text that is in none of ``words``, to stand for the replica's index."""
    text = "\0".join(words)
    mark = "%torchx_replica_id%"
    while mark in text:
        mark = f"%{mark}%"
    return mark


def make_command(
    words: Sequence[str], set_by_env: Mapping[str, str], mark: str, first_node: int | None
) -> list[str]:
    """Returns the command of a role's containers.

    Args:
        words: program and arguments, ``mark`` in the place of the replica's index
        set_by_env: variables that Batch cannot set, ``mark`` likewise
        mark: stands for the replica's index
        first_node: index of the role's first node; None if no word has a mark
    """
    command = list(words)
    if set_by_env:
        if "=" in command[0]:
            command = [*_EXEC, *command]
        command = ["env", *(f"{name}={value}" for name, value in set_by_env.items()), *command]
    if first_node is not None and any(mark in word for word in command):
        command = ["sh", "-c", PROLOGUE, _NAME, str(first_node), mark, *command]
    return command


def read_command(command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the words of a command of :func:`make_command`, and the variables it sets.

    The macro stands for the replica's index. Other commands are returned as they are.
    """
    words = list(command)
    ours = False
    if words[:4] == ["sh", "-c", PROLOGUE, _NAME] and len(words) > 6:
        ours = True
        mark = words[5]
        words = [word.replace(mark, macros.replica_id) for word in words[6:]]
    variables: dict[str, str] = {}
    if words[:1] == ["env"] and len(words) > 1 and (ours or words[1].endswith("=")):
        words = words[1:]
        while len(words) > 1 and "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        if words[: len(_EXEC)] == _EXEC:
            words = words[len(_EXEC) :]
    return words, variables
