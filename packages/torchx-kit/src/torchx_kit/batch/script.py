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
from torchx_kit.jobs.attempts import AttemptRules
from torchx_kit.scripts.attempt_script import (
    AGREEMENT,
    GRACE_SECONDS,
    attempt_functions,
    time_limit,
)
from torchx_kit.scripts.job_script import (
    RUN_REPLICA,
    RoleQuoting,
    comment_lines,
    role_functions,
    role_table,
)
from torchx_kit.scripts.setup_script import render_setup
from torchx_kit.scripts.shell import quote_ascii
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros

#: Name of the script in the app's record.
SCRIPT = "script"
#: Name of the record's file with the variables of the submission, as bash statements.
VARIABLES = "env"
#: The exit code with which a job asks the batch system to start it again.
EXIT_AGAIN = 99

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


def attempt_lines(rules: AttemptRules, resume_dir: str = "", seconds: int | None = None) -> str:
    """Return the lines of a script that begin an attempt of an app with the option ``requeue``.

    Args:
        rules: When the app starts again.
        resume_dir: Absolute path of the folder that all attempts share; empty if there is none.
        seconds: The time limit of an attempt, in seconds; None without a limit.
    """
    return _ATTEMPT.format(
        functions=attempt_functions(rules, quote_ascii(resume_dir) if resume_dir else None),
        agreement=AGREEMENT,
        time_limit=time_limit(seconds),
    )


