"""Read the log of one pod's container in several requests, without lost or repeated lines."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Generator
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from torchx_kit.times import NANOSECONDS, parse_rfc3339, to_nanoseconds
from torchx_sched_k8s.cluster.client import BUSY_STATUSES
from torchx_sched_k8s.cluster.errors import ApiError, NoClusterError
from torchx_sched_k8s.cluster.paths import CORE, object_path
from torchx_specs.schedulers.closing import Closing
from torchx_specs.schedulers.logs import LogQuery

if TYPE_CHECKING:
    from torchx_sched_k8s.cluster.client import Cluster

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
        self._since = to_nanoseconds(query.since) if query.since is not None else None
        self._until = to_nanoseconds(query.until) if query.until is not None else None
        self._closing = closing or Closing()
        self._node = node
        self._zone = b"Z"
        # Entries before this time (in nanoseconds since 1970) precede the last lines that the
        # caller requested, and are skipped.
        self._earliest = 0
        self._node_messages: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        """Forget which lines were read."""
        # The latest second that has lines and the previous second that has lines, each with the
        # hashes of the lines that were read.
        self._second = b""
        self._lines: list[int] = []
        self._previous_second = b""
        self._previous_lines: list[int] = []
        self._first_time: int | None = None

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
        factors = _ENTRIES_FOR_EACH_LINE if self._until is None else ()
        found: deque[bytes] = deque(maxlen=last)
        for tail in [*(factor * (last + 1) for factor in factors), None]:
            self._forget()
            found.clear()
            count = 0
            for line in self.read(False, tail=tail, with_incomplete=with_incomplete):
                found.append(line)
                count += 1
            if tail is not None and count > last and self._first_time is not None:
                self._earliest = self._first_time + 1
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
        read_lines = Counter(self._previous_lines)
        read_lines.update(self._lines)
        start = self._previous_second or self._second
        if start:
            query["sinceTime"] = (start + self._zone).decode()
        elif self._since is not None:
            # the API accepts only whole seconds, so `_new_line` leaves out earlier lines
            since = datetime.fromtimestamp(self._since // NANOSECONDS, timezone.utc)
            query["sinceTime"] = since.strftime("%Y-%m-%dT%H:%M:%SZ")
        # A node writes a long line in parts, of which only the first has a time. If the first part
        # is older than `sinceTime`, the response begins with the rest of the line.
        may_be_rest = "sinceTime" in query
        timeout = _LONGEST_SILENCE if follow else _READ_TIMEOUT
        probe = threading.Timer(NODE_SECONDS, self._probe_node)
        probe.daemon = True
        probe.start()
        try:
            response = self._cluster.open("GET", self._path, self._action, query, timeout=timeout)
        except ApiError as e:
            if e.status == 400 and "waiting to start" in e.message:
                return
            raise
        finally:
            probe.cancel()
        repeated = sum(read_lines.values())
        with response, self._closing.calling(response.shut_down):
            rest = b""
            for chunk in response.chunks():
                *entries, rest = (rest + chunk if rest else chunk).split(b"\n")
                for entry in entries:
                    line = self._new_line(entry, read_lines, may_be_rest)
                    may_be_rest = False
                    if line is None:
                        continue
                    if repeated and start and sum(read_lines.values()) == repeated:
                        self._warn_of_rotation(start)
                    repeated = 0
                    yield line + b"\n"
            if rest and with_incomplete and not follow:
                line = self._new_line(rest, read_lines, may_be_rest)
                if line is not None:
                    yield line

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
        if self._first_time is None or self._earliest:
            nanoseconds = parse_rfc3339(time)
            if nanoseconds < self._earliest:
                return None
            if self._first_time is None:
                self._first_time = nanoseconds
        key = hash(entry)
        if read_lines and read_lines[key] > 0:
            read_lines[key] -= 1
            return None
        second = time[:_SECOND_LENGTH]
        if second > self._second:
            self._previous_lines, self._previous_second = self._lines, self._second
            self._lines, self._second = [], second
            self._zone = time[-6:] if time[-6:-5] in (b"+", b"-") else b"Z"
        (self._lines if second == self._second else self._previous_lines).append(key)
        if self._since is not None or self._until is not None:
            nanoseconds = parse_rfc3339(time)
            if self._since is not None and nanoseconds < self._since:
                return None
            if self._until is not None and nanoseconds >= self._until:
                return None
        return text

    def _warn_of_rotation(self, start: bytes) -> None:
        """Log that lines are missing: a new line came before any line that was read earlier.

        A node keeps only the newest files of a log, and the API returns only the newest file
        (https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation).

        Args:
            start: The second from which the response should repeat the lines.
        """
        logging.getLogger(__name__).warning(
            "lines of %s after %sZ may be missing: the node has rotated the log",
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
