"""The file ``outcome``, in which a job records a result or an exception.

The first line of the file is the header, in JSON. The pickled result or exception follows. The file
is replaced as a whole, so that header and data always belong together.
"""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, field

import cloudpickle

from torchx_functions.errors import NoResultError

OUTCOME = "outcome"
#: The job creates this file when it starts. The client creates it to cancel a job before its start.
CLAIM = "claim"
STARTED, CANCELLED = b"started", b"cancelled"


@dataclass
class Versions:
    """The versions of Python and cloudpickle in a job or in the client.

    Args:
        python: The version of Python.
        cloudpickle: The version of cloudpickle.
    """

    python: str = field(default_factory=platform.python_version)
    cloudpickle: str = cloudpickle.__version__

    def __str__(self) -> str:
        return f"Python {self.python} and cloudpickle {self.cloudpickle}"

    def reads(self, other: Versions) -> bool:
        """Return True if these versions can load data that the other versions have pickled."""
        return (
            self.python.split(".")[:2] == other.python.split(".")[:2]
            and self.cloudpickle.split(".")[0] == other.cloudpickle.split(".")[0]
        )


@dataclass
class Header:
    """The header of an outcome.

    Args:
        ok: Whether the function returned a result, and the result was pickled.
        versions: The versions in the job.
        type_name: The name of the exception's type.
        message: The message of the exception, or the reason why there is no result.
        traceback: The traceback, as text.
    """

    ok: bool
    versions: Versions
    type_name: str = ""
    message: str = ""
    traceback: str = ""

    def to_line(self) -> bytes:
        """Return the header as one line of JSON."""
        return json.dumps(asdict(self)).encode("ascii") + b"\n"


def split_outcome(content: bytes) -> tuple[Header, memoryview]:
    """Return the header and the pickled result or exception of an outcome; empty without one.

    Raises:
        NoResultError: Another version of torchx-functions wrote the outcome.
    """
    end = content.find(b"\n")
    fields = json.loads(content[:end])
    try:
        fields["versions"] = Versions(**fields["versions"])
        return Header(**fields), memoryview(content)[end + 1 :]
    except (TypeError, KeyError) as e:
        raise NoResultError(f"another version of torchx-functions wrote it: {e}") from None
