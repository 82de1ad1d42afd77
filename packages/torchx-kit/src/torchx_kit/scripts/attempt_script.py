"""Shell code for attempts of an app with the option ``requeue``, by the rules of a scheduler.

The file ``attempts`` in the job's record has a line for each start of an attempt (number, time,
newest committed step or -, resume folder), and for each end (reason, time, step, names of its
machines). Times are in seconds since 1970. :func:`torchx_kit.jobs.attempts.refusal` has the same
rules.
"""

from __future__ import annotations

import math

from torchx_kit.jobs.attempts import (
    FAILURES,
    MOST_WITHOUT_PROGRESS,
    NO_PROGRESS,
    NODE_FAILURES,
    TORCHRUN_VARIABLES,
    TOTAL_TIME,
    AttemptRules,
)

#: File of the record with the lines of attempts.
ATTEMPTS = "attempts"
#: File of the record that says why the app does not start again, or contains -.
REFUSED = "refused"
#: How long after SIGTERM a script kills its program, in seconds.
GRACE_SECONDS = 10
# How long before its time limit an attempt gets SIGUSR1, and SIGTERM, in seconds.
_NOTICE_SECONDS, _RESERVE_SECONDS = 120, 20
# How long torchrun waits for its ranks after a signal by default, in seconds.
_SHUTDOWN_SECONDS = 30
#: Shell functions by which the replicas of an app agree on the end of an attempt, for scripts that
#: run one replica each. In the record, the replica that ends an attempt first creates the file
#: ``ending-<attempt>``, and then ``end-<attempt>`` with ``again`` or ``last`` and the reason. The
#: other replicas see this file, and end, too. The code needs the functions of
#: :func:`attempt_functions` and the variables ``tx_n``, ``tx_k``, ``tx_host`` and ``tx_attempt``.
AGREEMENT = """\
# Ends this attempt, unless another replica does. Arguments: reason, exit code. Sets tx_next.
tx_end_attempt() {
    tx_file=$tx_record/ending-$tx_attempt
    if (set -C && echo "$tx_n $tx_k" > "$tx_file") 2> /dev/null \\
        || [ "$(cat "$tx_file")" = "$tx_n $tx_k" ]; then
        case $(tail -n 1 "$tx_events") in start*) tx_note end "$1" ;; esac
        tx_next=again
        if tx_is_refused; then
            tx_next=last
            (set -C && echo "$tx_n $tx_k $tx_host $2" > "$tx_record/failed") 2> /dev/null \\
                && tx_first=1
        fi
        echo "$tx_next $1" > "$tx_over.new" && mv "$tx_over.new" "$tx_over"
    fi
    until [ -s "$tx_over" ]; do sleep 1; done
    read -r tx_next _ < "$tx_over"
}
# Goes on to the newest attempt.
tx_find_attempt() {
    while tx_over=$tx_record/end-$tx_attempt; [ -s "$tx_over" ]; do
        tx_attempt=$((tx_attempt + 1))
    done
    tx_rank0=$tx_record/rank0-$tx_attempt
}
"""


def torchrun_signals(seconds: int) -> str:
    """Return a line by which torchrun passes SIGUSR1 on to its ranks, and then waits for them.

    By default, SIGUSR1 ends torchrun before its ranks.

    Args:
        seconds: How long torchrun waits.
    """
    signals, timeout = TORCHRUN_VARIABLES
    return f"export {signals}=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1 {timeout}={seconds}"


