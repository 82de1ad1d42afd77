r"""The script: it submits itself, and runs as every replica.

Called by hand or by us it hands one job for each replica to bsub, and prints what bsub says. The
text of a job is one line, by which a copy of the script is called with the replica's number; so
arguments and environment are on no command line of LSF's, and are read by one shell once.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchx_kit.scripts.job_script import (
    RUN_REPLICA,
    RoleWords,
    comments,
    role_functions,
    role_table,
)
from torchx_kit.scripts.shell import quote_ascii
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros

#: Name of the directory of records, beside the logs.
RECORDS = ".torchx-lsf"

# Stands for what only the job knows; no word can hold a NUL.
_REPLICA = "\0replica\0"


def role_words(app_id: str, img_root: str) -> RoleWords:
    """Returns how the words of a role are written into the script."""
    values = macros.Values(img_root, app_id, _REPLICA, ENV_RANK0_HOST)
    return RoleWords(values, {_REPLICA: '"$1"'})


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
    roles = list(roles)
    return _SCRIPT.format(
        header=comments(header),
        app_id=app_id,
        folder=quote_ascii(folder) if folder else '"$PWD"',
        table=role_table(roles),
        functions=role_functions(roles, commands),
        submissions="\n".join(submissions),
        run_replica=RUN_REPLICA,
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

{run_replica}

if [ "${{1-}}" = replica ]; then # a job of LSF: $2 folder, $3 number of the role, $4 replica
    trap : HUP QUIT USR1 USR2 ALRM CONT URG WINCH
    trap 'tx_ending=1' INT TERM
    tx_ending= tx_record=$2/.torchx-lsf/$tx_app
    IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[$3]}}"
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
    tx_run "$tx_record" "$2/$tx_app-$tx_name-$4" "$tx_host" "$3" "$4" "$tx_tries" "$4"
    tx_code=$?
    if [ "$tx_first" ]; then # An app fails as a whole: the jobs of the other replicas are ended.
        for ((tx_i = 0; tx_i < 100; tx_i++)); do
            [ -e "$tx_record/jobs" ] && break
            sleep 0.1
        done
        bkill $(grep -vx "$LSB_JOBID" "$tx_record/jobs") > /dev/null 2>&1 < /dev/null
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
