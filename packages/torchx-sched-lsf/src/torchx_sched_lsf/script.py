r"""The script: it submits itself, and runs as every replica.

Called by hand or by us it hands one job for each replica to bsub, and prints what bsub says. The
text of a job is one line, by which a copy of the script is called with the replica's number; so
arguments and environment are on no command line of LSF's, and are read by one shell once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torchx_specs.errors import RequestError
from torchx_specs.redaction import MASK, is_secret
from torchx_specs.schedulers.shell import is_variable_name, quote_around, quote_ascii
from torchx_specs.templates import substitute

RANK0_ENV = "TORCHX_RANK0_HOST"

# Stands for what only the job knows; no word can hold a NUL.
_REPLICA = "\0replica\0"
_SHELL = {_REPLICA: '"$1"'}

# Variables that bash keeps for itself or acts upon; env(1) sets them without asking bash.
_BASH_OWN = re.compile(
    r"BASH.*|LC_.*|LANG|_|UID|EUID|PPID|SHELLOPTS|SHLVL|PWD|OLDPWD|POSIXLY_CORRECT|RANDOM|SRANDOM"
    r"|SECONDS|EPOCHSECONDS|EPOCHREALTIME|LINENO|GROUPS|FUNCNAME|FUNCNEST|DIRSTACK|HISTCMD|COMP_.*"
    r"|PIPESTATUS|TIMEFORMAT|COPROC|MAPFILE|REPLY|IFS|OPTIND|OPTERR|OPTARG|HOSTNAME|HOSTTYPE"
    r"|MACHTYPE|OSTYPE|IGNOREEOF|TMOUT|HISTSIZE|HISTFILESIZE|HISTFILE|GLOBIGNORE|COLUMNS|LINES"
)


def values(app_id: str, img_root: str) -> dict[str, str]:
    """Returns what the macros stand for in the script."""
    return {
        "img_root": img_root,
        "base_img_root": "DEPRECATED",
        "app_id": app_id,
        "replica_id": _REPLICA,
        "rank0_env": RANK0_ENV,
    }


def word(text: str, macro_values: Mapping[str, str], where: str = "a word") -> str:
    """Returns one word, quoted, macros filled in.

    Raises:
        RequestError: it cannot be passed to a process
    """
    if "\0" in text:
        raise RequestError(f"{where} holds a NUL character, which no process can be given")
    try:
        return quote_around(substitute(text, macro_values), _SHELL, quote_ascii) or "''"
    except RequestError as e:
        raise RequestError(f"{where}: {e}") from None


def exports(
    env: Mapping[str, str], macro_values: Mapping[str, str], *, mask: bool = False
) -> tuple[list[str], list[str]]:
    """Returns lines that export variables, and words for env(1) with those that bash can't.

    Args:
        env: the variables, with macros
        macro_values: what the macros stand for
        mask: hides the values of what is named like a secret

    Raises:
        RequestError: one cannot be passed to a process
    """
    lines, by_env = [], []
    for name, value in env.items():
        if not name or "=" in name or "\0" in name:
            raise RequestError(f"env has {name!r}, which is no variable's name")
        if mask and value and is_secret(name):
            value = MASK
        quoted = word(value, macro_values, f"env['{name}']")
        if is_variable_name(name) and not _BASH_OWN.fullmatch(name):
            lines.append(f"export {name}={quoted}")
        else:
            by_env.append(f"{quote_ascii(name)}={quoted}")
    return lines, by_env


def render(
    *,
    header: Iterable[str],
    app_id: str,
    folder: str,
    roles: Iterable[tuple[int, int, str]],
    commands: Iterable[list[str]],
    submissions: Iterable[str],
) -> str:
    """Returns the script.

    Args:
        header: comments at its top
        app_id: the app's id
        folder: for the logs, empty for the current one
        roles: of each how many replicas, how often its process is started again, and its name
        commands: the lines of each role's command
        submissions: words for bsub, one line for each replica
    """
    table = [f'    "{count} {tries} {name}"' for count, tries, name in roles]
    functions = []
    for number, lines in enumerate(commands):
        name = table[number].split()[-1].rstrip('"')
        body = "\n".join(f"    {line}" for line in lines)
        functions.append(f"role_{number}() {{ # {name}\n{body}\n}}")
    return _SCRIPT.format(
        header="\n".join("# " + re.sub(r"[^ -~]+", "?", line) for line in header),
        app_id=app_id,
        folder=quote_ascii(folder) if folder else '"$PWD"',
        table="\n".join(table),
        functions="\n".join(functions),
        submissions="\n".join(submissions),
    )


# Names that begin with tx_ are the script's own: whatever a user's environment exports, none of it
# is changed.
_SCRIPT = """\
#!/bin/bash
#
{header}
#
tx_app={app_id}

