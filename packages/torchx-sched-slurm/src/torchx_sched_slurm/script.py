r"""The batch script: directives, the roles' commands, and a part that is always the same.

A script runs twice. Slurm starts it on the first node, where it starts the replicas with srun; each
replica calls a copy of it again, with the word ``replica``, finds out which one it is, and runs its
role's command. So arguments and environment travel in no command line and no list of Slurm's, and
are read by one shell once.

The files that it leaves in its record are read by :mod:`torchx_sched_slurm.records`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torchx_kit.scripts.job_script import (
    RUN_REPLICA,
    RoleWords,
    comments,
    env_words,
    role_functions,
    role_table,
)
from torchx_kit.scripts.shell import quote_around, quote_ascii
from torchx_specs.errors import RequestError
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros

#: Beside the logs: folders with what jobs say of themselves.
RECORDS = ".torchx-slurm"

# Stand for what only the task knows; no word can hold a NUL.
_JOB = "\0job\0"
_REPLICA = "\0replica\0"
#: In options of srun, for a mount of the job's working directory.
WORK_FOLDER = "\0folder\0"


def role_words(img_root: str) -> RoleWords:
    """Returns how the words of a role are written into the script."""
    values = macros.Values(img_root, _JOB, _REPLICA, ENV_RANK0_HOST)
    return RoleWords(values, {_JOB: '"$1"', _REPLICA: '"$2"'})


def command_lines(
    entrypoint: str,
    args: Iterable[str],
    env: Mapping[str, str],
    img_root: str,
    prefix: Iterable[str] = (),
    *,
    mask: bool = False,
) -> list[str]:
    """Returns the lines of the function that becomes a role's command.

    Args:
        entrypoint: the program
        args: its arguments, with macros
        env: its variables, with macros
        img_root: what that macro stands for
        prefix: the command that runs it: of a container
        mask: hides the values of what is named like a secret

    Raises:
        RequestError: a word cannot be passed to a process
    """
    words = role_words(img_root)
    lines, by_env = words.exports(env, mask=mask)
    command = [*env_words(by_env, entrypoint), *words.command(entrypoint, args)]
    return [*lines, " ".join(["exec", "--", *map(quote_ascii, prefix), *command])]


def directive_line(opts: Mapping[str, str | None]) -> str:
    """Returns the options of one component as lines of directives."""
    return "\n".join(f"#SBATCH {option(name, value)}" for name, value in opts.items())


def option(name: str, value: str | None) -> str:
    """Returns one option as sbatch reads it in a script.

    Raises:
        RequestError: it cannot be written there
    """
    if value is None:
        return f"--{name}"
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", value):
        return f"--{name}={value}"
    if re.search(r"[\0-\x1f\x7f]", value):
        raise RequestError(f"--{name}={value!r} holds a control character")
    for mark in ('"', "'"):
        if mark not in value and not (mark == '"' and "\\" in value):
            return f"--{name}={mark}{value}{mark}"
    raise RequestError(f"--{name}={value!r}: no directive can hold both kinds of quotes")


def srun_words(opts: Mapping[str, str | None]) -> str:
    """Returns options for srun's command line in the script."""
    words = [f"--{k}" if v is None else f"--{k}={v}" for k, v in opts.items()]
    return " ".join(quote_around(word, {WORK_FOLDER: '"$PWD:$PWD"'}, quote_ascii) for word in words)


def render(
    *,
    header: Iterable[str],
    directives: str,
    roles: Iterable[tuple[int, int, str]],
    commands: Iterable[list[str]],
    srun: str,
    max_retries: int,
    record: str | None,
) -> str:
    """Returns the script.

    Args:
        header: comments at its top
        directives: sbatch's
        roles: of each role how many replicas, how often one is started again by itself, and its
            name in the names of files
        commands: the lines of each role's command
        srun: its options, component by component
        max_retries: how often the job is requeued
        record: folder for what the job says of itself, None for one named by the job's id
    """
    roles = list(roles)
    place = quote_ascii(record) if record else f'"$PWD/{RECORDS}/$SLURM_JOB_ID"'
    return _SCRIPT.format(
        header=comments(header),
        directives=directives,
        table=role_table(roles),
        functions=role_functions(roles, commands),
        srun=srun,
        max_retries=max_retries,
        place=place,
        run_replica=RUN_REPLICA,
    )


