"""The containers of an app with the option ``requeue``, which start its program again.

Nothing on the engine's machine watches an app. So each container runs a shell script, which starts
the program again in the same container. The containers of an app share a volume with its record
(:mod:`torchx_sched_docker.records`), by which they agree on the end of an attempt.

The script ends with exit code 0 when the app has ended, and the record has the exit code of the
program. After other exit codes, the engine starts the container again: at once if the script was
killed, and with its own next start if the container was stopped. The script then finds an attempt
without an end. The engine leaves a container alone that somebody has stopped or killed by hand, so
:func:`~torchx_sched_docker.describe.describe` starts it.
"""

from __future__ import annotations

import math
import os

from torchx_kit.jobs.attempts import AttemptRules
from torchx_kit.scripts.attempt_script import AGREEMENT, attempt_functions
from torchx_kit.times import limit_option
from torchx_sched_docker.labels import LABEL_APP_ID
from torchx_sched_docker.options import DockerOpts
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import ENDS_APP_KEY
from torchx_specs.model.templates import macros
from torchx_specs.settings import ENV_TORCHX_RESUME_DIR, ENV_TORCHX_STOP_GRACE

#: The folder in the containers with the record; the volume is mounted there.
RECORD = "/torchx-record"
#: The variable with the id of a further user who may own the resume folder: the user who submits
#: the app. The user of a container is often another one.
ENV_RESUME_OWNER = "TORCHX_RESUME_OWNER"


class Attempts:
    """How the containers of an app start its program again.

    Args:
        app: The app.
        app_id: The app's id.
        opts: The options.
        rules: When the app starts again.
        grace: How long a program may take to end after SIGTERM, in seconds.

    Attributes:
        resume_dir: Absolute path of the resume folder, on the engine's machine and in the
            containers; empty if there is none.
        env: The variables of each container.
    """

    def __init__(
        self, app: AppDef, app_id: str, opts: DockerOpts, rules: AttemptRules, grace: int
    ) -> None:
        deciding = [role for role in app.roles if role.metadata.get(ENDS_APP_KEY)] or app.roles
        self._app_id = app_id
        self._rules = rules
        self._deciding = {role.name for role in deciding}
        self._script = _SCRIPT.format(
            record=RECORD,
            functions=attempt_functions(rules, None),
            agreement=AGREEMENT,
            total=sum(role.num_replicas for role in app.roles),
            needed=sum(role.num_replicas for role in deciding),
            limit=math.ceil(limit_option("time", opts.time)) if opts.time else "",
            grace=grace,
        )
        folder = (opts.resume_dir or "").replace(macros.app_id, app_id)
        self.resume_dir = os.path.abspath(os.path.expanduser(folder)) if folder else ""
        self.env = {ENV_TORCHX_STOP_GRACE: f"SIGTERM={grace}"}
        if self.resume_dir:
            self.env[ENV_TORCHX_RESUME_DIR] = self.resume_dir
            self.env[ENV_RESUME_OWNER] = str(os.geteuid())

    def prefix(self, role: Role, role_index: int, k: int) -> list[str]:
        """Return the arguments before the command of a replica."""
        word = "done" if role.name in self._deciding else "spare"
        numbers = [str(number) for number in (role_index, k, role.max_retries)]
        return ["sh", "-c", self._script, "torchx", *numbers, word]

    def kwargs(self) -> dict[str, object]:
        """Return the parameters of each container, except its mounts."""
        # The last restart only records that there are too many node failures.
        count = self._rules.max_node_failures + 1
        return {
            "restart_policy": {"Name": "on-failure", "MaximumRetryCount": count},
            "stop_signal": "SIGTERM",
        }

    def mounts(self) -> list[dict[str, object]]:
        """Return the mounts of each container."""
        record = {
            "Target": RECORD,
            "Source": volume_name(self._app_id),
            "Type": "volume",
            "ReadOnly": False,
            "VolumeOptions": {"Labels": {LABEL_APP_ID: self._app_id}},
        }
        if not self.resume_dir:
            return [record]
        path = self.resume_dir
        return [record, {"Target": path, "Source": path, "Type": "bind", "ReadOnly": False}]


def volume_name(app_id: str) -> str:
    """Return the name of the volume with the record of an app."""
    return f"torchx-{app_id}"


