r"""The script of an app, which submits the jobs and also runs in each job.

Without arguments, the script submits one job for each replica with bsub, and prints the jobs' ids.
A background process calls bsub, so the submission completes even if the client is killed. If the
user cancels the app during the submission, this process kills the jobs that it has submitted.

The command of a job is one line that calls a copy of the script with the indices of role and
replica. So the role's arguments and variables are not on a command line of LSF, and only one shell
parses them.

The script of an array submits one job array. Each of its elements reads its own command from the
record of the array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchx_kit.jobs.arrays import copy_commands
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


@dataclass
class Submission:
    """How the script submits a job.

    Attributes:
        elements: Number of elements of a job array; 0 for a job that is not an array.
        limit: How many elements may run at the same time; None means no limit.
        dependency: The condition under which the first job may start, an expression of ``bsub -w``;
            empty for none. The other jobs start after the first.
    """

    elements: int = 0
    limit: int | None = None
    dependency: str = ""

    @property
    def indices(self) -> str:
        """The part of bsub's option -J that makes an array; empty for a single job."""
        if not self.elements:
            return ""
        return f"[1-{self.elements}]" + ("" if self.limit is None else f"%{self.limit}")


def render(
    *,
    header: Iterable[str],
    app_id: str,
    folder: str,
    roles: Iterable[tuple[int, int, str]],
    commands: Iterable[list[str]],
    submissions: Iterable[str],
    submission: Submission,
    setup: Iterable[str] = (),
) -> str:
    """Return the script.

    Args:
        header: Lines of the comment at the top of the script.
        app_id: The app's id.
        folder: Directory of the logs; empty means the current directory.
        roles: For each role: number of replicas, how often a failed replica is restarted in place,
            name in job names.
        commands: The lines of each role's function.
        submissions: One call of the script's function ``submit`` for each replica.
        submission: How the script submits the jobs.
        setup: Lines of bash that run before the program of each replica.

    Raises:
        RequestError: A line of ``setup`` cannot be written to a script.
    """
    roles = list(roles)
    is_array = bool(submission.elements)
    return _SCRIPT.format(
        header=comment_lines(header),
        app_id=app_id,
        folder=quote_ascii(folder) if folder else '"$PWD"',
        table=role_table(roles),
        functions=role_functions(roles, commands),
        replicas=sum(count for count, _, _ in roles),
        submissions="\n    ".join(submissions),
        setup=render_setup(setup),
        run_replica=RUN_REPLICA,
        indices=submission.indices,
        dependency=f"-w {quote_ascii(submission.dependency)}" if submission.dependency else "",
        log_app="$tx_app.%I" if is_array else "$tx_app",
        call_bsub=_CALL_BSUB_FOR_ARRAY if is_array else _CALL_BSUB,
        element=_ELEMENT.format(copy=copy_commands("$((LSB_JOBINDEX - 1))")) if is_array else "",
    )


# Calls bsub with the arguments $@ and the command of the job as input.
_CALL_BSUB = """\
tx_call_bsub() {
    echo "$tx_line" | bsub "$@" > "$tx_record/bsub.out" 2> "$tx_record/bsub.err"
}"""
# While too many jobs are pending, LSF refuses the job, and bsub would try again without end. The
# script ends bsub instead, so that the client can submit a smaller array, or report the limit.
_CALL_BSUB_FOR_ARRAY = """\
tx_call_bsub() {
    echo "$tx_line" | bsub "$@" > "$tx_record/bsub.out" 2> "$tx_record/bsub.err" &
    tx_bsub=$!
    while kill -0 "$tx_bsub" 2> /dev/null; do
        if grep -qi 'job threshold reached' "$tx_record/bsub.err"; then
            kill -KILL "$tx_bsub" # it ignores SIGTERM, as this script does
            break
        fi
        sleep 0.1
    done
    wait "$tx_bsub"
}"""
# Sets the record, the id and the functions of an array's element. Part of the code for a replica.
_ELEMENT = """\
    tx_array=$tx_record tx_record=$tx_record/$LSB_JOBINDEX tx_app=$tx_app.$LSB_JOBINDEX
    mkdir -p -m 700 "$tx_record" || exit 1
    [ -e "$tx_array/cancelled" ] && exit 1
{copy}
    . "$tx_record/commands" || exit 1
"""


# The script's own variables begin with tx_, so that no variable of the user changes. Replicas trap
# the signals that are meant for the command, because the script must still record the command's
# end. bjobs -l, which every version has, breaks lines at column 80, even within words.
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
# Kills the jobs of the app, except the job with the id $1. The id of the job that runs this
# function comes last, so that bkill has handled the others before this job ends. Without ids,
# bkill would kill the user's last job.
tx_kill_jobs() {{
    [ -e "$tx_record/jobs" ] || return 0 # an element of an array
    tx_ids= tx_own=
    while read -r tx_a tx_b tx_c; do
        case $tx_c in
            "$1") ;;
            "${{LSB_JOBID-}}") tx_own=$tx_c ;;
            *) tx_ids="$tx_ids $tx_c" ;;
        esac
    done < "$tx_record/jobs"
    [ -z "$tx_ids$tx_own" ] || bkill $tx_ids $tx_own > /dev/null 2>&1 < /dev/null
}}

