r"""The script of an app, which runs in each task of its jobs.

Each role is an array job, and its replicas are the job's tasks. The command of a job is
``/bin/bash SCRIPT ROLE``: arguments and variables of the role are only in the script, because
``qstat -j`` shows the arguments and the variables of a job to every user of the cluster.

The script runs no command of Grid Engine, because the qmaster accepts commands only from submit
hosts, and an execution host may not be a submit host. A replica notices the failure of another
replica by a file in the app's record.
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
from torchx_kit.scripts.setup_script import render_setup
from torchx_sched_sge.records import VARIABLES
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros

# Placeholder for the replica's index, which only the running task knows. It contains a NUL
# character, which no argument can contain.
_REPLICA = "\0replica\0"

#: How long a replica may take to end after another replica has failed, in seconds.
GRACE_SECONDS = 10


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
    roles: Iterable[tuple[int, int, str]],
    commands: Iterable[list[str]],
    setup: Iterable[str] = (),
) -> str:
    """Return the script.

    Args:
        header: Lines of the comment at the top of the script.
        app_id: The app's id.
        roles: For each role: number of replicas, how often a failed replica is restarted in place,
            name in job names.
        commands: The lines of each role's function.
        setup: Lines of bash that run before the program of each replica.

    Raises:
        RequestError: A line of ``setup`` cannot be written to a script.
    """
    roles = list(roles)
    return _SCRIPT.format(
        header=comment_lines(header),
        app_id=app_id,
        table=role_table(roles),
        functions=role_functions(roles, commands),
        setup=render_setup(setup),
        run_replica=RUN_REPLICA,
        variables=VARIABLES,
        grace=GRACE_SECONDS,
    )


# The names of the script's own variables begin with tx_, so that no variable of the user changes.
# The script traps the signals that are meant for the command, because it must still record the
# command's end. Each task has its own process group, and `kill -TERM 0` signals this group.
_SCRIPT = """\
#!/bin/bash
#
{header}
#
tx_app={app_id}

# A line for each role: the number of replicas, the restarts of a replica in place, and the name in
# job names.
tx_roles=(
{table}
)

# The commands. $1 is the index of the replica in its role.
{functions}

{run_replica}
{setup}
# Ends this task once another replica has failed.
tx_watch() {{
    trap '' HUP INT TERM USR1 USR2 XCPU
    until [ -e "$tx_record/failed" ]; do sleep 1; done
    kill -TERM 0
    sleep {grace}
    kill -KILL 0
}}

tx_n=$1 tx_k=$((SGE_TASK_ID - 1)) tx_record=${{0%/*}} tx_ending=
tx_folder=${{tx_record%/*/*}}
IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[tx_n]}}"
tx_host=$(hostname)

# Sets the variables of the submission. A variable that Grid Engine sets for the task keeps its
# value, except PATH.
if [ -r "$tx_record/{variables}" ]; then
    tx_own=$(unset PATH; export -p)
    . "$tx_record/{variables}"
    . /dev/stdin <<< "$tx_own"
fi

trap : HUP QUIT ALRM CONT URG WINCH
trap 'tx_ending=1' INT TERM USR1 USR2 XCPU # Grid Engine sends the last three before it kills

# Rank 0 writes down its host for the other replicas.
if [ "$tx_n" = 0 ] && [ "$tx_k" = 0 ]; then
    echo "$tx_host" > "$tx_record/rank0.new" && mv "$tx_record/rank0.new" "$tx_record/rank0"
fi
until [ -s "$tx_record/rank0" ] || [ "$tx_ending" ]; do
    [ -e "$tx_record/failed" ] && exit 1
    sleep 1
done
[ -e "$tx_record/failed" ] && exit 1
read -r TORCHX_RANK0_HOST < "$tx_record/rank0"
export TORCHX_RANK0_HOST TORCHX_REPLICA_ID=$tx_k PYTHONUNBUFFERED=1
export TORCHELASTIC_ERROR_FILE=$tx_record/error-$tx_n-$tx_k.json

tx_watch < /dev/null > /dev/null 2>&1 &
tx_run "$tx_record" "$tx_folder/$tx_app-$tx_name-$tx_k" "$tx_host" "$tx_n" "$tx_k" "$tx_tries" \\
    "$tx_k"
tx_code=$?
kill -KILL $! 2> /dev/null
exit "$tx_code"
"""