# Arguments: index of the role, index of the replica, its max_retries, the file that it creates when
# its program has succeeded, and then the program. The app has succeeded when enough replicas have
# created the file `done`. A replica of another role creates the file `spare`.
#
# In the record, names of files end with the attempt, role and replica: began, done, spare and left
# (the program has failed, or was ended). The file `go` of the first replica starts the programs.
_SCRIPT = """\
tx_n=$1 tx_k=$2 TORCHX_MAX_RETRIES=$3 tx_word=$4 tx_record={record}
tx_attempt=0 tx_ending= tx_pid= tx_began=0
shift 4
read -r tx_host < /etc/hostname
{functions}{agreement}
# The containers may have different users.
tx_umask=$(umask)
umask 0
: >> "$tx_events"
# Waits a moment. The sleep of some images takes whole seconds only.
tx_pause() {{
    sleep 0.2 2> /dev/null || sleep 1
}}
# Returns 0 if at least $1 replicas have a file of this attempt with one of the names $2...
tx_have() {{
    tx_missing=$1
    shift
    for tx_name in "$@"; do
        for tx_path in "$tx_record/$tx_name-$tx_attempt-"*; do
            [ ! -e "$tx_path" ] || tx_missing=$((tx_missing - 1))
        done
    done
    [ "$tx_missing" -le 0 ]
}}
# Returns 0 if a container was requested to stop.
tx_is_signalled() {{
    ls "$tx_record"/signalled-* > /dev/null 2>&1
}}
# Creates the file of this replica and attempt with the name $1.
tx_mark() {{
    : > "$tx_record/$1-$tx_attempt-$tx_n-$tx_k"
}}
# Returns 0 if the program has to end, or has no more to do.
tx_is_over() {{
    [ -s "$tx_over" ] || [ -e "$tx_record/failed" ] || [ -e "$tx_record/cancelled" ] \\
        || tx_have {needed} done
}}
# Returns 0 if this replica, whose program has ended, need not wait for the others.
tx_is_settled() {{
    tx_is_over && return
    if [ -e "$tx_limit" ]; then # the others may still write their checkpoints
        tx_have {total} done spare left
    else
        [ "$tx_code" -ne 0 ]
    fi
}}
# Replaces the report of this replica.
tx_report() {{
    tx_file=$tx_record/replica-$tx_n-$tx_k
    echo "$tx_attempt $tx_host $tx_began$1" > "$tx_file.new" && mv "$tx_file.new" "$tx_file"
}}
# Prints how often the kernel has killed a process of this container for its memory limit.
tx_oom_kills() {{
    cat /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control 2> /dev/null \\
        | awk '$1 == "oom_kill" {{ count = $2 }} END {{ print count + 0 }}'
}}
# Ends the program when another replica has ended the attempt, or the time is over.
tx_watch() {{
    until tx_is_over || [ -e "$tx_limit" ]; do
        tx_pause
        if [ "$tx_seconds" ] && [ "$(($(date +%s) - tx_began))" -ge "$tx_seconds" ]; then
            : > "$tx_limit"
        fi
    done
    kill -TERM "$tx_pid"
    sleep {grace}
    kill -KILL "$tx_pid"
}}
# Runs the program, and sets tx_code.
tx_run() {{
    tx_began=$(date +%s)
    tx_report
    tx_kills=$(tx_oom_kills)
    (umask "$tx_umask" && exec "$@") &
    tx_pid=$!
    [ -z "$tx_ending" ] || kill -TERM "$tx_pid" # the signal came before the program
    tx_watch > /dev/null 2>&1 &
    tx_code=127
    while :; do
        tx_signalled=
        wait "$tx_pid" 2> /dev/null
        tx_last=$?
        # 127: a signal came with the end of the program, whose code is known
        [ "$tx_last" = 127 ] || tx_code=$tx_last
        [ "$tx_signalled" ] || break
    done
    tx_pid=
    tx_kills=$(($(tx_oom_kills) - tx_kills))
    kill -KILL -1 2> /dev/null # everything else in the container, except its init process
    wait 2> /dev/null
    if [ "$tx_code" -eq 0 ]; then tx_mark "$tx_word"; else tx_mark left; fi
    tx_report " $(date +%s) $tx_code"
}}
tx_forward() {{
    tx_signalled=1
    [ -z "$tx_pid" ] || kill -"$1" "$tx_pid" 2> /dev/null
}}
for tx_signal in HUP INT QUIT USR1 USR2; do trap "tx_forward $tx_signal" "$tx_signal"; done
trap 'tx_ending=1; : > "$tx_record/signalled-$tx_n-$tx_k"; tx_forward TERM' TERM

tx_problem=
for tx_tool in awk cat date ls mv rm sed sleep sort tail; do
    command -v "$tx_tool" > /dev/null \\
        || tx_problem="option requeue: the image has no command '$tx_tool'"
done
if [ "${{TORCHX_RESUME_DIR-}}" ] && [ ! -w "$TORCHX_RESUME_DIR" ]; then
    tx_problem="option resume_dir: the user of the image cannot write to $TORCHX_RESUME_DIR"
fi
if [ "$tx_problem" ]; then
    echo "$tx_problem" >&2
    echo "$tx_n $tx_k $tx_host 126" > "$tx_record/failed"
    tx_report " 0 126"
    exit 0
fi

while :; do
    tx_find_attempt
    tx_limit=$tx_record/limit-$tx_attempt tx_code=143 tx_kills=0
    [ ! -e "$tx_record/failed" ] || exit 0
    if tx_have {needed} done; then
        [ "$tx_word" = done ] || tx_report " $(date +%s) 0"
        exit 0
    fi
    tx_go=$tx_record/go-$tx_attempt-0-0
    if [ -e "$tx_go" ] && [ -e "$tx_record/began-$tx_attempt-$tx_n-$tx_k" ]; then
        # the container has ended since
        tx_reason=node-failure
        ! tx_is_signalled || tx_reason=preempted
        [ ! -e "$tx_record/cancelled" ] || tx_reason=cancelled
        tx_end_attempt "$tx_reason" 1
        continue
    fi
    [ ! -e "$tx_record/cancelled" ] || exit 0
    rm -f "$tx_record/signalled-$tx_n-$tx_k" \\
        "$tx_record"/*-"$((tx_attempt - 1))-$tx_n-$tx_k"
    tx_mark began

    # The programs of all replicas start together.
    until [ -e "$tx_go" ] || tx_is_over || [ "$tx_ending" ]; do
        if [ "$tx_n $tx_k" = "0 0" ] && tx_have {total} began; then
            tx_note start "$tx_attempt"
            tx_mark go
        else
            tx_pause
        fi
    done
    if [ "$tx_ending" ] && ! tx_is_over && [ ! -e "$tx_go" ]; then
        rm -f "$tx_record/began-$tx_attempt-$tx_n-$tx_k" # the attempt begins with the next start
        exit 143
    fi
    if ! tx_is_over && [ -z "$tx_ending" ]; then
        tx_left=$(tx_seconds_left) tx_seconds={limit}
        [ -z "$tx_left" ] || [ "$tx_left" -ge "${{tx_seconds:-$((tx_left + 1))}}" ] \\
            || tx_seconds=$tx_left
        export TORCHX_ATTEMPT="$tx_attempt"
        if [ "$tx_attempt" -gt 0 ]; then
            read -r _ TORCHX_RESTART_REASON < "$tx_record/end-$((tx_attempt - 1))"
            export TORCHX_RESTART_REASON
            echo "--- attempt $((tx_attempt + 1)) ---"
        fi
        tx_run "$@"
    fi
    until tx_is_settled || [ "$tx_ending" ]; do tx_pause; done

    if [ ! -s "$tx_over" ] && [ ! -e "$tx_record/failed" ] && ! tx_have {needed} done; then
        if [ -e "$tx_record/cancelled" ]; then
            tx_reason=cancelled
        elif [ -e "$tx_limit" ]; then
            tx_reason=time-limit
        elif tx_is_signalled || [ "$tx_code" -eq 143 ]; then
            tx_reason=preempted
        elif tx_is_requested "$tx_code" "$tx_attempt"; then
            tx_reason=requested
        elif [ "$tx_kills" -gt 0 ]; then
            tx_reason=out-of-memory
        else
            tx_reason=failed
        fi
        tx_end_attempt "$tx_reason" "$tx_code"
    fi
    if [ "$tx_ending" ] && [ -s "$tx_over" ] && ! [ -e "$tx_record/failed" ] \\
        && ! [ -e "$tx_record/cancelled" ]; then
        exit 143 # the container is about to be stopped
    fi
done
"""
