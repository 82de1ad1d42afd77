"""How an :class:`~torchx_specs.model.status.AppStatus` is shown to people."""

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
_WRAP_AT = 80
# what torch's RPC wraps around the error of the worker it called
_RPC_WRAPPER = re.compile(r"(?P<msg_txt>\w+\('On WorkerInfo\(.+\):\n(?:.*\n)*?.*'\))")
_LINE_BEFORE_EXCEPTION = re.compile(r"(?P<line>[^\n]*)\nException.*", re.DOTALL)


def format_status(status: AppStatus, roles: Iterable[RoleStatus]) -> str:
    """Returns the text of :meth:`AppStatus.format`."""
    replicas = "".join(_format_role(role) for role in roles)
    lines = [
        "AppStatus:",
        f"    State: {status.state}",
        f"    Num Restarts: {status.num_restarts}",
        f"    Roles: {replicas}",
        f"    Msg: {status.msg}",
        f"    Structured Error Msg: {status.structured_error_msg}",
        f"    UI URL: {status.ui_url}",
        "    ",
    ]
    return "\n".join(lines)


def _format_role(role: RoleStatus) -> str:
    return "".join(
        _format_replica(replica) for replica in sorted(role.replicas, key=lambda r: r.id)
    )


def _format_replica(replica: ReplicaStatus) -> str:
    error, exit_code, hostname, timestamp = _error_of(replica)
    mark = "*" if replica.id == 0 else " "
    head = f"\n {mark}{replica.role}[{replica.id}]:{replica.state.name}"
    notes = []
    if exit_code is not None:
        notes.append(f"exitcode: {exit_code}")
    if replica.reason and replica.reason != f"exit code {exit_code}":
        notes.append(f"reason: {replica.reason}")
    if replica.node and replica.node != replica.hostname:
        notes.append(f"node: {replica.node}")
    if replica.restarts:
        notes.append(f"restarts: {replica.restarts}")
    if notes:
        head += f" ({', '.join(notes)})"
    if error is None:
        if not notes and replica.state.name in ("FAILED", "CANCELLED"):
            head += " (no reply file)"
        return head
    return (
        f"{head}\n        timestamp: {timestamp}\n        hostname: {hostname}"
        f"\n        error_msg: {_wrap(error)}"
    )


def _error_of(replica: ReplicaStatus) -> tuple[str | None, object, str, str]:
    """Returns message, exit code, host and local time of the error a replica left (message None if
    it left none).
    """
    payload = replica.structured_error_msg
    if not payload or payload == NONE:
        return None, replica.exit_code, replica.hostname, _NO_VALUE
    try:
        data: Any = json.loads(payload)
    except ValueError:
        return payload, replica.exit_code, replica.hostname, _NO_VALUE
    if not isinstance(data, dict) or "message" not in data:
        return payload, replica.exit_code, replica.hostname, _NO_VALUE
    inner = data["message"] if isinstance(data["message"], dict) else data
    extra = inner.get("extraInfo")
    stamp = extra.get("timestamp") if isinstance(extra, dict) else inner.get("timestamp")
    exit_code = inner.get("errorCode", replica.exit_code)
    message = _trim(str(inner.get("message", _NO_VALUE)))
    return (
        message,
        _NO_VALUE if exit_code is None else exit_code,
        replica.hostname,
        _local_time(stamp),
    )


def _local_time(stamp: object) -> str:
    import datetime

    try:
        return str(datetime.datetime.fromtimestamp(int(str(stamp))))
    except (ValueError, OverflowError, OSError):
        return _NO_VALUE


def _trim(message: str) -> str:
    if found := _RPC_WRAPPER.search(message):
        message = found["msg_txt"]
    if found := _LINE_BEFORE_EXCEPTION.search(message):
        message = found["line"]
    return message


def _wrap(text: str) -> str:
    """Breaks at the first blank after 80 characters, and indents what follows."""
    lines: list[str] = []
    start = 0
    while len(text) - start > _WRAP_AT and (cut := text.find(" ", start + _WRAP_AT)) >= 0:
        lines.append(text[start:cut])
        start = cut
    lines.append(text[start:])
    return ("\n" + " " * 15).join(lines)


def status_as_yaml(status: AppStatus) -> str:
    """Returns the text of ``repr(AppStatus)``: YAML that a safe loader reads, made without a YAML
    library.
    """
    data = asdict(status)
    data["state"] = f"{status.state.name} ({status.state.value})"
    try:
        data["structured_error_msg"] = json.loads(data["structured_error_msg"])
    except ValueError:
        pass
    for role in data["roles"]:
        for replica in role["replicas"]:
            replica["state"] = f"{replica['state'].name} ({replica['state'].value})"
    return "AppStatus:\n" + "\n".join(_yaml_lines(data, 1)) + "\n"


def _yaml_lines(value: Any, depth: int) -> list[str]:
    pad = "  " * depth
    lines: list[str] = []
    if isinstance(value, dict):
        for key in sorted(value):
            lines += _yaml_entry(f"{pad}{_yaml_scalar(str(key))}:", value[key], depth)
    else:
        for item in value:
            if isinstance(item, (dict, list)) and item:
                nested = _yaml_lines(item, depth + 1)
                lines.append(f"{pad}- {nested[0].lstrip()}")
                lines += nested[1:]
            else:
                lines.append(f"{pad}- {_yaml_scalar(item)}")
    return lines


def _yaml_entry(head: str, value: Any, depth: int) -> list[str]:
    if isinstance(value, dict) and value:
        return [head, *_yaml_lines(value, depth + 1)]
    if isinstance(value, list) and value:
        return [head, *_yaml_lines(value, depth)]
    return [f"{head} {_yaml_scalar(value)}"]


_PLAIN = re.compile(r"[A-Za-z_<(/][\w<>()/.,@+= :-]*\Z")
_YAML_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"})


def _yaml_scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _yaml_float(value)
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"  # those with something in them have lines
    text = str(value)
    if text == "":
        return "''"
    plain = (
        _PLAIN.match(text)
        and text.lower() not in _YAML_WORDS
        and ": " not in text
        and not text.endswith((":", " "))
    )
    return text if plain else _yaml_quoted(text)


def _yaml_float(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": ".nan", "inf": ".inf", "-inf": "-.inf"}[str(value)]
    text = repr(value)
    return text if "." in text else text.replace("e", ".0e")


def _yaml_quoted(text: str) -> str:
    # not JSON's escapes: they spell characters beyond U+FFFF as two
    return '"' + "".join(_yaml_escaped(c) for c in text) + '"'


def _yaml_escaped(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if " " <= c <= "~":
        return c
    code = ord(c)
    if code == 0x0A:
        return "\\n"
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
