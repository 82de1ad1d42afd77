"""The command of a Batch container, built so that every argument arrives byte for byte.

Batch passes a command to the container unchanged, with two limits. All replicas of a role share one
command, and Batch drops environment variables with an empty value. Only if a limit affects a role,
``sh`` sets the replica's index in the command, and ``env`` sets the variables. The image must then
contain these programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torchx_specs.model.templates import macros

#: Shell code that runs the command ``$3 $4 ...``, in which it replaces the text ``$2`` by the
#: replica's index. ``$1`` is the index of the role's first node. The names of the shell variables
#: have a prefix, so that they do not replace variables of the job.
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
# sh starts a program whose name contains '=', because env(1) would read the name as a variable.
_EXEC = ["sh", "-c", 'exec "$@"', _NAME]


def make_placeholder(texts: Iterable[str]) -> str:
    """Return a text that occurs in none of ``texts``, to stand for the replica's index."""
    text = "\0".join(texts)
    placeholder = "%torchx_replica_id%"
    while placeholder in text:
        placeholder = f"%{placeholder}%"
    return placeholder


def make_command(
    argv: Sequence[str], set_by_env: Mapping[str, str], placeholder: str, first_node: int | None
) -> list[str]:
    """Return the command of a role's containers.

    Args:
        argv: Program and arguments, with ``placeholder`` in place of the replica's index.
        set_by_env: Variables that env(1) sets, because Batch cannot; with ``placeholder`` in place
            of the replica's index.
        placeholder: The text that stands for the replica's index.
        first_node: Index of the role's first node, or None if no argument has a placeholder.
    """
    command = list(argv)
    if set_by_env:
        if "=" in command[0]:
            command = [*_EXEC, *command]
        command = ["env", *(f"{name}={value}" for name, value in set_by_env.items()), *command]
    if first_node is not None and any(placeholder in argument for argument in command):
        command = ["sh", "-c", PROLOGUE, _NAME, str(first_node), placeholder, *command]
    return command


def read_command(command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return argv and ``set_by_env`` of a command that :func:`make_command` made.

    The macro ``replica_id`` replaces the placeholder. Any other command is returned unchanged, with
    an empty dict.
    """
    argv = list(command)
    ours = False
    if argv[:4] == ["sh", "-c", PROLOGUE, _NAME] and len(argv) > 6:
        ours = True
        placeholder = argv[5]
        argv = [argument.replace(placeholder, macros.replica_id) for argument in argv[6:]]
    variables: dict[str, str] = {}
    if argv[:1] == ["env"] and len(argv) > 1 and (ours or argv[1].endswith("=")):
        argv = argv[1:]
        while len(argv) > 1 and "=" in argv[0]:
            name, _, value = argv.pop(0).partition("=")
            variables[name] = value
        if argv[: len(_EXEC)] == _EXEC:
            argv = argv[len(_EXEC) :]
    return argv, variables
