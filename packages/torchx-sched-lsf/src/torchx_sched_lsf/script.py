r"""The script of an app, which submits the jobs and also runs in each job.

Without arguments, the script submits one job for each replica with bsub, and prints the jobs' ids.
The command of a job is one line that calls the copy of the script with the indices of role and
replica. So arguments and variables are not on a command line of LSF, and only one shell parses
them.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchx_kit.scripts.job_script import (
    RUN_REPLICA,
    RoleQuoting,
    comment_lines,
    role_functions,
    role_table,
)
from torchx_kit.scripts.shell import quote_ascii
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros

#: Name of the directory that contains the records of apps, in the directory of the logs.
RECORDS = ".torchx-lsf"

# Placeholder for the replica's index, which only the running job knows. It contains a NUL
# character, which no argument can contain.
_REPLICA = "\0replica\0"


def role_quoting(app_id: str, img_root: str) -> RoleQuoting:
    """Return the quoting of a role's arguments and variables.

    Args:
        app_id: Value of the macro ``${app_id}``.
        img_root: Value of the macro ``${img_root}``.
    """
    values = macros.Values(img_root, app_id, _REPLICA, ENV_RANK0_HOST)
    return RoleQuoting(values, {_REPLICA: '"$1"'})


def render(
    *,
    header: Iterable[str],
    app_id: str,
    folder: str,
    roles: Iterable[tuple[int, int, str]],
    commands: Iterable[list[str]],
    submissions: Iterable[str],
) -> str:
    """Return the script.

    Args:
        header: Lines of the comment at the top of the script.
        app_id: The app's id.
        folder: Directory of the logs; empty means the current directory.
        roles: For each role: number of replicas, number of restarts in place, name in job names.
        commands: The lines of each role's function.
        submissions: One call of the script's function ``submit`` for each replica.
    """
    roles = list(roles)
    return _SCRIPT.format(
        header=comment_lines(header),
        app_id=app_id,
        folder=quote_ascii(folder) if folder else '"$PWD"',
        table=role_table(roles),
        functions=role_functions(roles, commands),
        submissions="\n".join(submissions),
        run_replica=RUN_REPLICA,
    )


# The script's own variables begin with tx_, so that no variable of the user changes. Replicas trap
# the signals that are meant for the command, because the script must still record the command's
# end.
_SCRIPT = """\
#!/bin/bash
#
{header}
#
tx_app={app_id}

# Each role: number of replicas, restarts of a replica in place, name in job names.
tx_roles=(
{table}
)

# The commands. $1 is the index of the replica in its role.
{functions}

{run_replica}

if [ "${{1-}}" = replica ]; then # a job of LSF: $2 directory, $3 role, $4 replica
    trap : HUP QUIT USR1 USR2 ALRM CONT URG WINCH
    trap 'tx_ending=1' INT TERM
    tx_ending= tx_record=$2/.torchx-lsf/$tx_app
    IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[$3]}}"
    cd -- "$2" || exit 1
    tx_host=$(hostname)
    # Rank 0 writes down its host for the other replicas, which LSF starts after it.
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
    if [ "$tx_first" ]; then # the app fails as a whole, so kill the other jobs
        for ((tx_i = 0; tx_i < 100; tx_i++)); do
            [ -e "$tx_record/jobs" ] && break
            sleep 0.1
        done
        bkill $(grep -vx "$LSB_JOBID" "$tx_record/jobs") > /dev/null 2>&1 < /dev/null
    fi
    exit "$tx_code"
fi

# Submits a job for each replica. If LSF refuses one, the jobs before it are killed.
tx_folder={folder}
tx_record=$tx_folder/.torchx-lsf/$tx_app
umask 077
mkdir -p "$tx_record" && cp -- "$0" "$tx_record/script" || exit 1
: > "$tx_record/jobs.new"
submit() {{ # role, replica, arguments of bsub
    IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[$1]}}"
    tx_job=$tx_app-$tx_name-$2
    tx_line="exec /bin/bash '${{tx_record//\\'/\\'\\\\\\'\\'}}/script'"
    tx_line="$tx_line replica '${{tx_folder//\\'/\\'\\\\\\'\\'}}' $1 $2"
    tx_output=$(echo "$tx_line" | bsub -P "$tx_app" -J "$tx_job" \\
        -o "$tx_folder/$tx_job.submit.out" -e "$tx_folder/$tx_job.submit.err" "${{@:3}}" 2>&1)
    tx_code=$?
    if [[ $tx_code -ne 0 || ! $tx_output =~ Job\\ \\<([0-9]+)\\> ]]; then
        echo "$tx_output" >&2
        [ -s "$tx_record/jobs.new" ] && bkill $(< "$tx_record/jobs.new") > /dev/null 2>&1
        exit 1
    fi
    echo "${{BASH_REMATCH[1]}}" >> "$tx_record/jobs.new"
    echo "submitted $1 $2 ${{BASH_REMATCH[1]}}"
}}
{submissions}
mv "$tx_record/jobs.new" "$tx_record/jobs"
"""
