r"""Attempts of a Batch job with the option ``requeue``.

AWS Batch starts a job again by its retry strategy, which has one limit for all reasons. So a script
of ``sh`` runs the program of each container. The script of the main node keeps a record in the
resume folder. By the rules of :mod:`torchx_kit.jobs.attempts`, it decides whether the job starts
again, and the exit code of its container is the answer. The scripts also end the program before the
job's timeout, because AWS Batch does not retry a job after its timeout.

The record of a job is the folder ``.torchx-<job id>`` in the resume folder. Without a resume
folder, each container has a record of its own.

- ``attempts``: starts and ends, see :mod:`torchx_kit.scripts.attempt_script`.
- ``left-<attempt>``: why another node has ended an attempt.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torchx_kit.jobs.attempts import attempt_problems, attempt_rules
from torchx_kit.scripts.attempt_script import GRACE_SECONDS, attempt_functions, time_limit
from torchx_sched_aws.batch.options import MAX_ATTEMPTS, AWSBatchOpts
from torchx_sched_aws.batch.states import started_attempts, time_of
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.mounts import BindMount, VolumeMount
from torchx_specs.model.status import AppState, AttemptStatus

#: Exit codes of the main node's container, by the reason of the attempt's end. If the job does not
#: start again, the code is larger by 10, or after a failure, it is that of the program.
EXIT_CODES = {
    "requested": 200,
    "failed": 201,
    "time-limit": 202,
    "preempted": 203,
    "node-failure": 204,
}
#: When AWS Batch starts a job again.
RETRY_RULES = (
    {"onStatusReason": "Host EC2*", "action": "RETRY"},
    {"onExitCode": "20*", "action": "RETRY"},
)
#: The message of a job that does not start again for another reason than a failure.
LAST = "it does not start again; its log says why"
# Reasons of attempts, by the beginning of AWS Batch's own reason.
_REASONS = {
    "Host EC2": "node-failure",
    "OutOfMemoryError": "out-of-memory",
    "Job attempt duration exceeded timeout": "time-limit",
}
_REASON_OF_CODE = {
    0: "succeeded",
    **{code + last: reason for reason, code in EXIT_CODES.items() for last in (0, 10)},
}

_NAME = "torchx-attempts"


def has_attempts(opts: AWSBatchOpts) -> bool:
    """Return whether the options let a job start again as :mod:`torchx_kit.jobs.attempts` says."""
    return bool(opts.requeue or opts.resume_dir)


def requeue_problems(app: AppDef, opts: AWSBatchOpts) -> Iterator[str]:
    """Yield the problems of the options for attempts, one line each."""
    yield from attempt_problems(opts)
    if not has_attempts(opts):
        return
    if not opts.resume_dir:
        for name in ("max_node_failures", "max_total_time"):
            if opts[name] is not None:
                yield f"option {name} needs the option resume_dir on AWS Batch"
        return
    if not posixpath.isabs(opts.resume_dir):
        yield f"option resume_dir: '{opts.resume_dir}' is not an absolute path in the containers"
        return
    sources = {role.name: _source(role, opts.resume_dir) for role in app.roles}
    for name, source in sources.items():
        if not source:
            yield (
                f"option resume_dir: '{opts.resume_dir}' is in no writable EFS volume of role"
                f" '{name}'; mount one: type=volume,src=fs-12345678,dst=/data"
            )
    if len(set(sources.values()) - {""}) > 1:
        yield f"option resume_dir: the roles have different volumes at '{opts.resume_dir}'"


def _source(role: Role, path: str) -> str:
    """Return the writable EFS volume that contains a path; empty if there is none."""
    found = [
        mount
        for mount in role.mounts
        if isinstance(mount, (VolumeMount, BindMount))
        and f"{posixpath.normpath(path)}/".startswith(f"{mount.dst_path.rstrip('/')}/")
    ]
    mount = max(found, key=lambda mount: len(mount.dst_path), default=None)
    return mount.src if isinstance(mount, VolumeMount) and not mount.read_only else ""


def attempt_command(command: Sequence[str], opts: AWSBatchOpts, max_retries: int) -> list[str]:
    """Return a command with which a container runs ``command`` as an attempt.

    Without the option ``requeue``, it is ``command`` itself.

    Args:
        command: The command.
        opts: The options.
        max_retries: How many failures of the program start the job again.
    """
    rules = attempt_rules(opts)
    if rules is None:
        return list(command)
    has_folder = bool(opts.resume_dir)
    script = _SCRIPT.format(
        record=_RECORD if has_folder else "$(mktemp -d)",
        functions=attempt_functions(rules, '"$TORCHX_RESUME_DIR"' if has_folder else None),
        begin=_BEGIN if has_folder else _BEGIN_WITHOUT_FOLDER,
        max_retries=max_retries,
        time_limit=time_limit(opts.timeout),
        kill_after=GRACE_SECONDS,
        codes="\n".join(f"    {reason}) tx_code={code} ;;" for reason, code in EXIT_CODES.items()),
        most=MAX_ATTEMPTS,
    )
    return ["sh", "-c", script, _NAME, *command]


def split_attempt_command(command: Sequence[str]) -> tuple[list[str], int | None]:
    """Return the command in one of :func:`attempt_command`, and ``max_retries``; else None."""
    if len(command) < 5 or command[3] != _NAME:
        return list(command), None
    found = _MAX_RETRIES.search(command[2])
    return list(command[4:]), int(found[1]) if found else 0


def attempt_statuses(job: Mapping[str, Any], state: AppState) -> list[AttemptStatus]:
    """Return the attempts of a job with the option ``requeue``, as AWS Batch describes them.

    AWS Batch does not know the committed steps.

    Args:
        job: The job, as ``DescribeJobs`` returns it.
        state: The state of the app.
    """
    last = len(job.get("attempts") or ()) - 1
    return [
        AttemptStatus(
            number,
            time_of(attempt, "startedAt"),
            time_of(attempt, "stoppedAt"),
            _reason(attempt, state == AppState.CANCELLED and number == last)
            if attempt.get("stoppedAt")
            else None,
        )
        for number, attempt in enumerate(started_attempts(job))
    ]


def is_last(code: int | None) -> bool:
    """Return whether a job has ended with an exit code for :data:`LAST`."""
    return code is not None and code - 10 in EXIT_CODES.values()


def _reason(attempt: Mapping[str, Any], is_cancelled: bool) -> str:
    """Return why an attempt ended.

    Args:
        attempt: The attempt, as ``DescribeJobs`` returns it.
        is_cancelled: Whether this is the last attempt of a cancelled app.
    """
    container = attempt.get("container") or {}
    texts = (str(attempt.get("statusReason") or ""), str(container.get("reason") or ""))
    for start, reason in _REASONS.items():
        if any(text.startswith(start) for text in texts):
            return reason
    reason = _REASON_OF_CODE.get(container.get("exitCode", 1), "failed")
    # The script takes the SIGTERM of a cancel for that of a preemption.
    return "cancelled" if is_cancelled and reason in ("preempted", "failed") else reason


_MAX_RETRIES = re.compile(r"TORCHX_MAX_RETRIES=(\d+)")
_RECORD = "$TORCHX_RESUME_DIR/.torchx-${AWS_BATCH_JOB_ID%%#*}"
_BEGIN = """\
if [ "$tx_main" ]; then
    case $(tail -n 1 "$tx_events" 2> /dev/null) in start*) # its host has ended
        tx_note end node-failure
        ! tx_is_refused || { tx_last=1; tx_exit node-failure; } ;;
    esac
    tx_note start "$tx_attempt"
