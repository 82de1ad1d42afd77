r"""The batch script: directives, the roles' commands, and a fixed part.

The script has two modes. Slurm starts it on the job's first node, where it starts the replicas with
srun. Each replica runs a copy of the script with the argument ``replica``: the copy finds the index
of the replica and runs the command of the replica's role. So the arguments and variables of roles
are neither on a command line nor in an option of Slurm, and only one shell parses them.

:mod:`torchx_sched_slurm.job_files.records` reads the files that the script writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from torchx_kit.jobs.arrays import copy_commands
from torchx_kit.jobs.attempts import AttemptRules, attempt_rules
from torchx_kit.scripts.attempt_script import REFUSED, attempt_functions, torchrun_signals
from torchx_kit.scripts.job_script import (
    RUN_REPLICA,
    RoleQuoting,
    comment_lines,
    role_functions,
    role_table,
)
from torchx_kit.scripts.setup_script import check_setup, render_setup
from torchx_kit.scripts.shell import quote_around, quote_ascii
from torchx_specs.errors import RequestError
from torchx_specs.model.constants import ENV_RANK0_HOST
from torchx_specs.model.templates import macros
from torchx_specs.version import __version__

if TYPE_CHECKING:
    from torchx_sched_slurm.request import SlurmBatchRequest

#: Name of the directory that contains the records of jobs, in the directory of the logs.
RECORDS = ".torchx-slurm"
#: Name, in the record, of the script that sbatch reads. The running job adds a copy, ``script``.
SCRIPT = "torchx-sbatch.sh"

# Placeholders for values that only the running job knows. They contain a NUL character, which no
# argument can contain.
_JOB = "\0job\0"
_REPLICA = "\0replica\0"
#: The signal before the time limit of a job with the option requeue, unless the user sets one.
NOTICE = "B:USR1@120"
# How long before its time limit such a job is requeued if it still runs, in seconds.
_RESERVE_SECONDS = 20
#: Placeholder, in options of srun, for a mount of the directory that contains records and logs.
WORK_FOLDER = "\0folder\0"
#: Placeholder, in options of srun, for a mount of the directory that contains secrets.
SECRETS = "\0secrets\0"


def role_quoting(img_root: str) -> RoleQuoting:
    """Return the quoting of a role's arguments and variables in the function that runs the role.

    Args:
        img_root: Value of the macro ``${img_root}``; it may contain the macro ``${app_id}``.
    """
    root = img_root.replace(macros.app_id, _JOB)
    values = macros.Values(root, _JOB, _REPLICA, ENV_RANK0_HOST)
    return RoleQuoting(values, {_JOB: '"$1"', _REPLICA: '"$2"'})


def option(name: str, value: str | None) -> str:
    """Return an option of sbatch as the text of a directive.

    Args:
        name: Name of the option.
        value: Value of the option; None for a flag.

    Raises:
        RequestError: The value has a control character, both kinds of quotes, or a single quote and
            a backslash.
    """
    if value is None:
        return f"--{name}"
    if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", value):
        return f"--{name}={value}"
    if re.search(r"[\0-\x1f\x7f]", value):
        raise RequestError(f"--{name}={value!r} contains a control character")
    for mark in ('"', "'"):
        if mark not in value and not (mark == '"' and "\\" in value):
            return f"--{name}={mark}{value}{mark}"
    raise RequestError(
        f"--{name}={value!r}: a directive cannot contain both kinds of quotes, nor a single quote"
        " and a backslash"
    )


def srun_options(opts: Mapping[str, str | None]) -> str:
    """Return options of srun, quoted for the script."""
    argv = [f"--{k}" if v is None else f"--{k}={v}" for k, v in opts.items()]
    mounts = {WORK_FOLDER: '"$tx_base:$tx_base"', SECRETS: '"$tx_secrets:$tx_secrets:ro"'}
    return " ".join(quote_around(arg, mounts, quote_ascii) for arg in argv)


def render(
    request: SlurmBatchRequest, directives: str, srun: str, commands: Iterable[list[str]]
) -> str:
    """Return the script.

    Args:
        request: The request.
        directives: Directives for sbatch.
        srun: Command line of srun.
        commands: The lines of each role's function.

    Raises:
        RequestError: ``job_dir`` or a line of ``setup`` cannot be written to a script.
    """
    opts, record, rules = request.opts, request.record, attempt_rules(request.opts)
    roles = [role for group in request.groups() for role in group]
    table = [(role.num_replicas, role.max_retries, role.name) for role in roles]
    snapshots = list(dict.fromkeys(role.snapshot for role in roles if role.snapshot))
    setup, is_array = opts.setup or [], bool(request.elements)
    mounts = "".join(role.srun_opts.get("container-mounts") or "" for role in roles)
    notice = roles[0].sbatch_opts.get("signal") or ""
    place = quote_ascii(record) if record else f'"$PWD/{RECORDS}/$SLURM_JOB_ID"'
    return _SCRIPT.format(
        header=comment_lines(
            [
                f"Generated by TorchX {__version__}",
                "Run with: " + " ".join(request.cmd),
                *(f"torchx run copies the workspace to {snapshot}" for snapshot in snapshots),
            ]
        ),
        directives=directives,
        table=role_table(table),
        functions=role_functions(table, commands),
        srun=srun,
        max_retries=request.max_retries,
        place=(_ARRAY_PLACE if is_array else _PLACE).format(record=place),
        load_task=_LOAD_TASK if is_array else "",
        task=f"\n{copy_commands('$SLURM_ARRAY_TASK_ID')}" if is_array else "",
        job_dir=_job_dir_lines(request.job_dir, snapshots) if request.moves else "",
        setup=_setup_lines([] if opts.setup_replicas else setup),
        rank0=_INTERFACE.format(name=opts.interface) if opts.interface else _RANK0,
        secrets=_SECRETS if SECRETS in mounts else "",
        attempt=_attempt_lines(notice, rules, opts.resume_dir) if rules else "",
        mark=_MARK_ATTEMPT if rules else "",
        reason=_REASON if rules else "",
        stop_timers=_STOP_TIMERS if rules else "",
        note_end=_NOTE_END if rules else "",
        starts_again="! tx_is_refused" if rules else _RETRY,
        usr1=_LIMIT_TRAP if rules else _USR1_TRAP,
        total=_TOTAL_TIMER if rules else "",
        refused=REFUSED,
        term=_EXPECT_KILL_TRAP if rules else _TERM_TRAP,
        run_replica=RUN_REPLICA + render_setup(setup if opts.setup_replicas else ()),
    )


def _job_dir_lines(job_dir: str | None, snapshots: list[str]) -> str:
    path = quote_around(job_dir or "", {macros.app_id: '"$SLURM_JOB_ID"'}, quote_ascii)
    copy = f"cp -a -- {quote_ascii(snapshots[0])}/. " if snapshots else "mkdir -- "
    return _JOB_DIR.format(path=path, copy=copy)


def _attempt_lines(notice: str, rules: AttemptRules, resume_dir: str | None) -> str:
    seconds = int(notice.partition("@")[2] or 0)
    left = max(seconds - _RESERVE_SECONDS, seconds // 2)
    path = resume_dir and quote_around(resume_dir, {macros.app_id: '"$SLURM_JOB_ID"'}, quote_ascii)
    functions = attempt_functions(rules, path)
    return _BEGIN_ATTEMPT.format(functions=functions, notice=left, torchrun=torchrun_signals(left))


def _setup_lines(lines: list[str]) -> str:
    if not lines:
        return ""
    check_setup(lines)
    return _SETUP.format(lines="\n".join(lines))


# Sets the record and the id of the job. A task of an array cannot use SLURM_JOB_ID: for one of the
# tasks, this variable contains the number of the whole array, and scontrol would requeue all tasks.
_PLACE = """\
tx_record={record}
tx_base=${{tx_record%/*/*}}
tx_job=$SLURM_JOB_ID"""
_ARRAY_PLACE = """\
tx_array={record}
tx_record=$tx_array/$SLURM_ARRAY_TASK_ID
tx_base=${{tx_array%/*/*}}
tx_job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"""

# Lets a replica of an array's task load the functions that run the task's commands.
_LOAD_TASK = '    . "$2/commands" || exit\n'

# Creates the job's directory if job_dir contains ${app_id}. A requeued job finds its directory.
_JOB_DIR = """
tx_folder={path}
if [ ! -e "$tx_record/folder" ]; then
    if [ -e "$tx_folder" ]; then
        echo "$tx_folder exists; set the option job_dir to a new directory" >&2
        exit 1
    fi
    rm -rf -- "$tx_folder.new"
    mkdir -p -- "${{tx_folder%/*}}" && {copy}"$tx_folder.new" \\
        && mv -T -- "$tx_folder.new" "$tx_folder" && echo "$tx_folder" > "$tx_record/folder" \\
        || exit 1
