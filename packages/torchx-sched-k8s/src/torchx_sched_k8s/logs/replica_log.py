"""Read the log of one replica: each line once, despite lost connections and replaced pods."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from torchx_kit.logs.lines import attempt_mark, filter_regex
from torchx_kit.retry import Backoff, Outage
from torchx_kit.times import to_nanoseconds
from torchx_sched_k8s.cluster import client
from torchx_sched_k8s.cluster.errors import ApiError, NoClusterError
from torchx_sched_k8s.logs.pod_log import PodLog
from torchx_sched_k8s.status.pod_states import Pod
from torchx_specs.errors import BackendError, RequestError, UnknownAppException
from torchx_specs.schedulers.closing import Closing, closing_of
from torchx_specs.schedulers.log_items import Stream
from torchx_specs.schedulers.logs import LogQuery, Logs

if TYPE_CHECKING:
    from torchx_sched_k8s.scheduler import KubernetesScheduler

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 2.0

#: Returns a replica's pods in the order of their attempts, and whether more pods may follow.
FindPods = Callable[[], tuple[Sequence[Pod], bool]]


class KubernetesLogs(Logs["KubernetesScheduler"]):
    """Reads the logs of pods."""

    def read(self, app_id: str, role: str, k: int, query: LogQuery) -> Iterable[str]:
        """Return lines of the log of one replica, including its earlier attempts.

        With ``should_tail``, the iterator waits for a pod that has not started. It continues after
        a lost connection, a restart of the API server, or the replacement of a pod.

        Raises:
            RequestError: One stream alone is requested.
            UnknownAppException: The app does not exist. Raised by the iterator if the app is
                deleted before its log ends.
            UnknownReplicaError: The app has no such role or replica.
        """
        if query.streams not in (None, Stream.COMBINED):
            raise RequestError(
                "a cluster stores stdout and stderr of a container in one log: omit the stream"
            )
        closing = closing_of(self.scheduler)
        cluster, namespace, _ = self.scheduler._locate(app_id)
        index = self.scheduler._role_of(app_id, role, k).index
        find_pods = functools.partial(self.scheduler._find_pods, app_id, index, k)
        outages = self.scheduler._outages
        outage = outages.get(app_id)
        if outage is None or outage.is_given_up:
            outage = outages[app_id] = Outage(cluster.clock)
        log = ReplicaLog(cluster, namespace, find_pods, query, closing, outage=outage)
        lines = _named(log.lines(), f"{role}/{k} of {app_id}")
        return filter_regex(query.regex, lines) if query.regex else lines


def _named(lines: Generator[str, None, None], replica: str) -> Generator[str, None, None]:
    """Yield lines; if the cluster ends them with an error, log at once whose lines they were.

    A caller that merges the logs of several replicas raises the error only at the end of all logs.

    Args:
        lines: The lines of one replica.
        replica: The replica, for the warning.
    """
    try:
        yield from lines
    except (BackendError, UnknownAppException) as e:
        logging.getLogger(__name__).warning("the log of %s ends early: %s", replica, e)
        raise


class ReplicaLog:
    """The log of one replica: the logs of all its pods, in the order of the attempts.

    Args:
        cluster: The cluster.
        namespace: Namespace of the pods.
        find_pods: Called before each read, to find the replica's present pods.
        query: Which lines; ``regex`` is not applied.
        closing: Ends a followed log when the scheduler is closed.
        sleep: Called with a number of seconds to wait; None means that of ``closing``.
        outage: Shared by all followers of an app, so that all of them end after a long outage of
            the API server, or none does; by default it is not shared.
    """

    def __init__(
        self,
        cluster: client.Cluster,
        namespace: str,
        find_pods: FindPods,
        query: LogQuery,
        closing: Closing | None = None,
        sleep: Callable[[float], None] | None = None,
        outage: Outage | None = None,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._find_pods = find_pods
        self._query = query
        self._closing = closing or Closing()
        self._sleep = sleep or self._closing.sleep
        self._outage = outage or Outage(cluster.clock)
        # How many requests have failed in succession, and whether this was logged.
        self._lost = 0
        self._warned = False
        # The numbers of the attempts that were read, by the id of the pod.
        self._attempts: dict[str, int] = {}

    def lines(self) -> Generator[str, None, None]:
        """Yield the lines, each with its newline; the last line may lack the newline.

        Closing the generator closes its connection.

        Raises:
            BackendError: The cluster refuses a request, or stays unreachable.
        """
        finished: set[str] = set()
        logs: dict[str, PodLog] = {}
        follow = self._query.should_tail
        if self._query.last is not None:
            for line in self._read_last(self._query.last, logs, finished):
                yield line.decode("utf-8", "replace")
            if not follow:
                return
        with closing(self._read(logs, finished)) as lines:
            for line in self._closing.until_closed(lines):
                yield line.decode("utf-8", "replace")

    def _read_last(self, last: int, logs: dict[str, PodLog], finished: set[str]) -> list[bytes]:
        """Return the last lines, and store in ``logs`` and ``finished`` where to continue.

        :meth:`_read` describes both arguments.
        """
        pods, _ = self._find_pods()
        found: list[list[bytes]] = []
        started = [pod for pod in pods if pod.started]
        numbers = {pod.uid: self._number(pods, pod) for pod in started}
        for pod in reversed(started):
            if last > 0 or not pod.ended:
                log = logs[pod.uid] = self._pod_log(pod)
                leave = self._query.should_tail and not pod.ended
                found.append(self._last_lines(log, last, with_incomplete=not leave))
                last -= len(found[-1])
                if found[-1] and last > 0:  # the first line is among them
                    found.append(self._mark(numbers[pod.uid]))
            if pod.ended:
                finished.add(pod.uid)
                logs.pop(pod.uid, None)
        return [line for lines in reversed(found) for line in lines]

    def _last_lines(self, log: PodLog, last: int, *, with_incomplete: bool) -> list[bytes]:
        """Return the last lines of a pod; none if the pod was deleted.

        The request is repeated after errors that may be temporary.
        """
        backoff = self._backoff()
        while True:
            try:
                return log.read_last(last, with_incomplete=with_incomplete)
            except (ApiError, NoClusterError) as e:
                if isinstance(e, ApiError) and e.status == 404:
                    return []
                self._pause_after(e, backoff)

    def _read(self, logs: dict[str, PodLog], finished: set[str]) -> Generator[bytes, None, None]:
        """Yield the lines that exist; if the log is followed, go on until the replica has ended.

        Args:
            logs: The logs that were read in part, by the unique id of the pod; changed in place.
            finished: Unique ids of the pods whose logs were read to the end; changed in place.
        """
        until = to_nanoseconds(self._query.until) if self._query.until is not None else None
        follow = self._query.should_tail
        backoff = self._backoff()
        seen: Sequence[Pod] = []
        unfinished: Sequence[Pod] = []
        while True:
            began = self._outage.clock()
            try:
                pods, more = self._find_pods()
            except NoClusterError as e:
                self._outage.unanswered(e, began)
                continue
            except UnknownAppException:
                if seen and all(pod.ended and pod.uid in finished for pod in seen):
                    return  # the app was deleted after its log was read to the end
                raise
            self._outage.answered()
            if self._outage.clock() - began > _LONGEST_PAUSE:
                backoff.reset()  # the outage of the API server does not count for the node
            seen = pods or seen
            if not follow:
                pods, more = [pod for pod in pods if pod.started], False
            try:
                unfinished = [pod for pod in pods if pod.uid not in finished]
                for pod in unfinished:
                    if not pod.started:
                        break
                    log = logs.setdefault(pod.uid, self._pod_log(pod))
                    with closing(log.read(follow=follow and not pod.ended)) as lines:
                        for line in lines:
                            self._outage.answered()
                            backoff.reset()
                            yield from self._mark(self._number(pods, pod))
                            yield line
                    if follow and not pod.ended:
                        break  # the container ended or the connection was lost: query the pod again
                    finished.add(pod.uid)
                    logs.pop(pod.uid)
                if until is not None and time.time_ns() >= until:
                    return
                if not more and all(pod.uid in finished for pod in pods):
                    return
            except (ApiError, NoClusterError) as e:
                if isinstance(e, ApiError) and e.status == 404:
                    # the pod was deleted, and another pod may replace it
                    finished.update(pod.uid for pod in unfinished if pod.uid in logs)
                    backoff.pause_after(e)
                else:
                    self._pause_after(e, backoff)
            else:
                self._lost, self._warned = 0, False
                backoff.pause()

    def _mark(self, number: int) -> list[bytes]:
        has_marks = number > 1 and self._query.attempts and self._query.regex is None
        return [attempt_mark(number).encode()] if has_marks else []

    def _number(self, pods: Sequence[Pod], pod: Pod) -> int:
        """Return the number of an attempt if it is new, else 0.

        Earlier pods may have been deleted; JobSet's label then tells the number.
        """
        if pod.uid in self._attempts:
            return 0
        number = 1 + max(pods.index(pod), pod.attempt)
        self._attempts[pod.uid] = max(number, 1 + max(self._attempts.values(), default=0))
        return self._attempts[pod.uid]

    def _pause_after(self, error: ApiError | NoClusterError, backoff: Backoff) -> None:
        """Wait after an error that may be temporary; raise any other error.

        Log an error that is not the first one in succession. A single lost connection is normal:
        proxies close connections that are silent for a while.
        """
        if isinstance(error, ApiError):
            if error.status not in client.BUSY_STATUSES:
                raise error
            self._lost += 1  # the node does not answer: a retry rarely helps at once
        self._lost += 1
        if self._lost > 1 and not self._warned:
            self._warned = True
            logging.getLogger(__name__).warning("%s; retrying", error)
        backoff.pause_after(error)

    def _backoff(self) -> Backoff:
        return Backoff(
            self._cluster.retry_seconds,
            first_pause=_FIRST_PAUSE,
            longest_pause=_LONGEST_PAUSE,
            sleep=self._sleep,
        )

    def _pod_log(self, pod: Pod) -> PodLog:
        return PodLog(
            self._cluster,
            self._namespace,
            pod.name,
            pod.container,
            self._query,
            self._closing,
            pod.node,
        )