def render(
    *,
    header: Iterable[str],
    app_id: str,
    roles: Iterable[tuple[int, int, str]],
    commands: Iterable[list[str]],
    parts: ScriptParts,
    setup: Iterable[str] = (),
    is_array: bool = False,
    attempt: str = "",
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
        attempt: The result of :func:`attempt_lines`; empty without the option ``requeue``.

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
        on_signal=(_NOTE_SIGNAL if attempt else "") + parts.on_signal,
        after_failure=parts.after_failure,
        after_signal=parts.after_signal,
        watch=parts.watch,
        attempt=attempt,
        next_attempt=_NEXT_ATTEMPT if attempt else "",
        watch_time=_WATCH_TIME if attempt else "",
        kill=_KILL_CHILDREN if attempt else "kill -KILL 0",
        begin=_BEGIN if attempt else "",
        end_attempt=_END_ATTEMPT.format(code=EXIT_AGAIN) if attempt else _END_WATCH,
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


# The parts of a script with the option requeue. The replicas of an app are jobs of their own, which
# the batch system starts again. A replica whose program has succeeded waits for the others.
_ATTEMPT = """{functions}{agreement}
export TORCHX_MAX_RETRIES=$tx_tries
tx_tries=0 tx_attempt=0
tx_is_over() {{
    [ -e "$tx_record/began-$((tx_attempt + 1))-$tx_n-$tx_k" ]
}}
tx_hosts() {{
    cat "$tx_record/began-$tx_attempt-"* 2> /dev/null | paste -sd , -
}}
tx_find_attempt
# If this job has begun the attempt before, the batch system has ended it.
if [ -e "$tx_record/began-$tx_attempt-$tx_n-$tx_k" ]; then
    tx_reason=node-failure
    [ ! -e "$tx_record/signalled-$tx_n-$tx_k" ] || tx_reason=preempted
    tx_end_attempt "$tx_reason" 1
    tx_find_attempt
fi
rm -f "$tx_record/signalled-$tx_n-$tx_k"
if [ "$tx_n" = 0 ] && [ "$tx_k" = 0 ] && [ ! -e "$tx_record/failed" ]; then
    tx_note start "$tx_attempt"
fi
{time_limit}
"""
# Another replica has ended the attempt before this one has begun.
_NEXT_ATTEMPT = """
    tx_find_attempt"""
_WATCH_TIME = """\
        if [ "$tx_signal_at" ] \\
            && { [ "$SECONDS" -ge "$tx_signal_at" ] || [ -e "$tx_limit" ]; }; then
            tx_signal_at=
            : > "$tx_limit"
            kill -USR1 0
        fi
        if [ "$tx_end_at" ] && [ "$SECONDS" -ge "$tx_end_at" ]; then
            : > "$tx_limit"
            break
        fi
"""
# Kills the processes of this job except the script, which has to ask for the next attempt.
_KILL_CHILDREN = """\
for tx_file in /proc/[0-9]*/stat; do
        read -r tx_line 2> /dev/null < "$tx_file" || continue
        read -r _ _ tx_group _ <<< "${tx_line##*) }"
        tx_pid=${tx_line%% *}
        [ "$tx_group" != $$ ] || [ "$tx_pid" = $$ ] || [ "$tx_pid" = "$BASHPID" ] \\
            || kill -KILL "$tx_pid"
    done"""
_NOTE_SIGNAL = """\
    [ -z "${tx_attempt-}" ] || : > "$tx_record/signalled-$tx_n-$tx_k"
"""
_END_WATCH = """\
kill -KILL "$tx_watcher" 2> /dev/null
"""
_BEGIN = """\
tx_limit=$tx_record/limit-$tx_attempt
tx_left=$(tx_seconds_left)
[ -z "$tx_left" ] || [ "$tx_left" -ge "${tx_end_at:-$((tx_left + 1))}" ] || tx_end_at=$tx_left
echo "$tx_host" > "$tx_record/began-$tx_attempt-$tx_n-$tx_k"
export TORCHX_ATTEMPT=$tx_attempt
if [ "$tx_attempt" -gt 0 ]; then
    read -r _ TORCHX_RESTART_REASON < "$tx_record/end-$((tx_attempt - 1))"
    export TORCHX_RESTART_REASON
    echo "--- attempt $((tx_attempt + 1)) ---" >> "$tx_folder/$tx_app-$tx_name-$tx_k.out"
fi
"""
_END_ATTEMPT = """\
# Returns 0 if all replicas have a file of this attempt whose name begins with one of the words $1.
tx_have_all() {{
    [ "$(ls "$tx_record" | grep -cE "^($1)-$tx_attempt-")" -ge "$tx_total" ]
}}
tx_total=0
for tx_line in "${{tx_roles[@]}}"; do tx_total=$((tx_total + ${{tx_line%% *}})); done
tx_words=
if [ "$tx_code" -eq 0 ]; then
    tx_words=done
    : > "$tx_record/done-$tx_attempt-$tx_n-$tx_k"
elif [ -e "$tx_limit" ]; then # the others may still write their checkpoints
    tx_words="done|left"
    : > "$tx_record/left-$tx_attempt-$tx_n-$tx_k"
fi
until [ -z "$tx_words" ] || tx_have_all "$tx_words" || [ -s "$tx_over" ] \\
    || [ -e "$tx_record/failed" ] || [ "$SECONDS" -ge "${{tx_end_at:-$((SECONDS + 1))}}" ] \\
    || {{ [ "$tx_ending" ] && [ ! -e "$tx_limit" ]; }}; do
    sleep 1
done
tx_next=
if [ -s "$tx_over" ]; then
    read -r tx_next _ < "$tx_over"
elif [ ! -e "$tx_record/failed" ] && ! tx_have_all done; then
    tx_reason=
    if [ -e "$tx_limit" ] || [ "$SECONDS" -ge "${{tx_end_at:-$((SECONDS + 1))}}" ]; then
        tx_reason=time-limit
    elif tx_is_requested "$tx_code" "$tx_attempt"; then
        tx_reason=${{tx_ending:+preempted}}
        tx_reason=${{tx_reason:-requested}}
    elif [ -z "$tx_ending" ]; then
        tx_reason=failed
    fi # otherwise, the batch system may start the job again
    [ -z "$tx_reason" ] || tx_end_attempt "$tx_reason" "$tx_code"
fi
kill -KILL "$tx_watcher" 2> /dev/null
[ "$tx_next" != again ] || exit {code}
[ "$tx_code" != {code} ] || tx_code=1
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
    until [ -e "$tx_record/failed" ] || [ -s "$tx_over" ]; do
        sleep 1
{watch_time}{watch}
    done
    kill -TERM 0
    sleep {grace}
    {kill}
}}

read -r _ _ _ _ tx_group _ < /proc/$$/stat
[ "$tx_group" = $$ ] || exec setsid /bin/bash "$0" "$@"
tx_n=$1 tx_k=${{2-{task}}} tx_record=${{0%/*}} tx_ending=
tx_folder=${{tx_record%/*/*}}
cd -- "$tx_folder" || exit 1
{element}IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[tx_n]}}"
tx_host=$(hostname)
tx_rank0=$tx_record/rank0 tx_over=/dev/null

# Sets the variables of the submission. A variable that the batch system sets for the job keeps its
# value, except PATH.
if [ -r "${{0%/*}}/{variables}" ]; then
    tx_own=$(unset PATH; export -p)
    . "${{0%/*}}/{variables}"
    . /dev/stdin <<< "$tx_own"
fi

# The batch system may send the signals before it kills the job.
tx_on_signal() {{
    tx_ending=1
{on_signal}
}}
trap : HUP QUIT USR1 USR2 ALRM CONT URG WINCH
trap tx_on_signal {signals}

# If the batch system has requeued the job of the replica that failed, the app runs again.
if read -r tx_a tx_b _ 2> /dev/null < "$tx_record/failed" && [ "$tx_a $tx_b" = "$tx_n $tx_k" ]; then
    rm -f "$tx_record/failed"
fi
{attempt}
# Rank 0 writes down its host for the other replicas.
if [ "$tx_n" = 0 ] && [ "$tx_k" = 0 ]; then
    echo "$tx_host" > "$tx_rank0.new" && mv "$tx_rank0.new" "$tx_rank0"
fi
until [ -s "$tx_rank0" ] || [ "$tx_ending" ]; do
    [ -e "$tx_record/failed" ] && exit 1
    sleep 1{next_attempt}
done
[ -e "$tx_record/failed" ] && exit 1
read -r TORCHX_RANK0_HOST < "$tx_rank0"
{begin}export TORCHX_RANK0_HOST TORCHX_REPLICA_ID=$tx_k PYTHONUNBUFFERED=1
export TORCHELASTIC_ERROR_FILE=$tx_record/error-$tx_n-$tx_k.json

tx_watch < /dev/null > /dev/null 2>&1 &
tx_watcher=$!
tx_run "$tx_record" "$tx_folder/$tx_app-$tx_name-$tx_k" "$tx_host" "$tx_n" "$tx_k" "$tx_tries" \\
    "$tx_k"
tx_code=$?
{end_attempt}if [ "$tx_first" ]; then
{after_failure}
elif [ "$tx_code" -ne 0 ] && [ ! -e "$tx_record/failed" ]; then
{after_signal}
fi
exit "$tx_code"
"""