fi
cd -- "$tx_folder" || exit 1
"""

# Sets the directory of secrets, which Pyxis mounts in the containers at the same path.
_SECRETS = """
export tx_secrets=${TORCHX_HOME:-$HOME/.torchx}/secrets
if [ ! -d "$tx_secrets" ]; then
    echo "the secrets of the job are missing on $(hostname); write them to $tx_secrets" >&2
    exit 1
fi
"""

# Runs the lines of the option setup in the shell of the script, so that srun gets the variables
# that the lines set.
_SETUP = """
tx_setup_failed() {{
    tx_code=$1
    trap - ERR EXIT
    set +e
    echo "setup failed with exit code $tx_code at: $2" >&2
    [ "$tx_ended" ] || echo "$2" > "$tx_record/setup"
    tx_end
}}
trap 'tx_line=$BASH_COMMAND' ERR
trap 'tx_setup_failed "$?" "${{tx_line:-exit}}"' EXIT
set -e
{lines}
set +e
trap - ERR EXIT
"""

_TERM_TRAP = """\
trap 'tx_got=1; tx_query' TERM
"""
_USR1_TRAP = """\
trap 'tx_got=1; kill -USR1 "$tx_srun"' USR1
"""
# Whether a job without the option requeue starts again.
_RETRY = '[ -z "$tx_ended" ] && [ "$TORCHX_MAX_RETRIES" -gt "$tx_start" ]'

# The parts of a script with the option requeue. An attempt whose script has reported no end was
# lost with its node.
_BEGIN_ATTEMPT = """{functions}
tx_hosts() {{
    paste -sd , "$tx_record/nodes" 2> /dev/null
}}
case $(tail -n 1 "$tx_events" 2> /dev/null) in start*) tx_note end node-failure ;; esac
export TORCHX_ATTEMPT=$tx_start
if [ -s "$tx_events" ]; then
    IFS=' ' read -r _ TORCHX_RESTART_REASON _ <<< "$(tail -n 1 "$tx_events")"
    export TORCHX_RESTART_REASON
    # The last attempt is over, although Slurm or somebody has requeued the job.
    if [ "$TORCHX_RESTART_REASON" != cancelled ] && tx_is_refused; then
        echo "FAILED 1 $tx_start $(date +%s)" > "$tx_record/outcome"
        exit 1
    fi
