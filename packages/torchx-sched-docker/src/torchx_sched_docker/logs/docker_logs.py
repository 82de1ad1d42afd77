"""The logs of a Docker Engine's containers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchx_kit.logs.lines import filter_regex
from torchx_sched_docker.logs.container_log import ContainerLog
from torchx_specs.schedulers.closing import closing_of
from torchx_specs.schedulers.logs import LogQuery, Logs

if TYPE_CHECKING:
    from torchx_sched_docker.scheduler import DockerScheduler


class DockerLogs(Logs["DockerScheduler"]):
    """Reads the logs of one engine's containers."""

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of the log of one replica, by default of both streams.

        Following continues through restarts of the replica and of the engine. The engine adds a
        line to its log only when the line has ended. With ``query.partial``, if the engine is on
        this machine, a helper process attaches to the container and receives incomplete lines at
        once.

        Raises:
            UnknownAppException: The app does not exist.
            UnknownReplicaError: The app has no such role, or the role has no such replica.
            BackendError: The engine does not answer, or refuses the request.
        """
        closing = closing_of(self.scheduler)
        client, container = (
            self.scheduler._docker_client,
            self.scheduler._container_id(app_id, role, k),
        )
        log = ContainerLog(client, container, query, closing)
        since, until = query.since, query.until
        is_now = until is None and (since is None or since.timestamp() <= time.time())
        if query.partial and query.should_tail and not query.regex and is_now:
            from torchx_sched_docker.logs.attachment import follow_with_pieces

            return follow_with_pieces(client, container, log)
        return filter_regex(query.regex, log.lines()) if query.regex else log.lines()