# Names that begin with tx_ are the script's own: whatever a user's environment exports, none of it
# is changed. "replica" begins with what must survive signals that are meant for the command.
_SCRIPT = """\
#!/bin/bash
#
{header}
#
{directives}

# Of each role: replicas, restarts of one replica by itself, name in file names.
tx_roles=(
{table}
)

# The commands. $1 is the id of the job, $2 the index of the replica within its role.
{functions}

# What follows is the same in every script.

{run_replica}

if [ "${{1-}}" = replica ]; then # one task of srun: $2 record, $3 folder of the logs, $4 job
    trap : HUP QUIT USR1 USR2 ALRM CONT URG WINCH
    trap 'tx_ending=1' INT TERM
    tx_k=$SLURM_PROCID tx_ending=
    for tx_n in "${{!tx_roles[@]}}"; do
        IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[tx_n]}}"
        [ "$tx_k" -lt "$tx_count" ] && break
        tx_k=$((tx_k - tx_count))
    done
    export TORCHX_REPLICA_ID=$tx_k
    export TORCHELASTIC_ERROR_FILE=${{TORCHELASTIC_ERROR_FILE-$2/error-$tx_n-$tx_k.json}}
    tx_run "$2" "$3/slurm-$4-$tx_name-$tx_k" "$SLURMD_NODENAME" "$tx_n" "$tx_k" "$tx_tries" \\
        "$4" "$tx_k"
    exit
fi

export PYTHONUNBUFFERED=1
export SLURM_UNBUFFEREDIO=1
export TORCHX_MAX_RETRIES={max_retries}

tx_record={place}
tx_start=${{SLURM_RESTART_COUNT:-0}}
if ! cd -- "${{tx_record%/*/*}}" || ! (umask 077 && mkdir -p "$tx_record" \\
    && cp -- "$0" "$tx_record/script" \\
    && rm -f "$tx_record"/replica-* "$tx_record"/error-* \\
        "$tx_record"/failed "$tx_record"/outcome "$tx_record"/ending \\
    && echo "$tx_start $SLURM_JOB_ID $(date +%s)" > "$tx_record/started"); then
    echo "cannot write to $tx_record on $(hostname)" >&2
    exit 1
fi

# Where replica 0 of the first role runs, by a name that the other nodes can resolve.
tx_nodes=${{SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}}
TORCHX_RANK0_HOST=$(scontrol show hostnames "$tx_nodes" | head -n 1)
if ! getent hosts "$TORCHX_RANK0_HOST" > /dev/null; then
    tx_address=$(scontrol -o show node "$TORCHX_RANK0_HOST" | sed 's/.* NodeAddr=//; s/ .*//')
    TORCHX_RANK0_HOST=${{tx_address:-$(hostname)}}
fi
export TORCHX_RANK0_HOST

tx_ended=
tx_ask() {{ timeout 10 scontrol -o show job "$SLURM_JOB_ID" > "$tx_record/ending"; }}
trap 'tx_ended=1; tx_ask' TERM
trap 'kill -USR1 "$tx_srun"' USR1
trap 'kill -USR2 "$tx_srun"' USR2
{srun} \\
    2> >(tee "$tx_record/srun" >&2) &
tx_srun=$!
while wait "$tx_srun"; tx_code=$?; kill -0 "$tx_srun" 2> /dev/null; do :; done

if [ "$tx_code" -ne 0 ] && [ -r "$tx_record/failed" ]; then # srun has codes of its own
    IFS=' ' read -r tx_n tx_k tx_node tx_code < "$tx_record/failed"
    echo "replica $tx_k of ${{tx_roles[tx_n]##* }} on $tx_node was the first to fail"
fi
echo "job exited with code $tx_code"
tx_outcome=SUCCEEDED
if [ "$tx_code" -ne 0 ]; then
    tx_outcome=FAILED
    # the tasks may have been told to end a moment before this script is
    if [ -z "$tx_ended" ] && tx_ask; then
        grep -q ' JobState=RUNNING ' "$tx_record/ending" || tx_ended=1
    fi
    if [ -z "$tx_ended" ] && [ "$TORCHX_MAX_RETRIES" -gt "$tx_start" ]; then
        echo "REQUEUED $tx_code $tx_start $(date +%s)" > "$tx_record/outcome"
        scontrol requeue "$SLURM_JOB_ID" && exit "$tx_code"
    fi
fi
echo "$tx_outcome $tx_code $tx_start $(date +%s)" > "$tx_record/outcome"
exit "$tx_code"
"""
