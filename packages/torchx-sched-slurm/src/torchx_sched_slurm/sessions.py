"""Run commands and reach ports inside replicas, with steps that share the job's allocation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchx_kit.hosts.local import LocalHost
from torchx_kit.names.ids import random_id
from torchx_kit.role_checks import check_replica
from torchx_kit.sessions.ports import connect, relay, relay_command, signal_command
from torchx_kit.sessions.process import ProcessSession, environment_without
from torchx_sched_slurm.job_files.records import SlurmRecord
from torchx_sched_slurm.jobs import SlurmJob, cluster_options, expand_nodes
from torchx_sched_slurm.system import Slurm
from torchx_specs.errors import UnknownAppException
from torchx_specs.model.status import is_terminal
from torchx_specs.schedulers.api import Stream
from torchx_specs.schedulers.sessions import (
    NotSupportedError,
    ReplicaNotRunningError,
    Session,
    Sessions,
    TerminalSize,
)

if TYPE_CHECKING:
    from torchx_kit.sessions.ports import Connection
    from torchx_sched_slurm.scheduler import SlurmScheduler

_CONNECT_SECONDS = 2.0
# Runs a command with the environment and the working directory of a replica's process: the oldest
# process with the variables of the replica, preferably one that writes to the replica's log.
# Processes of other sessions have these variables, too, but also a mark; they are skipped. $1 has
# the ids of the job's components, $2 the rank, $3 the index in the role, $4 the path of the log
# without suffix. $5 is "enter" if the command must see the replica's files. $6 is the mark of the
# session. The command line must not contain values of variables: other users can read it.
_ENTER = r"""
tx_ids=" $1 " tx_rank=$2 tx_k=$3 tx_log=$4 tx_enter=$5 tx_mark=$6 tx_pid='' tx_oldest=''
shift 6
for tx_folder in /proc/[0-9]*; do
    [ -O "$tx_folder" ] || continue
    tx_matches=0
    while IFS= read -r -d '' tx_variable; do
        case $tx_variable in
            SLURM_JOB_ID=*)
                case $tx_ids in *" ${tx_variable#*=} "*) tx_matches=$((tx_matches + 1)) ;; esac ;;
            SLURM_PROCID="$tx_rank" | TORCHX_REPLICA_ID="$tx_k") tx_matches=$((tx_matches + 1)) ;;
            TORCHX_SESSION=*) tx_matches=-9 ;;
        esac
    done 2> /dev/null < "$tx_folder/environ"
    [ "$tx_matches" -eq 3 ] || continue
    IFS= read -r tx_stat 2> /dev/null < "$tx_folder/stat" || continue
    read -r -a tx_fields <<< "${tx_stat##*) }"
    tx_start=${tx_fields[19]}
    if [ "$tx_folder/fd/1" -ef "$tx_log.out" ] || [ "$tx_folder/fd/2" -ef "$tx_log.err" ]; then
        tx_start=$((tx_start - (1 << 60)))
    fi
    if [ -z "$tx_oldest" ] || [ "$tx_start" -lt "$tx_oldest" ]; then
        tx_oldest=$tx_start tx_pid=${tx_folder#/proc/}
    fi
done 2> /dev/null
if [ -z "$tx_pid" ]; then
    echo "the replica has no process on $(hostname) that this user may read" >&2
    exit 125
fi
tx_ours=$(readlink /proc/self/ns/mnt) tx_theirs=$(readlink "/proc/$tx_pid/ns/mnt")
if [ "$tx_ours" = "$tx_theirs" ]; then
    while IFS= read -r tx_variable; do unset "$tx_variable"; done 2> /dev/null <<< "$(compgen -e)"
    while IFS= read -r -d '' tx_variable; do
        export "$tx_variable"
    done 2> /dev/null < "/proc/$tx_pid/environ"
    cd -P "/proc/$tx_pid/cwd" || exit 125
elif [ "$tx_enter" = enter ]; then
    echo "the replica runs in a container, which a step of Slurm cannot enter" >&2
    exit 125
fi
export TORCHX_SESSION=$tx_mark
if ! type -P -- "$1" > /dev/null; then
    echo "cannot run '$1' on $(hostname): there is no such program" >&2
    exit 127
fi
exec -- "$@"
"""

# Messages of srun and slurmstepd about the end of the step. They only repeat the exit code.
_END = re.compile(
    rb"(?m)^(?:srun: (?:error: \S+: task \d+: |Force Terminated |Terminating |Job step aborted: "
    rb"|forcing job termination|launch/slurm: _step_signal: )"
    rb"|slurmstepd\S*: error: \*\*\* STEP \S+ ON \S+ CANCELLED ).*(?:\r?\n|\Z)"
)
_PREFIXES = (b"srun: ", b"slurmstepd")
_LONGEST_MESSAGE = 1000


@dataclass(frozen=True)
class Placement:
    """Where a replica runs.

    Attributes:
        slurm: The client for Slurm's commands.
        step: The start of a command line that runs a command on the node.
        arguments: The first arguments of the script that finds the process of the replica.
        node: Name of the node.
        name: Role and index, for messages.
    """

    slurm: Slurm
    step: tuple[str, ...]
    arguments: tuple[str, ...]
    node: str
    name: str


class _StepSession(ProcessSession):
    """A process of srun; its messages about the end of the step are removed from the output.

    Args:
        place: The node.
        command: The program and its arguments.
        options: Further options of srun.
        tty: Size of the terminal that the command gets; None means pipes.
        stdin: Whether the command gets input.
        enter: Whether the command must see the replica's files. If True, the command fails for a
            replica in a container.
    """

    def __init__(
        self,
        place: Placement,
        command: Sequence[str],
        *options: str,
        tty: TerminalSize | None,
        stdin: bool,
        enter: bool = True,
    ) -> None:
        self._place = place
        self._mark = random_id(20)
        argv = [
            *(*place.step, *options, *(["--pty"] if tty else [])),
            *("bash", "-c", _ENTER, "torchx", *place.arguments),
            *("enter" if enter else "any", self._mark, *command),
        ]
        # If this process runs in a job, srun would read that job's variables as options.
        env = environment_without("SLURM_", "SLURM_CONF")
        argv = place.slurm.host.attached_command(argv, tty=tty is not None)
        super().__init__(argv, tty=tty, stdin=stdin, env=env)

    def send_signal(self, number: int) -> None:
        """Send a signal to the command; srun itself passes few signals."""
        self._place.slurm.run(*self._place.step, *signal_command(self._mark, number))

    def output(self) -> Iterator[tuple[Stream, bytes]]:
        filters = {stream: MessageFilter() for stream in Stream}
        for stream, data in super().output():
            text = filters[stream].feed(data)
            if text:
                yield stream, text
        for stream, found in filters.items():
            rest = found.rest()
            if rest:
                yield stream, rest


class MessageFilter:
    """Removes the messages of srun and slurmstepd about the end of a step from a stream.

    Only the start of a line that may become such a message is held back.
    """

    def __init__(self) -> None:
        self._held = b""
        self._in_line = False

    def feed(self, data: bytes) -> bytes:
        """Return the bytes to show now that ``data`` has arrived."""
        data = self._held + data
        self._held = b""
        start = 0
        if self._in_line:
            start = data.find(b"\n") + 1
            if not start:
                return data
        last = max(data.rfind(b"\n") + 1, start)
        line = data[last:]
        if line and len(line) <= _LONGEST_MESSAGE and _may_be_message(line):
            self._held = line
            data = data[:last]
        self._in_line = bool(data) and not data.endswith(b"\n") and not self._held
        return data[:start] + _without_messages(data[start:])

    def rest(self) -> bytes:
        """Return the rest to show at the end of the stream: the held bytes, unless a message."""
        return _without_messages(self._held)


def _may_be_message(line: bytes) -> bool:
    return any(line.startswith(prefix) or prefix.startswith(line) for prefix in _PREFIXES)


def _without_messages(data: bytes) -> bytes:
    return _END.sub(b"", data) if any(prefix in data for prefix in _PREFIXES) else data


def _number(part: SlurmJob) -> str:
    """Return the number of a job, of a component, or of the array of a task."""
    return part.job_id.partition("_")[0]


class SlurmSessions(Sessions["SlurmScheduler"]):
    """Runs steps that share the job's resources, on the nodes of replicas."""

    def open(
        self,
        app_id: str,
        role: str,
        k: int,
        command: Sequence[str],
        *,
        tty: TerminalSize | None = None,
        stdin: bool = False,
    ) -> Session:
        """Start a command on the node of a replica; see :meth:`Sessions.open`.

        Without a terminal, Slurm passes the output line by line.
        """
        return _StepSession(self._placement(app_id, role, k), command, tty=tty, stdin=stdin)

    def connect(self, app_id: str, role: str, k: int, port: int) -> Connection:
        """Return a socket that is connected to a port of the node of a replica.

        The connection is direct if this machine can reach the port. Otherwise a step of the job on
        that node makes the connection. This also works for a program that listens only on the
        loopback address.

        Raises:
            NotListeningError: Nothing listens on the port.
        """
        place = self._placement(app_id, role, k)
        if isinstance(place.slurm.host, LocalHost):
            found = connect((place.node, port), _CONNECT_SECONDS)
            if found is not None:
                return found
        # srun passes whole lines only, unless its output is unbuffered.
        session = _StepSession(
            place, relay_command(port), "--unbuffered", tty=None, stdin=True, enter=False
        )
        return relay(session, place.name, port)

    def _placement(self, app_id: str, role: str, k: int) -> Placement:
        """Return where a replica runs.

        Raises:
            NotSupportedError: The job has no record of its replicas.
            ReplicaNotRunningError: The replica has ended, or has not started.
            BatchError: Slurm cannot be queried.
        """
        scheduler, slurm = self.scheduler, self.scheduler.system
        description = scheduler.describe(app_id)
        if description is None:
            raise UnknownAppException(f"{scheduler.backend}://{scheduler.session_name}/{app_id}")
        entry = scheduler._entry(app_id)
        if entry is None or not entry.roles:
            raise NotSupportedError(
                f"job {app_id} has no record of its replicas; TorchX did not submit it, or its"
                " files were deleted"
            )
        check_replica(app_id, entry.replicas, role, k)
        name = f"{role}/{k}"
        if is_terminal(description.state):
            raise ReplicaNotRunningError(
                f"{name} of job {app_id} has ended ({description.state.name})"
            )
        index = list(entry.replicas).index(role)
        record = SlurmRecord(slurm.host, entry.record).replica(index, k)
        if record is None:
            raise ReplicaNotRunningError(f"{name} of job {app_id} has not started")
        app_id = entry.app_id
        job = slurm.listing([app_id])[0].get(app_id) if record.ended is None else None
        if not isinstance(job, SlurmJob):
            raise ReplicaNotRunningError(f"{name} of job {app_id} has ended")
        parts = job.parts or (job,)
        owner = next((one for one in parts if record.node in expand_nodes(one.nodes)), parts[0])
        rank = sum(r.num_replicas for r in entry.roles[:index]) + k
        ids = " ".join(map(_number, parts))
        return Placement(
            slurm,
            (
                *("srun", *cluster_options(app_id), f"--jobid={_number(owner)}", "--overlap"),
                *("--export=ALL", f"--nodelist={record.node}", "--nodes=1", "--ntasks=1"),
            ),
            (ids, str(rank), str(k), entry.log(index, k)),
            record.node,
            name,
        )
