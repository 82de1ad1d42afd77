"""What happened to an app: a state, and the events that change it.

Every change is an event: the supervisor applies it to what it has in memory and writes it to the
app's journal; who reads the journal applies it again and arrives at the same state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx_sched_local.supervise.processes import Leader, ProcessId, find_processes
from torchx_specs.model.status import AppState, is_terminal

#: ``[kind, ...]``, as JSON has it.
Event = list[Any]


class ReplicaRun:
    """One replica.

    Args:
        role: name of its role
        id: index within the role

    Attributes:
        state: its state
        process: its first process, None before there is one
        exit_code: of the latest attempt, negative for a signal, None while there is none
        reason: why it is in this state
        restarts: how often it was started again, -1 before it was started at all
        reaped: when its process was waited for, see
            :class:`~torchx_sched_local.supervise.processes.Leader`
    """

    # no dataclass: making one takes longer than everything else in a short job's state
    def __init__(self, role: str, id: int) -> None:
        self.role = role
        self.id = id
        self.state = AppState.PENDING
        self.process: ProcessId | None = None
        self.exit_code: int | None = None
        self.reason = ""
        self.restarts = -1
        self.reaped: int | None = None

    def is_final(self, may_retry: bool) -> bool:
        """Returns True once nothing more comes of it; False may also mean that the app's end tells.

        Args:
            may_retry: whether anything of the app may be started again
        """
        # what it has started may take longer to end than its first process, and write meanwhile
        return not may_retry and self.state in (AppState.SUCCEEDED, AppState.FAILED)


class AppRun:
    """An app of which nothing was started yet, until events tell otherwise.

    Args:
        app_id: its id
        replicas: how many replicas each role has

    Attributes:
        roles: the replicas of each role, in order
        state: its state
        msg: why it is in this state
        num_restarts: how often anything of it was started again
        last_updated: when it changed last, in seconds since the epoch
        supervisor: the process that supervises it
        guard: the process that ends it with its supervisor, None if there is none
        boot: the run of the machine that it belongs to
        node: the machine's name
    """

    def __init__(self, app_id: str, replicas: Mapping[str, int]) -> None:
        self.app_id = app_id
        self.roles = {
            role: [ReplicaRun(role, k) for k in range(count)] for role, count in replicas.items()
        }
        self.state = AppState.RUNNING
        self.msg = ""
        self.num_restarts = 0
        self.last_updated = 0.0
        self.supervisor: ProcessId | None = None
        self.guard: ProcessId | None = None
        self.boot = ""
        self.node = ""
        self._role_list = list(self.roles.values())

    @property
    def replicas(self) -> list[ReplicaRun]:
        """All replicas."""
        return [replica for role in self._role_list for replica in role]

    def replica(self, role_index: int, k: int) -> ReplicaRun:
        """Returns a replica by its place."""
        return self._role_list[role_index][k]

    def token(self, role_index: int, k: int) -> str:
        """Returns what marks the processes of a replica."""
        return f"{self.app_id}/{role_index}/{k}"

    def owns(self, token: str) -> bool:
        """Returns True for the token of any replica of this app."""
        return token.startswith(f"{self.app_id}/")

    def leaders(self) -> list[Leader]:
        """Returns the first processes of all replicas that have one on this machine."""
        return [
            Leader(replica.process, self.token(i, k), replica.reaped)
            for i, role in enumerate(self._role_list)
            for k, replica in enumerate(role)
            if replica.process is not None and replica.process.start > 0
        ]

    def find_processes(self) -> set[ProcessId]:
        """Returns all living processes of the app."""
        return find_processes(self.leaders(), self.owns, self.begun)

    @property
    def begun(self) -> int:
        """A time before which no process of the app has started."""
        if self.supervisor is None or self.supervisor.start <= 0:
            return 1 << 62  # nobody knows: then nothing may be taken for the app's
        return self.supervisor.start

    def apply(self, event: Event) -> None:
        """Changes the state by an event; one of an unknown kind, of a later version, is ignored."""
        handler = _HANDLERS.get(event[0])
        if handler is not None:
            handler(self, *event[1:])
            self.last_updated = event[-1]

    def _on_supervisor(self, pid: int, start: int, boot: str, node: str, when: float) -> None:
        self.supervisor = ProcessId(pid, start)
        self.boot = boot
        self.node = node

    def _on_guard(self, pid: int, start: int, when: float) -> None:
        self.guard = ProcessId(pid, start)

    def _on_start(self, role: int, k: int, pid: int, start: int, when: float) -> None:
        replica = self.replica(role, k)
        replica.process = ProcessId(pid, start)
        replica.state = AppState.RUNNING
        replica.exit_code = replica.reaped = None
        replica.reason = ""
        replica.restarts += 1

    def _on_exit(
        self,
        role: int,
        k: int,
        state: int,
        exit_code: int | None,
        reason: str,
        reaped: int | None,
        when: float,
    ) -> None:
        replica = self.replica(role, k)
        replica.state = AppState(state)
        replica.exit_code = exit_code
        replica.reason = reason
        replica.reaped = reaped

    def _on_retry(self, what: str, when: float) -> None:
        self.num_restarts += 1

    def _on_end(self, state: int, msg: str, when: float) -> None:
        self.state = AppState(state)
        self.msg = msg
        for replica in self.replicas:
            if not is_terminal(replica.state):
                replica.state = AppState.CANCELLED


_HANDLERS: dict[str, Any] = {
    "supervisor": AppRun._on_supervisor,
    "guard": AppRun._on_guard,
    "start": AppRun._on_start,
    "exit": AppRun._on_exit,
    "retry": AppRun._on_retry,
    "end": AppRun._on_end,
}