fi
tx_note start "$tx_start"
for tx_list in "${{!SLURM_JOB_NODELIST_HET_GROUP_@}}" SLURM_JOB_NODELIST; do
    scontrol show hostnames "${{!tx_list}}"
done > "$tx_record/nodes"
# After SIGTERM, Slurm waits for the partition's GraceTime, if the job is preempted, and KillWait.
tx_wait=$(scontrol show config | sed -n 's/^KillWait *= *\\([0-9]*\\).*/\\1/p')
tx_grace=$(scontrol -o show partition "${{SLURM_JOB_PARTITION-}}" \\
    | sed -n 's/.* GraceTime=\\([0-9]*\\).*/\\1/p')
tx_reserve=$((tx_wait < 20 ? 2 : tx_wait / 10))
export TORCHX_STOP_GRACE="SIGUSR1={notice},SIGTERM=$((tx_grace + tx_wait - tx_reserve))"
{torchrun}
tx_limit= tx_timers=
# Requeues the job just before its time limit, if it has not ended after the signal.
tx_requeue_late() {{
    sleep {notice} && scontrol requeue "$tx_job"
}}
# Ends the job at the limit of all attempts.
tx_end_late() {{
    sleep "$1" && kill -ALRM $$ && sleep "$tx_wait" && kill -KILL "$tx_srun"
}}
# Ends a job that Slurm ends, before Slurm kills this script: the script has to report the end, and
# Slurm does not start a job again that PreemptMode=CANCEL has ended.
tx_expect_kill() {{
    if [ "$tx_ended" ]; then
        {{ sleep "$((tx_wait > tx_reserve ? tx_wait - tx_reserve : 0))" && kill -ALRM $$; }} &
        tx_timers+=" $!"
    fi
}}
tx_on_alarm() {{
    tx_got=1
    if [ "$tx_ended" ]; then
        tx_code=143
        tx_end
    fi
    tx_limit=1
    kill -TERM "$tx_srun"
}}
"""
_MARK_ATTEMPT = """\
    [ "${TORCHX_ATTEMPT:-0}" = 0 ] || echo "--- attempt $((TORCHX_ATTEMPT + 1)) ---" \\
        >> "$3/slurm-$4-$tx_name-$tx_k.out"
