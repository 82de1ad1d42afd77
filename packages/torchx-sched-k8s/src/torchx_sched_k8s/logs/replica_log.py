"""Logs of a replica: whole lines, each once, whatever happens to the connection or the pod."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone

from torchx_sched_k8s.cluster import client as connection
from torchx_sched_k8s.cluster.client import Cluster
from torchx_sched_k8s.cluster.errors import ApiError, NoClusterError, RefusedRequestError
from torchx_sched_k8s.cluster.paths import CORE, object_path
from torchx_sched_k8s.status.pod_states import Pod
from torchx_specs.errors import RequestError

#: How long a follower waits for a cluster that has gone away, in seconds.
PATIENCE = 120.0
_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 2.0
#: After so much silence a connection is made anew: one that has died quietly says nothing, too.
_SILENCE = 300.0
_NANO = 1_000_000_000
_SECOND = len("2024-01-01T00:00:00")
#: The version from which on one stream may be asked for, where the feature gate is on.
_SPLIT_STREAMS = (1, 32)
_ONE_STREAM = (
    "this cluster keeps stdout and stderr of a container in one log: leave the stream out (one of"
    " 1.32 or later whose feature gate PodLogsQuerySplitStreams is on can tell them apart)"
)
#: How that begins which a node says of a log that it cannot read or follow.
_OF_NODES = (b"unable to ", b"failed to ", b"rpc error")
_BUSY = frozenset({408, 429, 500, 502, 503, 504})

#: Finds the pods of the replica (in the order of their attempts), and whether there will be others.
Look = Callable[[], tuple[Sequence[Pod], bool]]


class ReplicaLog:
    """The log of one replica: of all its pods, in the order in which they were made.

    Args:
        cluster: where it is
        namespace: of its pods
        look: finds its pods
        since: only what was written at that time or later
        until: only what was written before that time
        stream: ``Stdout`` or ``Stderr``, None for both
        sleep: waits between two attempts
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        look: Look,
        since: datetime | None = None,
        until: datetime | None = None,
        stream: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._look = look
        self._since = _nanoseconds_of(since) if since is not None else None
        self._until = _nanoseconds_of(until) if until is not None else None
        self._stream = stream
        self._sleep = sleep

    def lines(self, follow: bool) -> Iterator[str]:
        """Yields the lines, each with its newline; the last one may lack it.

        Args:
            follow: go on until the replica has ended for good

        Raises:
            BackendError: the cluster refuses, or does not come back
            RequestError: one stream is asked for, and the cluster keeps them together
        """
        # older ones ignore what they do not know, and would give both
        if self._stream and self._cluster.version() < _SPLIT_STREAMS:
            raise RequestError(_ONE_STREAM)
        raw = self._followed() if follow else self._written()
        for line in raw:
            yield line.decode("utf-8", "replace")

    def _written(self) -> Iterator[bytes]:
        pods, _ = self._look()
        for pod in pods:
            if not pod.started:
                continue
            reader = self._reader(pod)
            patience = _Patience(self._sleep, connection.RETRY_SECONDS)
            while True:
                try:
                    for lines in (reader.earlier(pod), reader.read(follow=False)):
                        for line in lines:
                            patience.renew()
                            yield line
                    break
                except ApiError as e:
                    if e.status == 404:
                        break  # deleted meanwhile
                    self._look_after(e, patience)
                except NoClusterError as e:
                    patience.spend(e)

    def _look_after(self, error: ApiError, patience: _Patience) -> None:
        """Waits after a refusal that may be over soon; raises others."""
        if error.status == 401:
            self._cluster.renew_credentials(error)
        elif error.status not in _BUSY:
            raise error
        patience.spend(error)

    def _followed(self) -> Iterator[bytes]:
        done: set[str] = set()
        readers: dict[str, PodLog] = {}
        patience = _Patience(self._sleep, PATIENCE)
        waiting: Sequence[Pod] = []
        while True:
            try:
                pods, more = self._look()
                waiting = [pod for pod in pods if pod.name not in done]
                for pod in waiting:
                    if not pod.started:
                        break
                    reader = readers.setdefault(pod.name, self._reader(pod))
                    for line in reader.earlier(pod):
                        patience.renew()
                        yield line
                    for line in reader.read(follow=not pod.ended):
                        patience.renew()
                        yield line
                    if not pod.ended:
                        break  # it has, or the connection was lost: another look will tell
                    done.add(pod.name)
                    readers.pop(pod.name)
                if self._is_past_until():
                    return
                if not more and all(pod.name in done for pod in pods):
                    return
            except ApiError as e:
                if e.status == 404:
                    # a pod that was deleted meanwhile: whether there is another one is to be seen
                    done.update(pod.name for pod in waiting if pod.name in readers)
                    patience.spend(e)
                else:
                    self._look_after(e, patience)
                continue
            except NoClusterError as e:
                patience.spend(e)
                continue
            patience.pause()

    def _reader(self, pod: Pod) -> PodLog:
        return PodLog(
            self._cluster,
            self._namespace,
            pod.name,
            pod.container,
            self._since,
            self._until,
            self._stream,
        )

    def _is_past_until(self) -> bool:
        return self._until is not None and time.time_ns() >= self._until


