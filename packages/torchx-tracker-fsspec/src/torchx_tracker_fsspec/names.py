"""How runs, records and links are named in the store.

A run's folder is named by the base32 of its id, so that any id is a safe name; older tools decode
that name. An id that base32 would make longer than a file name can be, or that is no valid Unicode,
has an alias for its name instead, and stands in a file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from itertools import count

from torchx_specs.trackers.api import TrackerValueError

#: The longest name that common file systems take, in bytes.
_LONGEST = 255
_ALIAS = "torchx-sha256-"

# int() reads base 32 in C, with other digits; whatever is no base32 digit becomes one that int()
# refuses.
_BASE32 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_INT_DIGITS = bytearray(b"!" * 256)
for _standard, _digit in zip(_BASE32, b"0123456789abcdefghijklmnopqrstuv", strict=True):
    _INT_DIGITS[_standard] = _digit
#: How much padding a base32 name can have.
_PADDINGS = frozenset((0, 1, 3, 4, 6))


def encode(run_id: str) -> str:
    """Returns the name of a run's folder.

    >>> encode("run"), decode([b"OJ2W4==="])
    ('OJ2W4===', ['run'])

    Raises:
        TrackerValueError: the id is empty, and would name the root
    """
    if not run_id:
        raise TrackerValueError("a run needs an id, got an empty one")
    from base64 import b32encode

    return b32encode((alias(run_id) or run_id).encode()).decode("ascii")


def alias(run_id: str) -> str | None:
    """Returns what stands for an id in the name of its folder, None if that is the id itself."""
    try:
        data = run_id.encode()
        # an alias itself is an id that needs one: nothing may be taken for another run's
        if (len(data) + 4) // 5 * 8 <= _LONGEST and not is_alias(run_id):
            return None
    except UnicodeEncodeError:  # lone surrogates: bytes of the environment that are no UTF-8
        data = run_id.encode("utf-8", "surrogatepass")
    from hashlib import sha256

    return _ALIAS + sha256(data).hexdigest()


def is_alias(run_id: str) -> bool:
    """Whether what a folder's name says is an alias."""
    return run_id.startswith(_ALIAS)


def decode(names: Sequence[bytes]) -> list[str | None]:
    """Returns the ids in names of folders, None for a folder that is not a run's.

    All names are decoded at once, as one number; one by one, 10,000 of them take five times as
    long.
    """
    stripped = [name.rstrip(b"=") for name in names]
    padded = b"".join(names).replace(b"=", b"A").translate(bytes(_INT_DIGITS))
    try:
        if any(
            len(name) % 8 or len(name) - len(bare) not in _PADDINGS
            for name, bare in zip(names, stripped, strict=True)
        ):
            raise ValueError("not base32")
        data = int(padded or b"0", 32).to_bytes(len(padded) // 8 * 5, "big")
        ids: list[str | None] = []
        begin = 0
        for name, bare in zip(names, stripped, strict=True):
            ids.append(str(data[begin : begin + len(bare) * 5 // 8], "utf-8"))
            begin += len(name) // 8 * 5
        return ids
    except ValueError:  # UnicodeDecodeError is one
        if len(names) <= 1:
            return [None]
        half = len(names) // 2
        return decode(names[:half]) + decode(names[half:])


class RecordNames:
    """Names for records: in the order of their making, and never the same twice.

    A name begins with the time in nanoseconds, like those of older tools, which are nothing else.
    Processes that write in the same nanosecond differ in what follows.
    """

    def __init__(self) -> None:
        self._process = 0
        self._token = ""
        self._last = 0
        self._count = count()

    def new(self) -> str:
        """Returns a name that sorts after all that this process has made."""
        process = os.getpid()
        if process != self._process:  # after a fork too
            self._process = process
            self._token = f"{process:x}-{os.urandom(6).hex()}"
        self._last = max(time.time_ns(), self._last + 1)
        return f"{self._last}-{self._token}-{next(self._count):x}"


record_names = RecordNames()


def records(names: Sequence[str]) -> list[str]:
    """Returns those names that are records', the oldest first; others' files are left out."""
    return sorted(name for name in names if name[0].isdigit())


_LINE_MARK = "\x1f"


def encode_line(artifact_name: str | None) -> str:
    """Returns the line for an artifact in a file of links; that of no artifact is empty.

    A name that would not survive as a line is kept as JSON behind a mark.

    Raises:
        TrackerValueError: the name is empty
    """
    if artifact_name is None:
        return ""
    if not artifact_name:
        raise TrackerValueError(
            "the artifact of a source has an empty name; None means no artifact"
        )
    whole = artifact_name.splitlines() == [artifact_name] == [artifact_name.strip()]
    if whole and not artifact_name.startswith(_LINE_MARK) and _is_unicode(artifact_name):
        return artifact_name
    import json

    return _LINE_MARK + json.dumps(artifact_name)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def decode_lines(text: str) -> list[str | None]:
    """Returns the artifacts in a file of links, None for the run as a whole; each once.

    A file without lines links the run as a whole.
    """
    artifacts: dict[str | None, None] = {}
    for line in text.split("\n")[: -1 if text.endswith("\n") else None]:
        artifacts[_decode_line(line.removesuffix("\r"))] = None
    return list(artifacts) or [None]


def _decode_line(line: str) -> str | None:
    if line.startswith(_LINE_MARK):
        import json

        try:
            return str(json.loads(line[1:]))
        except ValueError:
            return line
    return line if line.strip() else None
