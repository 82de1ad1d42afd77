r"""The script of an app, which runs in each of its jobs.

The command of a job is ``/bin/bash SCRIPT ROLE [REPLICA]``: arguments and variables of the role are
only in the script, because batch systems show the command line of a job to all users. The script
runs no command of the batch system, unless :class:`~torchx_kit.batch.system.ScriptParts` has one.
A replica notices the failure of another replica by a file in the app's record.
"""

from __future__ import annotations

from collections.abc import Iterable

from torchx_kit.batch.system import ScriptParts
from torchx_kit.jobs.arrays import copy_commands
from torchx_kit.scripts.job_script import (
    RUN_REPLICA,
    RoleQuoting,
    comment_lines,
    role_functions,
    role_table,
)
from torchx_kit.scripts.setup_script import render_setup
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros

#: Name of the script in the app's record.
SCRIPT = "script"
#: Name of the record's file with the variables of the submission, as bash statements.
VARIABLES = "env"
#: How long a replica may take to end after another replica has failed, in seconds.
GRACE_SECONDS = 10

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
    roles: Iterable[tuple[int, int, str]],
    commands: Iterable[list[str]],
    parts: ScriptParts,
    setup: Iterable[str] = (),
    is_array: bool = False,
) -> str:
    """Return the script.

    Args:
        header: Lines of the comment at the top of the script.
        app_id: Id of the app or array.
        roles: For each role: number of replicas, how often a failed replica is restarted in place,
            name in job names.
        commands: The lines of each role's function.
        parts: Code that depends on the batch system.
        setup: Lines of bash that run before the program of each replica.
        is_array: Whether the tasks of the job are apps, whose commands are in files of the record
            (:mod:`torchx_kit.jobs.arrays`).

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
        task=parts.task,
        element=_ELEMENT.format(task=parts.task, copy=copy_commands("$tx_task"))
        if is_array
        else "",
        signals=parts.signals,
        after_failure=parts.after_failure,
        variables=VARIABLES,
        grace=GRACE_SECONDS,
    )


# Sets the record, the id and the functions of an array's element.
_ELEMENT = """
tx_task={task}
tx_array=$tx_record tx_record=$tx_record/$tx_task tx_app=$tx_app.$tx_task tx_k=0
mkdir -p -m 700 "$tx_record" || exit 1
[ ! -e "$tx_record/cancelled" ] || exit 1
{copy}
. "$tx_record/commands" || exit 1
"""


# The names of the script's own variables begin with tx_, so that no variable of the user changes.
# The script traps the signals that are meant for the command, because it must still record the
# command's end. `kill -TERM 0` signals the process group, which belongs to this job alone: without
# that, the signal would also end the daemon that has started the job.
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
# Ends this job once another replica has failed.
tx_watch() {{
    trap '' HUP {signals}
    until [ -e "$tx_record/failed" ]; do sleep 1; done
    kill -TERM 0
    sleep {grace}
    kill -KILL 0
}}

read -r _ _ _ _ tx_group _ < /proc/$$/stat
[ "$tx_group" = $$ ] || exec setsid /bin/bash "$0" "$@"
tx_n=$1 tx_k=${{2-{task}}} tx_record=${{0%/*}} tx_ending=
tx_folder=${{tx_record%/*/*}}
cd -- "$tx_folder" || exit 1
{element}IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[tx_n]}}"
tx_host=$(hostname)

# Sets the variables of the submission. A variable that the batch system sets for the job keeps its
# value, except PATH.
if [ -r "${{0%/*}}/{variables}" ]; then
    tx_own=$(unset PATH; export -p)
    . "${{0%/*}}/{variables}"
    . /dev/stdin <<< "$tx_own"
fi

trap : HUP QUIT ALRM CONT URG WINCH
trap 'tx_ending=1' {signals} # the batch system may send them before it kills the job

# If the batch system has requeued the job of the replica that failed, the app runs again.
if read -r tx_a tx_b _ 2> /dev/null < "$tx_record/failed" && [ "$tx_a $tx_b" = "$tx_n $tx_k" ]; then
    rm -f "$tx_record/failed"
fi
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
if [ "$tx_first" ]; then
    {after_failure}
fi
exit "$tx_code"
"""