"""
_LIMIT_TRAP = """\
trap 'tx_got=1 tx_limit=1; kill -USR1 "$tx_srun"; tx_requeue_late & tx_timers+=" $!"' USR1
"""
_EXPECT_KILL_TRAP = """\
trap tx_on_alarm ALRM
trap 'tx_got=1; tx_query; tx_expect_kill' TERM
"""
_TOTAL_TIMER = """\
tx_left=$(tx_seconds_left)
if [ "$tx_left" ]; then
    tx_end_late "$tx_left" &
    tx_timers+=" $!"
fi
"""
# Prints why the attempt has ended.
_REASON = """\
tx_reason() {
    case $tx_cause$(grep -o ' PreemptTime=[0-9]' "$tx_record/ending") in
        OUT_OF_MEMORY*) echo out-of-memory ;;
        PREEMPTED* | *PreemptTime=*) echo preempted ;;
        NODE_FAIL) echo node-failure ;;
        TIMEOUT) echo time-limit ;;
        *)
            if [ "$tx_ended" ] && [ "$tx_outcome" = FAILED ]; then
                echo cancelled
            elif [ "$tx_limit" ]; then
                echo time-limit
            elif [ "$tx_ended" ] || tx_is_requested "$tx_code" "$tx_start"; then
                echo requested
            else
                echo failed
            fi
            ;;
    esac
}
"""
_STOP_TIMERS = """
    trap '' ALRM
    [ -z "$tx_timers" ] || kill $tx_timers"""
_NOTE_END = """
    tx_reason=succeeded
    [ "$tx_outcome" = SUCCEEDED ] || tx_reason=$(tx_reason)
    tx_note end "$tx_reason\""""

# Sets the host of replica 0 of the first role: by the name of its node, unless this node itself
# resolves the name to a loopback address, to which a server would bind; otherwise by an address.
_RANK0 = """\
tx_is_reachable() {
    case $(getent ahosts "$1") in '' | 127.* | ::1* | 0.*) return 1 ;; esac
}
tx_nodes=($(scontrol show hostnames "${SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}"))
TORCHX_RANK0_HOST=${tx_nodes[0]-$(hostname)}
if ! tx_is_reachable "$TORCHX_RANK0_HOST"; then
    tx_address=$(scontrol -o show node "$TORCHX_RANK0_HOST" | sed 's/.* NodeAddr=//; s/ .*//')
    if ! tx_is_reachable "$tx_address"; then
        read -r tx_other _ <<< "$(getent ahosts "${tx_nodes[1]-}")"
        tx_route=$(ip -o route get "$tx_other" 2> /dev/null | sed -n 's/.* src \\([^ ]*\\).*/\\1/p')
        tx_is_reachable "$tx_route" || read -r tx_route _ <<< "$(hostname -I)"
        tx_address=${tx_route:-$tx_address}
    fi
    TORCHX_RANK0_HOST=${tx_address:-$(hostname)}
fi"""
_INTERFACE = """\
case {name} in */*) tx_by=to ;; *) tx_by=dev ;; esac
read -r _ _ _ TORCHX_RANK0_HOST _ <<< "$(ip -o addr show "$tx_by" {name})"
TORCHX_RANK0_HOST=${{TORCHX_RANK0_HOST%/*}}
if [ -z "$TORCHX_RANK0_HOST" ]; then
    echo "$(hostname) has no address of {name}, which is the option interface" >&2
    exit 1
fi"""