# Of each role: replicas, restarts of a replica's process, name in the names of jobs.
tx_roles=(
{table}
)

# The commands. $1 is the index of the replica within its role.
{functions}

if [ "${{1-}}" = replica ]; then # a job of LSF: $2 folder, $3 number of the role, $4 replica
    trap : HUP QUIT USR1 USR2 ALRM CONT URG WINCH
    trap 'tx_ending=1' INT TERM
    tx_ending= tx_try=0 tx_record=$2/.torchx-lsf/$tx_app
    IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[$3]}}"
    tx_log=$2/$tx_app-$tx_name-$4 tx_file=$tx_record/replica-$3-$4
    cd -- "$2" || exit 1
    tx_host=$(hostname)
    # Rank 0 says where it runs; the others are started after it.
    if [ "$3" = 0 ] && [ "$4" = 0 ]; then
        echo "$tx_host" > "$tx_record/rank0.new" && mv "$tx_record/rank0.new" "$tx_record/rank0"
    fi
    for ((tx_i = 0; tx_i < 3000; tx_i++)); do
        [ -s "$tx_record/rank0" ] && break
        sleep 0.1
    done
    read -r TORCHX_RANK0_HOST < "$tx_record/rank0"
    export TORCHX_RANK0_HOST TORCHX_REPLICA_ID=$4 PYTHONUNBUFFERED=1
    export TORCHELASTIC_ERROR_FILE=$tx_record/error-$3-$4.json
    while :; do
        printf -v tx_now '%(%s)T' -1
        echo "$tx_try $tx_host $tx_now" > "$tx_file"
        ("role_$3" "$4") >> "$tx_log.out" 2>> "$tx_log.err" < /dev/null
        tx_code=$?
        [ "$tx_code" -eq 0 ] || [ "$tx_ending" ] || [ "$tx_try" -ge "$tx_tries" ] && break
        tx_try=$((tx_try + 1))
    done
    printf -v tx_end '%(%s)T' -1
    echo "$tx_try $tx_host $tx_now $tx_end $tx_code" > "$tx_file"
    if [ "$tx_code" -ne 0 ] && [ -z "$tx_ending" ]; then
        # An app fails as a whole: the jobs of the other replicas are ended.
        if (set -C && echo "$3 $4 $tx_host $tx_code" > "$tx_record/failed") 2> /dev/null; then
            for ((tx_i = 0; tx_i < 100; tx_i++)); do
                [ -e "$tx_record/jobs" ] && break
                sleep 0.1
            done
            bkill $(grep -vx "$LSB_JOBID" "$tx_record/jobs") > /dev/null 2>&1 < /dev/null
        fi
    fi
    exit "$tx_code"
fi

# Submits a job for each replica. If one is refused, those before it are ended.
tx_folder={folder}
tx_record=$tx_folder/.torchx-lsf/$tx_app
umask 077
mkdir -p "$tx_record" && cp -- "$0" "$tx_record/script" || exit 1
: > "$tx_record/jobs.new"
submit() {{ # role, replica, words for bsub
    IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[$1]}}"
    tx_job=$tx_app-$tx_name-$2
    tx_line="exec /bin/bash '${{tx_record//\\'/\\'\\\\\\'\\'}}/script'"
    tx_line="$tx_line replica '${{tx_folder//\\'/\\'\\\\\\'\\'}}' $1 $2"
    tx_said=$(echo "$tx_line" | bsub -P "$tx_app" -J "$tx_job" \\
        -o "$tx_folder/$tx_job.submit.out" -e "$tx_folder/$tx_job.submit.err" "${{@:3}}" 2>&1)
    tx_code=$?
    if [[ $tx_code -ne 0 || ! $tx_said =~ Job\\ \\<([0-9]+)\\> ]]; then
        echo "$tx_said" >&2
        [ -s "$tx_record/jobs.new" ] && bkill $(< "$tx_record/jobs.new") > /dev/null 2>&1
        exit 1
    fi
    echo "${{BASH_REMATCH[1]}}" >> "$tx_record/jobs.new"
    echo "submitted $1 $2 ${{BASH_REMATCH[1]}}"
}}
{submissions}
mv "$tx_record/jobs.new" "$tx_record/jobs"
"""