fi
until grep -q "^start $tx_attempt " "$tx_events" 2> /dev/null; do sleep 1; done
tx_reason=$(sed -n 's/^end \\([^ ]*\\) .*/\\1/p' "$tx_events" | tail -n 1)
[ -z "$tx_reason" ] || export TORCHX_RESTART_REASON="$tx_reason"
"""
# Nobody knows why earlier attempts have ended, so each of them counts as a failure.
_BEGIN_WITHOUT_FOLDER = """\
tx_number=0
while [ "$tx_number" -lt "$tx_attempt" ]; do
    echo "end failed 0 -" >> "$tx_events"
    tx_number=$((tx_number + 1))
done
tx_note start "$tx_attempt"
"""
# The script of a container; its arguments are the command. `kill -TERM 0` signals all processes of
# the container that have not left the process group of the script.
_SCRIPT = """\
tx_attempt=$((AWS_BATCH_JOB_ATTEMPT - 1))
tx_record={record}
tx_left=$tx_record/left-$tx_attempt
tx_main= tx_limit= tx_ending= tx_last=
[ "${{AWS_BATCH_JOB_NODE_INDEX-0}}" != "${{AWS_BATCH_JOB_MAIN_NODE_INDEX-0}}" ] || tx_main=1
export TORCHX_MAX_RETRIES={max_retries} TORCHX_ATTEMPT=$tx_attempt
{time_limit}
{functions}
mkdir -p -m 700 -- "$tx_record" || exit 1
# Ends the attempt of the main node for the reason $1.
tx_exit() {{
    case $1 in
{codes}
    esac
    exit $((tx_code + ${{tx_last:+1}}0))
}}
{begin}tx_total=$(tx_seconds_left)
[ -z "$tx_total" ] || [ "$tx_total" -ge "${{tx_end_at:-$((tx_total + 1))}}" ] || tx_end_at=$tx_total