# The script's own variables begin with tx_, so that no variable of the user changes. Replicas trap
# the signals that are meant for the command, because the script must still record the command's
# end. A signal ends `wait` with another exit code than that of srun, which may end during the trap.
# If srun ends at the moment of the signal, bash 5.2 loses its exit code, and `wait` returns -1.
# The signal before a time limit may come half a minute early, and so before srun runs.
#
# About tx_end: Slurm signals the tasks before this script, and tasks may exit with 0 after a
# signal. Slurm counts an attempt that it has requeued itself, for example after a preemption. The
# requeue sends SIGTERM to scontrol, too; child processes inherit an ignored signal.
_SCRIPT = """\
#!/bin/bash
#
{header}
#
{directives}

# A line for each role: the number of replicas, the restarts of a replica in place, and the name in
# log files.
tx_roles=(
{table}
)

# The commands. $1 is the id of the job. $2 is the index of the replica in its role.
{functions}

{run_replica}
tx_is_over() {{
    read -r tx_present _ < "$tx_record/started" && [ "$tx_present" != "$tx_start" ]
}} 2> /dev/null

# In a task of srun, $2 is the record, $3 is the directory of the logs, $4 is the id of the job, and
# $5 is the number of its requeues.
if [ "${{1-}}" = replica ]; then
    tx_start=$5
{load_task}    trap : HUP QUIT USR1 USR2 ALRM CONT URG WINCH
    trap 'tx_ending=1' INT TERM
    tx_k=$SLURM_PROCID tx_ending=
    for tx_n in "${{!tx_roles[@]}}"; do
        IFS=' ' read -r tx_count tx_tries tx_name <<< "${{tx_roles[tx_n]}}"
        [ "$tx_k" -lt "$tx_count" ] && break
        tx_k=$((tx_k - tx_count))
    done
    export TORCHX_REPLICA_ID=$tx_k
    export TORCHELASTIC_ERROR_FILE=${{TORCHELASTIC_ERROR_FILE-$2/error-$tx_n-$tx_k.json}}
{mark}    tx_run "$2" "$3/slurm-$4-$tx_name-$tx_k" "$SLURMD_NODENAME" "$tx_n" "$tx_k" "$tx_tries" \\
        "$4" "$tx_k"
    tx_code=$?
    [ -z "$tx_ending" ] || : > "$2/signalled"
    exit "$tx_code"
fi

export PYTHONUNBUFFERED=1
export SLURM_UNBUFFEREDIO=1
export TORCHX_MAX_RETRIES={max_retries}

# Without the first trap, the record of a job that Slurm ends now would have no end.
tx_ended=
trap 'tx_ended=1' TERM
trap : USR1 USR2

{place}
tx_start=${{SLURM_RESTART_COUNT:-0}}
if ! cd -- "$tx_base" || ! (umask 077 && mkdir -p "$tx_record" \\
    && cp -- "$0" "$tx_record/script" \\
    && rm -f "$tx_record"/replica-* "$tx_record"/error-* \\
        "$tx_record"/failed "$tx_record"/outcome "$tx_record"/ending \\
        "$tx_record"/srun* "$tx_record"/setup "$tx_record"/signalled "$tx_record"/{refused} \\
    && echo "$tx_start $tx_job $(date +%s)" > "$tx_record/started"); then
    echo "cannot write to $tx_record on $(hostname)" >&2
    exit 1
fi
{task}{job_dir}{secrets}{attempt}
# Lines of setup may change $PWD.
tx_logs=$PWD

{rank0}
export TORCHX_RANK0_HOST

# Queries the job, and sets tx_ended if Slurm is ending it or does not answer.
tx_query() {{
    timeout 10 scontrol -o show job "$tx_job" > "$tx_record/ending"
    grep -q ' JobState=RUNNING ' "$tx_record/ending" || tx_ended=1
}}
# Prints the state in which Slurm ended the job: as srun prints it, or as scontrol did.
tx_cause() {{
    case $(cat "$tx_record/srun" 2> /dev/null) in
        *[oO][oO][mM][-_\\ ][kK]ill*) echo OUT_OF_MEMORY ;;
        *"DUE TO TIME LIMIT"*) echo TIMEOUT ;;
        *"DUE TO PREEMPTION"*) echo PREEMPTED ;;
        *"DUE TO NODE"* | *"Node failure on "*) echo NODE_FAIL ;;
        *) sed -n '1{{s/.* JobState=.* Reason=TimeLimit .*/TIMEOUT/p;t
            s/.* JobState=\\([A-Z_]*\\) .*/\\1/p}}' "$tx_record/ending" ;;
    esac
}}
{reason}# Requeues the job, or reports its end. tx_code is the exit code.
tx_end() {{
    ! tx_is_over || exit 1 # this node was lost, and the job runs again elsewhere
    echo "job exited with code $tx_code"{stop_timers}
    if [ -z "$tx_ended" ] && {{ [ "$tx_code" -ne 0 ] || [ -e "$tx_record/signalled" ]; }}; then
        tx_query
        [ -s "$tx_record/ending" ] || tx_ended=
    fi
    tx_outcome=SUCCEEDED tx_cause=
    if [ "$tx_ended" ] || [ "$tx_code" -ne 0 ]; then
        tx_outcome=FAILED tx_cause=$(tx_cause)
        [ "$tx_code" -ne 0 ] || tx_code=143
        tx_count=$(grep -o ' Restarts=[0-9]*' "$tx_record/ending" | head -n 1)
        [ "$((${{tx_count#*=}} + 0))" -le "$tx_start" ] || tx_outcome=REQUEUED
    fi{note_end}
    if [ "$tx_outcome" = FAILED ] \\
        && {starts_again}; then
        echo "REQUEUED $tx_code $tx_start $(date +%s) $tx_cause" > "$tx_record/outcome"
        trap '' TERM
        scontrol requeue "$tx_job" && exit "$tx_code"
    fi
    echo "$tx_outcome $tx_code $tx_start $(date +%s) $tx_cause" > "$tx_record/outcome"
    exit "$tx_code"
}}
{term}{setup}# Slurm may have ended the job already.
if [ "$tx_ended" ]; then
    tx_query
    tx_code=143
    tx_end
fi
{usr1}trap 'tx_got=1; kill -USR2 "$tx_srun"' USR2
{srun} \\
    2> >(trap '' TERM; tee "$tx_record/srun" >&2; : > "$tx_record/srun-read") &
tx_srun=$!
{total}while tx_got=; wait "$tx_srun"; tx_code=$?
[ "$tx_got" ] || kill -0 "$tx_srun" 2> /dev/null; do :; done
# The last messages of srun, which name the cause of the end, may be written after its end.
for ((tx_try = 0; tx_try < 50; tx_try++)); do
    [ ! -e "$tx_record/srun-read" ] || break
    sleep 0.1
done

# The exit code of srun may differ from that of the replica that failed first.
if [ "$tx_code" -ne 0 ] && [ -r "$tx_record/failed" ]; then
    IFS=' ' read -r tx_n tx_k tx_node tx_code < "$tx_record/failed"
    echo "replica $tx_k of ${{tx_roles[tx_n]##* }} on $tx_node was the first to fail"
fi
# srun may exit with 0 although a node failed or tasks were killed: every replica must report its
# end. The report of another node may arrive late.
if [ "$tx_code" -le 0 ]; then
    tx_code=0
    for tx_n in "${{!tx_roles[@]}}"; do
        IFS=' ' read -r tx_count _ <<< "${{tx_roles[tx_n]}}"
        for ((tx_k = 0; tx_k < tx_count && tx_code == 0; tx_k++)); do
            for ((tx_try = 0; tx_try < 10; tx_try++)); do
                tx_last=
                IFS=' ' read -r _ _ _ _ tx_last 2> /dev/null < "$tx_record/replica-$tx_n-$tx_k"
                [ -z "$tx_last" ] && [ -z "$tx_ended" ] || break
                sleep 0.5
            done
            tx_code=${{tx_last:-143}}
        done
    done
fi
tx_end
"""
