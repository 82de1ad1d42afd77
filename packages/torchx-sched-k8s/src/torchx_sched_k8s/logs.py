"""Read logs: each line of a replica once, despite lost connections and replaced pods."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from datetime import datetime, timezone
from functools import partial

from torchx_kit.logs.lines import attempt_mark, filter_regex
from torchx_kit.retry import Backoff, Outage
from torchx_kit.times import NANOSECONDS, parse_rfc3339, to_nanoseconds
from torchx_sched_k8s.cluster.client import BUSY_STATUSES, Cluster, chunks
from torchx_sched_k8s.cluster.errors import ApiError, NoClusterError
from torchx_sched_k8s.cluster.labels import CORE, object_path
from torchx_sched_k8s.scheduler import KubernetesScheduler
from torchx_sched_k8s.status.pod_states import Pod
from torchx_specs.errors import BackendError, RequestError, UnknownAppException
from torchx_specs.schedulers.closing import Closing, closing_of, shut_down
from torchx_specs.schedulers.log_items import Stream
from torchx_specs.schedulers.logs import LogQuery, Logs

#: How long a followed log may be silent, in seconds. Then the connection may be dead, and another
#: request continues the log.
_LONGEST_SILENCE = 300.0
_READ_TIMEOUT = 60.0
#: How long a node may take for a response before it is probed, in seconds, and for that probe.
NODE_SECONDS = 5.0
# How many entries to request for each of the last lines, in the first and in the second request. A
# long line consists of several entries.
_ENTRIES_FOR_EACH_LINE = (1, 16)
_SECOND_LENGTH = len("2024-01-01T00:00:00")
#: First words of the messages that a node writes into a response if it cannot read or follow a log.
_NODE_MESSAGES = (b"unable to ", b"failed to ", b"rpc error")
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 2.0

#: Returns a replica's pods in the order of their attempts, and whether more pods may follow.
FindPods = Callable[[], tuple[Sequence[Pod], bool]]


class PodLog:
    """The log of one pod's container, which skips lines that were already read.

    Lines of a log have no numbers, only times. Times need not be unique or ascending, because a
    node writes two streams into one log. A request that continues the log therefore repeats the
    lines of the two latest seconds, and the lines that were already read are skipped.

    Args:
        cluster: The cluster.
        namespace: Namespace of the pod.
        pod: Name of the pod.
        container: Name of the container.
        query: Which lines; only ``since`` and ``until`` have an effect.
        closing: Ends a read when the scheduler is closed.
        node: Name of the pod's node, for a warning if the node does not answer.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        pod: str,
        container: str,
        query: LogQuery,
        closing: Closing | None = None,
        node: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._path = object_path(CORE, namespace, "pods", pod, "log")
        self._action = f"read the log of {pod}"
        self._container = container
        # Entries before the first or not before the second time are left out (nanoseconds since
        # 1970); :meth:`read_last` moves the first one to the last lines.
        self._earliest = to_nanoseconds(query.since) if query.since is not None else 0
        self._until = to_nanoseconds(query.until) if query.until is not None else math.inf
        self._closing = closing or Closing()
        self._node = node
        self._node_messages: set[str] = set()
        # The two latest seconds that have lines, each with the hashes of the lines that were read.
        self._seconds: dict[bytes, list[int]] = {}
        self._first_time: int | None = None
        self._last_time = b""

    def read_last(self, last: int, *, with_incomplete: bool = True) -> list[bytes]:
        """Return the last lines of the log; :meth:`read` then continues after them.

        The node counts entries, not lines, and counts them before it leaves out entries by time.
        The first line of the response may lack its beginning, so one more entry is requested. If
        the response has too few lines, more entries are requested, and then the whole log. With
        ``until``, which leaves out the newest entries, the whole log is requested at once.

        Args:
            last: Maximum number of lines.
            with_incomplete: Whether to return an incomplete last line. If False, the next read
                returns it.

        Raises:
            ApiError: The cluster refuses the request.
            NoClusterError: The cluster does not answer, or the connection was lost.
        """
        factors = _ENTRIES_FOR_EACH_LINE if self._until == math.inf else ()
        found: deque[bytes] = deque(maxlen=last)
        for tail in [*(factor * (last + 1) for factor in factors), None]:
            self._seconds, self._first_time = {}, None
            found.clear()
            count = 0
            for line in self.read(False, tail=tail, with_incomplete=with_incomplete):
                found.append(line)
                count += 1
            if tail is not None and count > last and self._first_time is not None:
                self._earliest = max(self._earliest, self._first_time + 1)
                break
        return list(found)

    def read(
        self,
        follow: bool,
        *,
        tail: int | None = None,
        with_incomplete: bool = True,
    ) -> Generator[bytes, None, None]:
        """Yield the lines that were not yet read; none while the container waits to start.

        Args:
            follow: Whether to wait for more lines until the container has ended.
            tail: Read only this many entries at the end of the log; None reads all entries.
            with_incomplete: Whether to yield an incomplete last line. With ``follow``, such a line
                is always left to the next call.

        Raises:
            ApiError: The cluster refuses the request.
            NoClusterError: The cluster does not answer, or the connection was lost.
        """
        query: dict[str, object] = {"timestamps": "true"}
        if self._container:
            query["container"] = self._container
        if follow:
            query["follow"] = "true"
        if tail is not None:
            query["tailLines"] = tail
        read_lines = Counter(key for lines in self._seconds.values() for key in lines)
        start = min(self._seconds, default=b"")
        if start:
            start += b"Z" if self._last_time.endswith(b"Z") else self._last_time[-6:]
            query["sinceTime"] = start.decode()
        elif self._earliest:
            # the API accepts only whole seconds, so `_new_line` leaves out earlier lines
            since = datetime.fromtimestamp(self._earliest // NANOSECONDS, timezone.utc)
            query["sinceTime"] = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        # A node writes a long line in parts, of which only the first has a time. If the first part
        # is older than `sinceTime`, the response begins with the rest of the line.
        may_be_rest = "sinceTime" in query
        timeout = _LONGEST_SILENCE if follow else _READ_TIMEOUT
        probe = threading.Timer(NODE_SECONDS, self._probe_node)
        probe.daemon = True
        probe.start()
        request = self._cluster.open("GET", self._path, self._action, query, timeout=timeout)
        repeated = sum(read_lines.values())
        try:
            with request as response, self._closing.calling(partial(shut_down, response)):
                probe.cancel()
                rest = b""
                for chunk in chunks(response):
                    *entries, rest = (rest + chunk if rest else chunk).split(b"\n")
                    for entry in entries:
                        line = self._new_line(entry, read_lines, may_be_rest)
                        may_be_rest = False
                        if line is None:
                            continue
                        if repeated and sum(read_lines.values()) == repeated:
                            self._warn_of_rotation(start)
                        repeated = 0
                        yield line + b"\n"
                if rest and with_incomplete and not follow:
                    line = self._new_line(rest, read_lines, may_be_rest)
                    if line is not None:
                        yield line
        except ApiError as e:
            if e.status != 400 or "waiting to start" not in e.message:
                raise
        finally:
            probe.cancel()

    def _probe_node(self) -> None:
        """Log a warning if the pod's node does not answer.

        A node may answer a request to follow a log only when the log has its next line. Therefore
        request no line of the log, without following it.
        """
        now = self._cluster.clock()
        if now - self._cluster.probes.get(self._node, -NODE_SECONDS) < NODE_SECONDS:
            return  # another replica on this node has sent the request
        self._cluster.probes[self._node] = now
        query = {"container": self._container, "tailLines": 0}
        try:
            with self._cluster.open("GET", self._path, self._action, query, timeout=NODE_SECONDS):
                return
        except (ApiError, NoClusterError) as e:
            if isinstance(e, NoClusterError) or e.status in BUSY_STATUSES:
                logging.getLogger(__name__).warning(
                    "node %s does not answer: %s; retrying", self._node, e
                )

    def _new_line(self, entry: bytes, read_lines: Counter[int], may_be_rest: bool) -> bytes | None:
        """Return the text of a log entry, or None if the entry must be left out.

        An entry is left out if it was read before, is outside of ``since`` and ``until``, or
        precedes the requested last lines. The rest of an earlier line and a message of the node are
        left out too; the message is logged.

        Args:
            entry: Usually a time, a space and the text of the line.
            read_lines: Maps the hash of each earlier line to the number of its occurrences. If the
                entry is an earlier line, this number is reduced by one.
            may_be_rest: Whether the entry may be the rest of an earlier line, without a time.
        """
        time, _, text = entry.partition(b" ")
        if not _is_time(time):
            if entry.startswith(_NODE_MESSAGES):
                self._warn(entry.decode("utf-8", "replace"))
                return None
            return None if may_be_rest else entry
        if self._first_time is None or self._earliest or self._until < math.inf:
            nanoseconds = parse_rfc3339(time)
            self._first_time = self._first_time or nanoseconds
            if not self._earliest <= nanoseconds < self._until:
                return None
        key = hash(entry)
        if read_lines and read_lines[key] > 0:
            read_lines[key] -= 1
            return None
        self._last_time = time
        self._seconds.setdefault(time[:_SECOND_LENGTH], []).append(key)
        if len(self._seconds) > 2:
            del self._seconds[min(self._seconds)]
        return text

    def _warn_of_rotation(self, start: bytes) -> None:
        """Log that lines are missing: a new line came before any line that was read earlier.

        A node keeps only the newest files of a log, and the API returns only the newest file
        (https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation).

        Args:
            start: The second from which the response should repeat the lines.
        """
        logging.getLogger(__name__).warning(
            "lines of %s after %s may be missing: the node has rotated the log",
            self._action.removeprefix("read "),
            start.decode(),
        )

    def _warn(self, message: str) -> None:
        """Log a node's message about an unreadable log as a warning, each message only once."""
        if message not in self._node_messages:
            self._node_messages.add(message)
            logging.getLogger(__name__).warning(
                "cannot %s: the pod's node has no log to read: %s", self._action, message.strip()
            )


def _is_time(text: bytes) -> bool:
    return text[:4].isdigit() and text[4:5] == b"-" and text[10:11] == b"T"


class KubernetesLogs(Logs[KubernetesScheduler]):
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
        find_pods = partial(self.scheduler._find_pods, app_id, index, k)
        if cluster.outage.is_given_up:
            cluster.outage = Outage(cluster.clock)
        log = ReplicaLog(cluster, namespace, find_pods, query, closing)
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
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        find_pods: FindPods,
        query: LogQuery,
        closing: Closing | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._find_pods = find_pods
        self._query = query
        self._closing = closing or Closing()
        self._sleep = sleep or self._closing.sleep
        self._outage = cluster.outage
        # How many requests have failed in succession.
        self._lost = 0
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
        started = [pod for pod in pods if pod.has_log]
        numbers = {pod.uid: self._number(pods, pod) for pod in started}
        for pod in reversed(started):
            if last > 0 or not pod.has_ended:
                log = logs[pod.uid] = self._pod_log(pod)
                leave = self._query.should_tail and not pod.has_ended
                found.append(self._last_lines(log, last, with_incomplete=not leave))
                last -= len(found[-1])
                if found[-1] and last > 0:  # the first line is among them
                    found.append(self._mark(numbers[pod.uid]))
            if pod.has_ended:
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
        until = to_nanoseconds(self._query.until) if self._query.until is not None else math.inf
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
                if seen and all(pod.has_ended and pod.uid in finished for pod in seen):
                    return  # the app was deleted after its log was read to the end
                raise
            self._outage.answered()
            if self._outage.clock() - began > _LONGEST_PAUSE:
                backoff.reset()  # the outage of the API server does not count for the node
            seen = pods or seen
            if not follow:
                pods, more = [pod for pod in pods if pod.has_log], False
            try:
                unfinished = [pod for pod in pods if pod.uid not in finished]
                for pod in unfinished:
                    if not pod.has_log:
                        break
                    log = logs.setdefault(pod.uid, self._pod_log(pod))
                    with closing(log.read(follow=follow and not pod.has_ended)) as lines:
                        for line in lines:
                            self._outage.answered()
                            backoff.reset()
                            yield from self._mark(self._number(pods, pod))
                            yield line
                    if follow and not pod.has_ended:
                        break  # the container ended or the connection was lost: query the pod again
                    finished.add(pod.uid)
                    logs.pop(pod.uid)
                if time.time_ns() >= until:
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
                self._lost = 0
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
        if isinstance(error, ApiError) and error.status not in BUSY_STATUSES:
            raise error
        before = self._lost
        # a node that does not answer counts twice: a retry rarely helps at once
        self._lost += 2 if isinstance(error, ApiError) else 1
        if before < 2 <= self._lost:
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
