"""The text of an :class:`~torchx_specs.model.status.AppStatus`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from torchx_specs.model.constants import NONE

if TYPE_CHECKING:
    from torchx_specs.model.status import AppStatus, ReplicaStatus, RoleStatus

_NO_VALUE = "<N/A>"
_TIMES = ("submitted", "started", "ended")
_INDENT = "\n" + " " * 15
# A line breaks at the first blank after 80 characters; the next line begins with that blank.
_LINE = re.compile(r".{80}[^ ]*|.+", re.DOTALL)
# torch's RPC wraps the error of a worker in a text. The first line of this text matches the first
# pattern and ends with "):"; the last line ends with "')".
_RPC_HEAD = re.compile(r"\b\w+\('On WorkerInfo\(")
_RPC_END = re.compile(r"^.*'\)", re.MULTILINE)


def format_status(status: AppStatus, roles: Iterable[RoleStatus]) -> str:
    """Return the text of :meth:`AppStatus.format`."""
    replicas = "".join(
        format_replica(replica)
        for role in roles
        for replica in sorted(role.replicas, key=lambda replica: replica.id)
    )
    return (
        f"AppStatus:\n    State: {status.state}\n    Num Restarts: {status.num_restarts}"
        f"\n    Roles: {replicas}\n    Msg: {status.msg}"
        f"\n    Structured Error Msg: {status.structured_error_msg}"
        f"\n    UI URL: {status.ui_url}\n    "
    )


def format_replica(replica: ReplicaStatus) -> str:
    """Return the text of one replica, in which a newline precedes each line."""
    error, exit_code, timestamp = error_of(replica)
    recognized = error != replica.structured_error_msg
    mark = "*" if replica.id == 0 else " "
    head = f"\n {mark}{replica.role}[{replica.id}]:{replica.state.name}"
    facts = {
        "exitcode": exit_code,
        "reason": replica.reason if replica.reason != f"exit code {exit_code}" else None,
        "node": replica.node if replica.node != replica.hostname else None,
        "restarts": replica.restarts or None,
    }
    notes = [f"{name}: {fact}" for name, fact in facts.items() if fact not in (None, "")]
    if notes:
        head += f" ({', '.join(notes)})"
    if error is None:
        if not notes and replica.state.name in ("FAILED", "CANCELLED"):
            head += " (no reply file)"
        return head
    return (
        f"{head}\n        timestamp: {timestamp}\n        hostname: {replica.hostname}"
        f"\n        error_msg: {_INDENT.join(_LINE.findall(error)) if recognized else error}"
    )


def error_of(replica: ReplicaStatus) -> tuple[str | None, object, str]:
    """Return message (None if there is no error), exit code and local time of a replica's error."""
    payload = replica.structured_error_msg
    if not payload or payload == NONE:
        return None, replica.exit_code, _NO_VALUE
    try:
        data: Any = json.loads(payload)
    except (ValueError, RecursionError):
        data = None
    message = data.get("message") if isinstance(data, dict) else None
    inner = message if isinstance(message, dict) else data
    if not isinstance(inner, dict) or not isinstance(inner.get("message"), str):
        return payload, replica.exit_code, _NO_VALUE
    extra = inner.get("extraInfo")
    timestamp = extra.get("timestamp") if isinstance(extra, dict) else inner.get("timestamp")
    exit_code = inner.get("errorCode", replica.exit_code)
    message = _trim(str(inner.get("message", _NO_VALUE)))
    return message, _NO_VALUE if exit_code is None else exit_code, _local_time(timestamp)


def _local_time(timestamp: object) -> str:
    import datetime

    try:
        return str(datetime.datetime.fromtimestamp(int(str(timestamp))))
    except (ValueError, OverflowError, OSError):
        return _NO_VALUE


def _trim(message: str) -> str:
    """Remove the RPC wrapper; if a later line begins with "Exception", keep only the line before.

    The message may be long and hostile, so the time must be linear in its length.
    """
    lines = message.split("\n")
    for i, line in enumerate(lines):
        head = _RPC_HEAD.search(line) if line.endswith("):") else None
        if head:
            rest = "\n".join(lines[i + 1 :])
            end = _RPC_END.search(rest)
            if end:
                message = f"{line[head.start() :]}\n{rest[: end.end()]}"
            break
    before, exception, _ = message.partition("\nException")
    return before.rpartition("\n")[2] if exception else message


def status_as_yaml(status: AppStatus) -> str:
    """Return ``repr(AppStatus)`` as YAML; without PyYAML, as JSON, which is also valid YAML."""
    from torchx_specs.formats.documents import YamlMissingError, dump_yaml

    # Without the times, the text has the keys of older releases.
    data = asdict(
        status,
        dict_factory=lambda fields: {
            k: repr(v) if k == "state" else v for k, v in fields if k not in _TIMES
        },
    )
    try:
        data["structured_error_msg"] = json.loads(data["structured_error_msg"])
    except (ValueError, RecursionError):
        pass
    try:
        return dump_yaml({"AppStatus": dict(sorted(data.items()))})
    except YamlMissingError:
        return json.dumps({"AppStatus": data}, indent=2)
