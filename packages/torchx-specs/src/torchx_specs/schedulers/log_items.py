"""The items of a log, its streams, and how many logs are followed at the same time."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

#: The role and the index of a replica.
Replica = tuple[str, int]
#: A replica, and either lines of its log or the error that ended its log.
Block = tuple[Replica, "Iterable[str] | Exception"]
#: How many logs are followed at the same time, if each needs a thread.
MAX_FOLLOWED = 256


class Stream(str, Enum):
    """An output stream of a replica: standard output, standard error, or both combined."""

    STDOUT = "stdout"
    STDERR = "stderr"
    COMBINED = "combined"

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class PartialLine(str):
    r"""A piece of a line whose end was not yet written.

    The next item of the same replica continues the line. The first item that is not a
    ``PartialLine`` is the rest of the line; the rest may be empty. The items of a log together
    contain each character once. A piece does not end within a character or an escape sequence, and
    does not end with ``\r``.
    """

    __slots__ = ()