# Records the first failure of the app, and kills the other jobs. Arguments: role, replica, host,
# exit code and job id of the replica that failed.
tx_fail() {{
    (set -C && echo "$1 $2 $3 $4" > "$tx_record/failed") 2> /dev/null && tx_kill_jobs "$5"
}}

# Succeeds if LSF ended the job with the id $1 at a limit. Waits until bjobs shows the job's end.
tx_reached_limit() {{
    for ((tx_i = 0; tx_i < 60; tx_i++)); do
        case $(bjobs -l "$1" 2> /dev/null < /dev/null | tr -d ' \\n') in
            *'Status<EXIT>'*TERM_OWNER* | *'Status<EXIT>'*TERM_ADMIN*) return 1 ;;
            *'Status<EXIT>'*TERM_FORCE_* | *'Status<EXIT>'*TERM_REQUEUE_*) return 1 ;;
            *'Status<EXIT>'*TERM_*) return 0 ;;
            *'Status<EXIT>'* | *'Status<DONE>'* | *'Status<PEND>'* | *'Status<PSUSP>'*) return 1 ;;
        esac
        sleep 1
    done
    return 1
}}

# Waits for replicas that a signal ended, and fails the app if LSF ended one of them at a limit. At
# a memory limit, LSF sends the same signals as bkill. A replica that receives them cannot know the
# reason, because bjobs shows the reason only after the job's end. So another replica queries it.
tx_watch() {{
    trap '' HUP INT # so that bkill is not interrupted by the end of this job
    trap 'kill "$tx_sleep"; exit' TERM
    while :; do
        sleep 5 &
        tx_sleep=$!
        wait "$tx_sleep"
        [ -e "$tx_record/signalled" ] || continue
        # Of all replicas, the one that renames the file acts.
        mv "$tx_record/signalled" "$tx_record/signalled-$1-$2" 2> /dev/null || continue
        sleep 1
        while read -r tx_d tx_e tx_f tx_g tx_h; do
            tx_reached_limit "$tx_h" && tx_fail "$tx_d" "$tx_e" "$tx_f" "$tx_g" "$tx_h"
        done < "$tx_record/signalled-$1-$2"
    done
}}

if [ "${{1-}}" = replica ]; then # a job of LSF: $2 directory, $3 role, $4 replica
    trap : HUP QUIT USR1 ALRM CONT URG WINCH
    trap 'tx_ending=1' INT TERM
    trap 'tx_ending=1 tx_limited=1' USR2 XCPU # sent at the run limit and at the CPU limit
    tx_ending= tx_limited= tx_record=$2/.torchx-lsf/$tx_app
    IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[$3]}}"
    cd -- "$2" || exit 1
{element}    if read -r tx_a tx_b tx_c 2> /dev/null < "$tx_record/failed"; then
        [ "$tx_a $tx_b" = "$3 $4" ] || exit 1
        rm -f "$tx_record/failed" # this replica failed, and LSF has requeued its job
    fi
    [ -e "$tx_record/cancelled" ] && exit 1
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
    tx_watcher=
    if [ {replicas} -gt 1 ]; then
        tx_watch "$3" "$4" < /dev/null > /dev/null 2>&1 &
        tx_watcher=$!
    fi
    tx_run "$tx_record" "$2/$tx_app-$tx_name-$4" "$tx_host" "$3" "$4" "$tx_tries" "$4"
    tx_code=$?
    [ -z "$tx_watcher" ] || kill "$tx_watcher" 2> /dev/null
    if [ "$tx_first" ]; then # the app fails as a whole, so kill the other jobs
        tx_kill_jobs "$LSB_JOBID"
    elif [ "$tx_code" -ne 0 ] && [ "$tx_limited" ]; then
        tx_fail "$3" "$4" "$tx_host" "$tx_code" "$LSB_JOBID"
    elif [ "$tx_code" -ne 0 ] && [ ! -e "$tx_record/cancelled" ] && [ ! -e "$tx_record/failed" ]
    then
        echo "$3 $4 $tx_host $tx_code $LSB_JOBID" >> "$tx_record/signalled"
    fi
    exit "$tx_code"
fi

# Prints the value of a resource requirement for $1 MB of memory. LSF reads a number without a unit
# in the unit LSF_UNIT_FOR_LIMITS, by default MB.
memory() {{
    if [ "$tx_version" -ge 10001000002 ]; then
        echo "$1MB$tx_per_host"
        return
    fi
    case $tx_unit in
        KB) echo $(($1 * 1024)) ;;
        GB) echo $((($1 + 1023) / 1024)) ;;
        TB) echo $((($1 + 1048575) / 1048576)) ;;
        *) echo "$1" ;;
    esac
}}

