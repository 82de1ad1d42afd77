"""Names of runs, records and links in the store.

The name of a run's directory is the base32 of the run's id, so that any id is a valid name; older
TorchX releases decode it in the same way. If an id is too long or not valid Unicode, the name is
the base32 of an alias, and a file in the directory contains the id.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from torchx_specs.trackers.api import TrackerValueError

#: Longest name on common file systems, in bytes.
_MAX_NAME_BYTES = 255
_ALIAS = "torchx-sha256-"

# int(text, 32) decodes ten times as fast as base64.b32decode, but uses other digits. This table
# translates them, and maps every byte that is not base32 to "!", which int() rejects.
_DIGITS = dict(
    zip(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789abcdefghijklmnopqrstuv", strict=True)
)
_INT_DIGITS = bytes(_DIGITS.get(byte, ord("!")) for byte in range(256))
#: Valid numbers of padding characters in base32.
_PADDINGS = frozenset((0, 1, 3, 4, 6))


def encode(run_id: str) -> str:
    """Return the name of a run's directory.

    >>> encode("run"), decode(b"OJ2W4===")
    ('OJ2W4===', 'run')

    Raises:
        TrackerValueError: The id is empty, which would name the root.
    """
    if not run_id:
        raise TrackerValueError("the run id is empty")
    from base64 import b32encode

    return b32encode((alias(run_id) or run_id).encode()).decode("ascii")


def alias(run_id: str) -> str | None:
    """Return the alias of a run id, or None if the id does not need one."""
    try:
        data = run_id.encode()
        # An id that looks like an alias gets an alias too, so that it is not mistaken for the alias
        # of another id.
        if (len(data) + 4) // 5 * 8 <= _MAX_NAME_BYTES and not is_alias(run_id):
            return None
    except UnicodeEncodeError:  # lone surrogates, from environment variables that are not UTF-8
        data = run_id.encode("utf-8", "surrogatepass")
    from hashlib import sha256

    return _ALIAS + sha256(data).hexdigest()


def is_alias(run_id: str) -> bool:
    """Return whether a decoded name is an alias."""
    return run_id.startswith(_ALIAS)


def decode(name: bytes) -> str | None:
    """Decode the name of a directory to a run id; None for a name that is not base32."""
    bare = name.rstrip(b"=")
    padding = len(name) - len(bare)
    if len(name) % 8 or padding not in _PADDINGS:
        return None
    try:
        number = int(bare.translate(_INT_DIGITS) + b"0" * padding or b"0", 32)
        return number.to_bytes(len(name) // 8 * 5, "big")[: len(bare) * 5 // 8].decode()
    except ValueError:  # also UnicodeDecodeError
        return None


class RecordNames:
    """Generator of unique names for records; the names sort in the order of creation.

    A name begins with the time in nanoseconds. The rest distinguishes records that several
    processes write in the same nanosecond; older TorchX releases write only the time.

    Args:
        clock: Function that returns the time in nanoseconds since the epoch.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._last = 0

    def new(self) -> str:
        """Return a name that sorts after all earlier names of this process."""
        self._last = max(self._clock(), self._last + 1)
        return f"{self._last}-{os.urandom(8).hex()}"


record_names = RecordNames()


def records(names: Sequence[str]) -> list[str]:
    """Return the names of records, oldest first; names of other files are left out."""
    return sorted(name for name in names if name[0].isdigit())


_JSON_MARKER = "\x1f"


def encode_line(artifact_name: str | None) -> str:
    """Return the line for an artifact in a file of links; an empty line means the run as a whole.

    A name that cannot be read back from a plain line, for example because it contains a line break,
    is encoded as JSON after a marker.

    Raises:
        TrackerValueError: The name is empty.
    """
    if artifact_name is None:
        return ""
    if not artifact_name:
        raise TrackerValueError(
            "the artifact name of a source is empty; use None for the run as a whole"
        )
    is_single_line = artifact_name.splitlines() == [artifact_name] == [artifact_name.strip()]
    if is_single_line and not artifact_name.startswith(_JSON_MARKER) and _is_unicode(artifact_name):
        return artifact_name
    import json

    return _JSON_MARKER + json.dumps(artifact_name)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def decode_lines(text: str) -> list[str | None]:
    """Return the artifacts in a file of links, each once; None means the run as a whole.

    An empty file also means the run as a whole.
    """
    artifacts: dict[str | None, None] = {}
    for line in text.split("\n")[: -1 if text.endswith("\n") else None]:
        artifacts[_decode_line(line.removesuffix("\r"))] = None
    return list(artifacts) or [None]


def _decode_line(line: str) -> str | None:
    if line.startswith(_JSON_MARKER):
        import json

        try:
            return str(json.loads(line[1:]))
        except ValueError:
            return line
    return line if line.strip() else None