def time_limit(seconds: int | None) -> str:
    """Return lines that set when a program gets SIGUSR1 and SIGTERM, and what it knows about that.

    They set ``tx_signal_at`` and ``tx_end_at``, in seconds after the program's start.

    Args:
        seconds: The time limit of the job; None if there is none.
    """
    signal_at, end_at, shutdown = "", "", _SHUTDOWN_SECONDS
    grace = f"SIGTERM={GRACE_SECONDS}"
    if seconds is not None:
        notice = max(seconds - _NOTICE_SECONDS, seconds // 2)
        end = max(seconds - _RESERVE_SECONDS, seconds * 3 // 4)
        signal_at, end_at, shutdown = str(notice), str(end), end - notice
        grace = f"SIGUSR1={shutdown},{grace}"
    times = f"tx_signal_at={signal_at} tx_end_at={end_at}"
    return f"{times}\nexport TORCHX_STOP_GRACE={grace}\n{torchrun_signals(shutdown)}"


def attempt_functions(rules: AttemptRules, resume_dir: str | None) -> str:
    """Return shell functions for attempts, and code that prepares the resume folder.

    The code needs the variables ``tx_record`` and ``TORCHX_MAX_RETRIES``, and sets ``tx_events``.
    A script whose replicas run on several machines defines ``tx_hosts`` again.

    Args:
        rules: When the app starts again.
        resume_dir: The resume folder, quoted for the shell; None if there is none.
    """
    total = rules.max_total_seconds
    return _FUNCTIONS.format(
        attempts=ATTEMPTS,
        refused=REFUSED,
        codes=" ".join(map(str, rules.exit_codes)),
        nodes=rules.max_node_failures,
        total=0 if total is None else math.ceil(total),
        is_failure=" || ".join(f'reason == "{reason}"' for reason in FAILURES),
        failures=" + ".join(f'ends["{reason}"]' for reason in FAILURES),
        count=MOST_WITHOUT_PROGRESS,
        too_many=NODE_FAILURES,
        over=TOTAL_TIME,
        stuck=NO_PROGRESS,
    ) + (_RESUME_DIR.format(path=resume_dir) if resume_dir else "")


_FUNCTIONS = """
tx_events=$tx_record/{attempts}
# Prints the newest committed step in the resume folder.
tx_step() {{
    tx_found=$(ls -- "${{TORCHX_RESUME_DIR-}}" 2> /dev/null \\
        | sed -n 's/^step-\\([0-9]*\\)$/\\1/p' | sort -n | tail -n 1)
    echo "${{tx_found:--}}"
}}
# Prints the names of the machines of this attempt, separated by commas. Images may lack programs
# such as tr, so only scripts with names to print need these.
tx_hosts() {{
    :
}}
# Adds the line of a start or an end. Arguments: start and number, or end and reason.
tx_note() {{
    tx_field=${{TORCHX_RESUME_DIR-}}
    [ "$1" != end ] || tx_field=$(tx_hosts)
    echo "$1 $2 $(date +%s) $(tx_step) $tx_field" >> "$tx_events"
}}
# Returns 0 if exit code $1 of a replica, or a rank in attempt $2, asks for another attempt.
tx_is_requested() {{
    case " {codes} " in *" $1 "*) return 0 ;; esac
    # torchrun loses the exit code of the ranks
    ls -d -- "${{TORCHX_RESUME_DIR-}}/attempts/$2."*/requeue > /dev/null 2>&1
}}
# Returns 0 if the app must not start again after its last attempt, and writes down why.
tx_is_refused() {{
    tx_why=$(awk -v retries="$TORCHX_MAX_RETRIES" -v folder="${{TORCHX_RESUME_DIR:+1}}" '
        $1 == "start" {{ if (!n && !(0 in step)) step[0] = $4; began = $3 }}
        $1 == "end" {{ step[++n] = $4; ran += $3 - began; reason = $2; ends[reason]++ }}
        END {{
            failed = {is_failure}
            if (reason == "cancelled" || (failed && {failures} > retries)) print "-"
            else if (ends["node-failure"] > {nodes}) print "{too_many}"
            else if ({total} && ran >= {total}) print "{over}"
            else if (folder && !failed && n >= {count} && step[n] == step[n - {count}])
                print "{stuck}"
        }}' "$tx_events")
    [ "$tx_why" ] || return 1
    echo "$tx_why" > "$tx_record/{refused}"
    [ "$tx_why" = - ] || echo "$tx_why"
}}
# Prints how long this attempt may run, in seconds; nothing without a limit.
tx_seconds_left() {{
    [ {total} = 0 ] || awk '
        $1 == "start" {{ began = $3 }}
        $1 == "end" {{ ran += $3 - began }}
        END {{ print ran < {total} ? {total} - ran : 1 }}' "$tx_events"
}}
"""
_RESUME_DIR = """\
export TORCHX_RESUME_DIR={path}
if ! (umask 077 && mkdir -p -- "$TORCHX_RESUME_DIR") || [ ! -O "$TORCHX_RESUME_DIR" ]; then
    echo "cannot use the folder of the option resume_dir: $TORCHX_RESUME_DIR" >&2
    exit 1
fi
"""