# Sets tx_version (10001000014 for 10.1.0.14, 0 for an unknown version), tx_per_host and tx_unit.
tx_read_version() {{
    tx_version=0 tx_per_host=
    tx_form='LSF[^0-9]*([0-9]+)\\.([0-9]+)\\.([0-9]+)\\.([0-9]+)'
    if [[ $(bsub -V 2>&1 < /dev/null) =~ $tx_form ]]; then
        for tx_part in "${{BASH_REMATCH[@]:1}}"; do
            tx_version=$((tx_version * 1000 + 10#$tx_part))
        done
    fi
    [ "$tx_version" -lt 10001000009 ] || tx_per_host=/host
    tx_unit=$(sed -n 's/^ *LSF_UNIT_FOR_LIMITS *= *"*\\([KMGT]B\\).*/\\1/p' \\
        "${{LSF_ENVDIR:-/etc}}/lsf.conf" 2> /dev/null | tail -n 1)
}}

# Ends the submission with the outcome $1.
tx_end_submission() {{
    case $1 in
        refused | cancelled) tx_kill_jobs ;;
        failed) tx_kill_jobs "$tx_failed" ;;
    esac
    echo "$1" > "$tx_record/submitted.new" && mv "$tx_record/submitted.new" "$tx_record/submitted"
    exit
}}

# Ends the submission if the user cancelled the app, or if a replica has failed.
tx_check() {{
    [ -e "$tx_record/cancelled" ] && tx_end_submission cancelled
    if read -r tx_a tx_b tx_c 2> /dev/null < "$tx_record/failed"; then
        while read -r tx_d tx_e tx_f; do
            [ "$tx_d $tx_e" = "$tx_a $tx_b" ] && tx_failed=$tx_f
        done < "$tx_record/jobs"
        tx_end_submission failed
    fi
}}

{call_bsub}

# Submits the job of a replica. Arguments: role, replica, arguments of bsub.
submit() {{
    tx_check
    IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[$1]}}"
    tx_job=$tx_app-$tx_name-$2
    tx_line="exec /bin/bash '${{tx_record//\\'/\\'\\\\\\'\\'}}/script'"
    tx_line="$tx_quiet$tx_line replica '${{tx_folder//\\'/\\'\\\\\\'\\'}}' $1 $2"
    tx_after=({dependency})
    [ -z "$tx_head" ] || tx_after=(-w "started($tx_head)")
    tx_log=$tx_folder/{log_app}-$tx_name-$2.submit
    tx_call_bsub -J "$tx_job{indices}" -o "$tx_log.out" -e "$tx_log.err" \\
        "${{@:3}}" "${{tx_after[@]}}"
    tx_code=$?
    tx_output=$(< "$tx_record/bsub.out")$'\\n'$(< "$tx_record/bsub.err")
    if [[ $tx_output =~ Job\\ \\<([0-9]+)\\>\\ is\\ submitted ]]; then
        tx_id=${{BASH_REMATCH[1]}}
    else # LSF may have accepted the job all the same, so search for its name
        read -r tx_id tx_rest <<< "$(bjobs -a -w -J "$tx_job" 2> /dev/null < /dev/null | sed -n 2p)"
        tx_id=${{tx_id%%\\[*}} # LSF may show 101[1] for an element of an array
        [[ $tx_id =~ ^[0-9]+$ ]] || tx_id=
    fi
    [ -z "$tx_id" ] || echo "$1 $2 $tx_id" >> "$tx_record/jobs"
    if [ -z "$tx_id" ] || [ "$tx_code" -ne 0 ]; then
        echo "$tx_output" > "$tx_record/bsub.err"
        tx_end_submission refused
    fi
    tx_head=${{tx_head:-$tx_id}}
}}

tx_submit_all() {{
    trap '' HUP INT TERM
    tx_head= tx_failed= tx_quiet=
    # With BSUB_QUIET, bsub would not print the job's id. The job's first line exports the variable.
    [ -z "${{BSUB_QUIET+x}}" ] || tx_quiet='export BSUB_QUIET=Y; '
    unset BSUB_QUIET BSUB_QUIET2
    tx_read_version
    {submissions}
    tx_check
    tx_end_submission all
}}

# Submits a job for each replica. If LSF refuses one, the jobs before it are killed.
tx_folder={folder}
tx_record=$tx_folder/.torchx-lsf/$tx_app
mkdir -p -m 700 "$tx_record" && cp -- "$0" "$tx_record/script" || exit 1
: > "$tx_record/jobs"
trap ': > "$tx_record/cancelled"' HUP INT TERM
tx_submit_all < /dev/null > /dev/null 2>&1 &
until
    wait $!
    ! kill -0 $! 2> /dev/null
do :; done
case $(< "$tx_record/submitted") in
    all | failed) sed 's/^/submitted /' "$tx_record/jobs" ;;
    cancelled) exit 130 ;;
    *)
        cat "$tx_record/bsub.err" >&2
        exit 1
        ;;
esac
"""
