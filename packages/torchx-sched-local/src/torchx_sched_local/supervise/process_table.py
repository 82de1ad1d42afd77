"""What the system says of its processes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

#: The variable by which descendants are recognised: tokens of replicas, one a line. Jobs within
#: jobs have one for each, the outermost first.
ENV_REPLICA = "TORCHX_LOCAL_REPLICA"

HAS_PROC = os.path.exists("/proc/self/stat")
if sys.platform == "darwin":  # pragma: no cover
    HAS_PROC = False
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Seen(NamedTuple):
    """What the system says of a process."""

    start: int
    parent: int
    group: int
    session: int
    state: str


def now() -> int:
    """Returns the time in the unit of :attr:`ProcessId.start`."""
    if HAS_PROC:
        return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS_PER_SECOND)
    return int(time.time())


def boot_id() -> str:
    """Returns an id of this run of the machine, empty if it has none."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def look(pid: int) -> Seen | None:
    """Returns what the system says of a process, None if there is none."""
    if not HAS_PROC:
        return _ps(pid).get(pid)
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _parse_stat(os.read(fd, 1024))
    except OSError:
        return None
    finally:
        os.close(fd)


def children() -> set[int]:
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children") as file:
            return set(map(int, file.read().split()))
    except OSError:
        return {pid for pid, seen in snapshot().items() if seen.parent == me}


def snapshot() -> dict[int, Seen]:
    """Returns all processes of the system."""
    if not HAS_PROC:
        return _ps()
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            seen = look(int(name))
            if seen is not None:
                table[int(name)] = seen
    return table


def read_tokens(pid: int) -> list[str]:
    """Returns the tokens in a process's environment; none if it may not be read."""
    try:
        fd = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        data = b""
        while block := os.read(fd, 1 << 17):
            data += block
    except OSError:
        return []
    finally:
        os.close(fd)
    key = ENV_REPLICA.encode() + b"="
    at = 0 if data.startswith(key) else data.find(b"\0" + key) + 1
    if at == 0 and not data.startswith(key):
        return []
    value = data[at + len(key) : data.find(b"\0", at) if b"\0" in data[at:] else None]
    return os.fsdecode(value).split("\n")


def with_token(environ: Mapping[str, str], token: str) -> str:
    """Returns the value of :data:`ENV_REPLICA` for a process started from ``environ``."""
    outer = environ.get(ENV_REPLICA)
    return f"{outer}\n{token}" if outer else token


def _parse_stat(data: bytes) -> Seen | None:
    # the name, in parentheses, may itself hold blanks and parentheses
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 20:
        return None
    return Seen(
        start=int(fields[19]),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        state=fields[0].decode(),
    )


def _ps(pid: int | None = None) -> dict[int, Seen]:
    """Asks ps, where there is no /proc; the session is unknown there."""
    import subprocess
    from datetime import datetime

    which = ["-A"] if pid is None else ["-p", str(pid)]
    # not lstart=: some implementations give a column after it to it
    command = ["ps", *which, "-o", "pid=", "-o", "ppid=", "-o", "pgid=", "-o", "stat=", "-o"]
    out = subprocess.run(
        [*command, "lstart="],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
        check=False,
    ).stdout.decode("ascii", "replace")
    table = {}
    for line in out.splitlines():
        words = line.split()
        try:
            started = datetime.strptime(" ".join(words[4:9]), "%a %b %d %H:%M:%S %Y")
            number, parent, group = map(int, words[:3])
        except ValueError:
            continue
        table[number] = Seen(int(started.timestamp()), parent, group, 0, words[3][:1])
    return table
