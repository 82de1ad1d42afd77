"""The double of CloudWatch Logs: log streams in memory, returned in pages."""

from __future__ import annotations

import bisect
import re
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from aws_double_wire import Call, ServiceError, now_ms, page

#: Largest size of an event, in bytes; the containers' log driver splits longer lines.
EVENT_BYTES = 262_118
_PAGE_BYTES = 1 << 20
_TOKEN = re.compile(r"([fb])/(\d+)/\w+\Z")


@dataclass
class _Stream:
    created: int
    times: list[int] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class Logs:
    """The double of CloudWatch Logs; methods with the name of an operation answer its requests.

    Attributes:
        quota: Largest number of GetLogEvents requests in a second.
    """

    def __init__(self) -> None:
        self.quota = 25
        self._requests: list[float] = []
        self._groups: dict[str, dict[str, _Stream]] = {}
        self._lock = threading.Lock()

    def create(self, group: str, stream: str) -> None:
        """Create a stream and its group."""
        with self._lock:
            self._groups.setdefault(group, {}).setdefault(stream, _Stream(now_ms()))

    def put(self, group: str, stream: str, message: str) -> None:
        """Write a line; an empty line is dropped, as in real containers."""
        if not message:
            return
        self.create(group, stream)
        with self._lock:
            found = self._groups[group][stream]
            found.times.append(max([now_ms(), *found.times[-1:]]))
            found.messages.append(message)

    def GetLogEvents(self, call: Call) -> dict[str, Any]:  # noqa: N802 - the operation's name
        params = call.params
        with self._lock:
            self._throttle()
            stream = self._stream(params)
            end = len(stream.times)
            if "endTime" in params:
                end = bisect.bisect_left(stream.times, params["endTime"])
            first = bisect.bisect_left(stream.times, params.get("startTime", 0))
            limit = params.get("limit", 10_000)
            direction, at = self._position(params, first, end)
            if direction == "f":
                low, high = at, _cut(stream, at, min(end, at + limit))
            else:
                low, high = max(first, at - limit), max(first, at)
            events = [
                {
                    "timestamp": stream.times[i],
                    "message": stream.messages[i],
                    "ingestionTime": stream.times[i],
                }
                for i in range(low, max(low, high))
            ]
        token = params.get("nextToken")
        forward = token if token and direction == "f" and not events else f"f/{high:020}/s"
        return {
            "events": events,
            "nextForwardToken": forward if direction == "f" else f"f/{max(low, high):020}/s",
            "nextBackwardToken": f"b/{low:020}/s",
        }

    def _throttle(self) -> None:
        """Raise an error if the requests of the last second exceed the quota."""
        now = time.monotonic()
        self._requests = [at for at in self._requests if at > now - 1]
        if len(self._requests) >= self.quota:
            raise ServiceError("ThrottlingException", "Rate exceeded")
        self._requests.append(now)

    def DescribeLogStreams(self, call: Call) -> dict[str, Any]:  # noqa: N802
        params = call.params
        with self._lock:
            group = self._group(params)
            prefix = params.get("logStreamNamePrefix", "")
            names = sorted(name for name in group if name.startswith(prefix))
            part, token = page(names, params.get("nextToken"), params.get("limit", 50))
            found = [_described(params["logGroupName"], n, group[n]) for n in part]
        return {"logStreams": found, "nextToken": token}

    def _group(self, params: dict[str, Any]) -> dict[str, _Stream]:
        group = self._groups.get(params.get("logGroupName", ""))
        if group is None:
            raise _missing("group")
        return group

    def _stream(self, params: dict[str, Any]) -> _Stream:
        stream = self._group(params).get(params["logStreamName"])
        if stream is None:
            raise _missing("stream")
        return stream

    def _position(self, params: dict[str, Any], first: int, end: int) -> tuple[str, int]:
        token = params.get("nextToken")
        if not token:
            return ("f", first) if params.get("startFromHead") else ("b", end)
        found = _TOKEN.match(token)
        if found is None:
            raise ServiceError("InvalidParameterException", "The specified nextToken is invalid.")
        return found[1], int(found[2])


def _missing(what: str) -> ServiceError:
    return ServiceError("ResourceNotFoundException", f"The specified log {what} does not exist.")


def _cut(stream: _Stream, low: int, high: int) -> int:
    """Return the end of a page: ``high``, or less if the page would have too many bytes."""
    room = _PAGE_BYTES
    for i in range(low, high):
        room -= len(stream.messages[i].encode()) + 26
        if room < 0 and i > low:
            return i
    return high


def _described(group: str, name: str, stream: _Stream) -> dict[str, Any]:
    found: dict[str, Any] = {
        "logStreamName": name,
        "creationTime": stream.created,
        "arn": f"arn:aws:logs:us-east-1:123456789012:log-group:{group}:log-stream:{name}",
        "storedBytes": 0,
    }
    if stream.times:
        found["firstEventTimestamp"] = stream.times[0]
        found["lastEventTimestamp"] = stream.times[-1]
        found["lastIngestionTime"] = stream.times[-1]
    return found
