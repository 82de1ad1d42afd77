"""The names of a copy's data in a log sink.

``SCHEDULER/SESSION/APP/app.json`` describes the app. The lines of a replica are in
``SCHEDULER/SESSION/APP/ROLE/INDEX/STREAM-GENERATION-LINE.log``. Each of these segments has complete
lines; LINE is the number of lines of the log before the segment. A new generation begins when the
scheduler's log is not a continuation of the copy, for example because the log was rotated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from torchx_specs.model.handles import parse_app_handle

if TYPE_CHECKING:
    from torchx_specs.plugins.factories import LogSink

#: The names of streams in segments. ``combined`` contains both streams.
STREAMS = ("combined", "stdout", "stderr")
_SEGMENT = re.compile(
    rf"(?P<stream>{'|'.join(STREAMS)})-(?P<generation>\d{{4}})-(?P<first>\d{{12}})\.log"
)


class Segment(NamedTuple):
    """A segment of the copy of a replica's log; segments sort in the order of their lines.

    Attributes:
        generation: How many times the log was not a continuation of the copy.
        first: The number of lines of the log before this segment.
        name: The name of the segment in the sink.
    """

    generation: int
    first: int
    name: str


def app_folder(app_handle: str) -> str:
    """Return the folder of an app's copy."""
    return "/".join(map(_part, parse_app_handle(app_handle)))


def replica_folder(folder: str, role: str, index: int) -> str:
    """Return the folder of a replica's copy."""
    return f"{folder}/{_part(role)}/{index}"


def segment_name(folder: str, stream: str, generation: int, first: int) -> str:
    """Return the name of a segment in the folder of a replica."""
    return f"{folder}/{stream}-{generation:04d}-{first:012d}.log"


def segments(names: Iterable[str], folder: str, stream: str) -> list[Segment]:
    """Return the segments of one stream of a replica, in the order of their lines.

    Args:
        names: Names in the sink.
        folder: The folder of the replica.
        stream: The stream.
    """
    found = []
    for name in names:
        parent, _, file = name.rpartition("/")
        match = _SEGMENT.fullmatch(file) if parent == folder else None
        if match is not None and match["stream"] == stream:
            found.append(Segment(int(match["generation"]), int(match["first"]), name))
    return sorted(found)


def split_lines(data: bytes) -> list[bytes]:
    r"""Return the complete lines of a segment, each with its ``\n``."""
    return [line + b"\n" for line in data.split(b"\n")[:-1]]


def _part(text: str) -> str:
    """Return a text quoted as one part of a name: without a slash, and not "", ``.`` or ``..``."""
    part = quote(text, safe="")
    return part.replace(".", "%2E") if not part.strip(".") and part else part or "_"


@dataclass
class AppRecord:
    """The description of an app in its copy, ``app.json``.

    Args:
        handle: The app.
        name: Name of the app.
        roles: The number of replicas by role.
        streams: The streams that are saved.
        state: The state of the app at its end; None until the copy is complete.
        failed: The replicas that failed, as role and index; empty until the copy is complete.
        complete: Whether the app has ended and the copy has all lines.
    """

    handle: str
    name: str
    roles: dict[str, int]
    streams: list[str]
    state: str | None = None
    failed: list[tuple[str, int]] = field(default_factory=list)
    complete: bool = False

    def write(self, sink: LogSink, folder: str) -> None:
        """Store the record."""
        text = json.dumps({"version": 1, **asdict(self)}, indent=1)
        sink.write(f"{folder}/app.json", text.encode())


def read_record(sink: LogSink, folder: str) -> AppRecord | None:
    """Return the record of an app; None if the sink has no valid one."""
    try:
        data = sink.read(f"{folder}/app.json")
    except FileNotFoundError:
        return None
    try:
        return _parse(json.loads(data))
    except (ValueError, KeyError, TypeError):
        return None


def _parse(data: Mapping[str, object]) -> AppRecord:
    roles, streams, failed = data["roles"], data["streams"], data["failed"]
    if not (isinstance(roles, dict) and isinstance(streams, list) and isinstance(failed, list)):
        raise ValueError("not a record")
    return AppRecord(
        handle=str(data["handle"]),
        name=str(data["name"]),
        roles={str(role): int(count) for role, count in roles.items()},
        streams=[stream for stream in STREAMS if stream in streams],
        state=None if data["state"] is None else str(data["state"]),
        failed=[(str(role), int(index)) for role, index in failed],
        complete=data["complete"] is True,
    )