class _Patience:
    """Pauses that grow while nothing happens, and an end to waiting for a cluster."""

    def __init__(self, sleep: Callable[[float], None], limit: float) -> None:
        self._sleep = sleep
        self._limit = limit
        self._next = _FIRST_PAUSE
        self._lost: float | None = None

    def renew(self) -> None:
        self._next = _FIRST_PAUSE
        self._lost = None

    def pause(self) -> None:
        self._lost = None
        self._wait()

    def spend(self, error: Exception) -> None:
        now = time.monotonic()
        self._lost = now if self._lost is None else self._lost
        if now - self._lost > self._limit:
            raise error
        self._wait()

    def _wait(self) -> None:
        self._sleep(self._next)
        self._next = min(self._next * 1.5, _LONGEST_PAUSE)


class PodLog:
    """The log of one pod's container; remembers what was read.

    Lines have no number, only a time that need not be unique, nor in order: two streams are written
    by one node. So a reading that goes on begins a second earlier, and leaves out what was read.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        pod: str,
        container: str,
        since: int | None = None,
        until: int | None = None,
        stream: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._path = object_path(CORE, namespace, "pods", pod, "log")
        self._what = f"read the log of {pod}"
        self._container = container
        self._since = since
        self._until = until
        self._stream = stream
        self._second = b""
        self._this: list[int] = []
        self._last: list[int] = []
        self._last_second = b""
        self._zone = b"Z"
        self._restarts = -1

    def earlier(self, pod: Pod) -> Iterator[bytes]:
        """Yields what the container wrote before it was last started again, once for each time.

        A cluster keeps that of one start only.
        """
        if pod.restarts <= 0 or pod.restarts == self._restarts:
            self._restarts = max(self._restarts, pod.restarts)
            return
        self._restarts = pod.restarts
        try:
            yield from self.read(follow=False, previous=True)
        except RefusedRequestError:
            return  # it is gone

    def read(self, follow: bool, previous: bool = False) -> Iterator[bytes]:
        """Yields the lines that were not read yet.

        Args:
            follow: wait for more until the container has ended
            previous: of the container before it was last started again

        Raises:
            ApiError: the cluster refuses
            NoClusterError: it does not answer, or the connection was lost
            RequestError: one stream is asked for, and the cluster keeps them together
        """
        query: dict[str, object] = {"timestamps": "true"}
        if self._container:
            query["container"] = self._container
        if follow:
            query["follow"] = "true"
        if previous:
            query["previous"] = "true"
        if self._stream:
            query["stream"] = self._stream
        known = Counter(self._last)
        known.update(self._this)
        begin = self._last_second or self._second
        if begin:
            query["sinceTime"] = (begin + self._zone).decode()
        elif self._since is not None:
            # in whole seconds: what the API takes
            past = datetime.fromtimestamp(self._since // _NANO, timezone.utc)
            query["sinceTime"] = past.strftime("%Y-%m-%dT%H:%M:%SZ")
        # a long line is written in pieces, of which the first alone has a time: if it is older than
        # what is asked for, the rest comes without
        torn = "sinceTime" in query
        timeout = _SILENCE if follow else 60.0
        try:
            answer = self._cluster.open("GET", self._path, self._what, query, timeout=timeout)
        except ApiError as e:
            if e.status == 400 and "waiting to start" in e.message:
                return
            if e.status == 422 and self._stream and "stream" in e.message:
                raise RequestError(_ONE_STREAM) from e
            raise
        with answer:
            rest = b""
            for piece in answer.chunks():
                *entries, rest = (rest + piece if rest else piece).split(b"\n")
                for entry in entries:
                    line = self._take(entry, known, torn)
                    torn = False
                    if line is not None:
                        yield line + b"\n"
            if rest and not follow:
                # a follower gets it when the container has ended, whole
                line = self._take(rest, known, torn)
                if line is not None:
                    yield line

    def _take(self, entry: bytes, known: Counter[int], torn: bool) -> bytes | None:
        """Notes one line; returns it if it is new and wanted.

        Args:
            entry: the line as it came
            known: lines that were read already, and how often
            torn: it may be the rest of one
        """
        stamp, _, text = entry.partition(b" ")
        if not (stamp[:4].isdigit() and stamp[4:5] == b"-" and stamp[10:11] == b"T"):
            # what a node says of a log that it cannot read has no time either
            return None if torn and not entry.startswith(_OF_NODES) else entry
        key = hash(entry)
        if known and known[key] > 0:
            known[key] -= 1
            return None
        second = stamp[:_SECOND]
        if second > self._second:
            self._last, self._last_second = self._this, self._second
            self._this, self._second = [], second
            self._zone = stamp[-6:] if stamp[-6:-5] in (b"+", b"-") else b"Z"
        (self._this if second == self._second else self._last).append(key)
        if self._since is not None or self._until is not None:
            at = nanoseconds(stamp)
            if self._since is not None and at < self._since:
                return None
            if self._until is not None and at >= self._until:
                return None
        return text


def _nanoseconds_of(when: datetime) -> int:
    """Returns a time (this machine's, if it has no zone) in nanoseconds since 1970, exactly."""
    past = when.astimezone(timezone.utc) - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return past // timedelta(microseconds=1) * 1000


_days: dict[bytes, int] = {}


def nanoseconds(stamp: bytes) -> int:
    """Returns a time as a cluster writes it, in nanoseconds since 1970.

    >>> nanoseconds(b"1970-01-02T00:00:01.000000005Z"), nanoseconds(b"1970-01-01T01:00:00+01:00")
    (86401000000005, 0)
    """
    day = _days.get(stamp[:10])
    if day is None:
        import calendar

        year, month, number = stamp[:10].split(b"-")
        day = calendar.timegm((int(year), int(month), int(number), 0, 0, 0))
        _days[stamp[:10]] = day
    clock = stamp[11:]
    offset = 0
    if not clock.endswith(b"Z"):
        sign = 1 if b"+" in clock else -1
        clock, _, zone = clock.partition(b"+" if sign > 0 else b"-")
        hours, _, minutes = zone.partition(b":")
        offset = sign * (int(hours) * 3600 + int(minutes or 0) * 60)
    whole, _, fraction = clock.rstrip(b"Z").partition(b".")
    hours, minutes, seconds = whole.split(b":")
    total = day + int(hours) * 3600 + int(minutes) * 60 + int(seconds) - offset
    return total * _NANO + int(fraction.ljust(9, b"0")[:9] or b"0")