tx_on_term() {{
    tx_ending=1 tx_again=1
    trap tx_again=1 TERM
    kill -TERM 0
}}
tx_on_notice() {{
    tx_limit=1 tx_again=1
    kill -USR1 0
}}
tx_on_end() {{
    tx_again=1
    [ -s "$tx_left" ] || tx_limit=1
    trap tx_again=1 TERM
    kill -TERM 0
    (sleep {kill_after}; kill -KILL "$tx_pid") > /dev/null 2>&1 &
}}
# Sends this script SIGALRM before the time limit, and SIGUSR2 at the end of the attempt.
tx_watch() {{
    trap '' TERM USR1 USR2 ALRM
    exec > /dev/null 2>&1
    tx_began=$(date +%s)
    while sleep 1 && kill -0 $$; do
        tx_ran=$(($(date +%s) - tx_began))
        if [ "$tx_signal_at" ] && [ "$tx_ran" -ge "$tx_signal_at" ]; then
            tx_signal_at=
            kill -ALRM $$
        fi
        if {{ [ "$tx_main" ] && [ -s "$tx_left" ]; }} \\
            || {{ [ "$tx_end_at" ] && [ "$tx_ran" -ge "$tx_end_at" ]; }}; then
            kill -USR2 $$
            return
        fi
    done
}}
trap tx_on_term TERM
trap tx_on_notice ALRM
trap tx_on_end USR2
trap tx_again=1 USR1
tx_watch &
"$@" &
tx_pid=$! tx_code=127 tx_again=1
[ -z "$tx_ending" ] || kill -TERM "$tx_pid"
# A signal interrupts wait. After the program's end was waited for, wait returns 127.
while [ "$tx_again" ]; do
    tx_again=
    wait "$tx_pid"
    tx_status=$?
    [ "$tx_status" -eq 127 ] || tx_code=$tx_status
done
trap : ALRM USR2

if [ "$tx_code" -eq 0 ] && {{ [ -z "$tx_main" ] || [ ! -s "$tx_left" ]; }}; then
    exit 0
elif [ "$tx_limit" ]; then
    tx_reason=time-limit
elif [ "$tx_ending" ]; then # after a cancel or a timeout, AWS Batch does not start the job again
    tx_reason=preempted
elif [ -s "$tx_left" ]; then
    read -r tx_reason < "$tx_left"
elif tx_is_requested "$tx_code" "$tx_attempt"; then
    tx_reason=requested
else
    tx_reason=failed
fi
if [ -z "$tx_main" ]; then
    tx_new=$tx_left.$AWS_BATCH_JOB_NODE_INDEX
    echo "$tx_reason" > "$tx_new" && mv "$tx_new" "$tx_left"
    exit "$tx_code"
fi
tx_note end "$tx_reason"
if [ "$AWS_BATCH_JOB_ATTEMPT" -ge {most} ]; then
    echo "it does not start again: AWS Batch allows {most} attempts"
    tx_last=1
elif tx_is_refused; then
    tx_last=1
fi
[ "$tx_last" ] && [ "$tx_reason" = failed ] || tx_exit "$tx_reason"
case $tx_code in 0 | 20 | 20? | 21?) tx_code=1 ;; esac
exit "$tx_code"
"""
