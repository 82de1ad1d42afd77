"""Tags of jobs: those of ours, and an app's metadata as far as AWS takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from getpass import getuser

from torchx_specs.errors import RequestError
from torchx_specs.version import __version__

#: The release of TorchX that submitted it.
TAG_TORCHX_VER = "torchx.pytorch.org/version"
#: The app's name, as its AppDef has it.
TAG_TORCHX_APPNAME = "torchx.pytorch.org/app-name"
#: Who submitted it.
TAG_TORCHX_USER = "torchx.pytorch.org/user"

#: How many tags one resource has at most.
MOST_TAGS = 50
_LONGEST_KEY = 128
_LONGEST_VALUE = 256
_NOT_ALLOWED = re.compile(r"[^\w\s.:/=+\-@]")


def current_user() -> str:
    """Returns the name of who runs this; ``unknown`` where the system has none."""
    try:
        return getuser()
    except (KeyError, OSError):  # what it raises depends on the Python
        return "unknown"


def make_tags(app_name: str, user: str, metadata: Mapping[str, object]) -> dict[str, str]:
    """Returns the tags of a job.

    What a tag cannot hold becomes ``_``, and what is too long is cut. Metadata that is no text,
    number or truth value (overlays, for instance) is left out.

    Args:
        app_name: the app's name
        user: who submits
        metadata: the app's

    Raises:
        RequestError: more tags than AWS takes, or a key that is reserved
    """
    tags = {
        TAG_TORCHX_VER: __version__,
        TAG_TORCHX_APPNAME: tag_value(app_name),
        TAG_TORCHX_USER: tag_value(user),
    }
    problems = []
    for key, value in metadata.items():
        if not isinstance(value, (str, int, float)):
            continue
        name = _NOT_ALLOWED.sub("_", str(key))[:_LONGEST_KEY]
        if name.lower().startswith("aws:") or not name.strip():
            problems.append(f"metadata '{key}': AWS takes no tag of that name")
        tags[name] = tag_value(str(value))
    if len(tags) > MOST_TAGS:
        problems.append(
            f"{len(tags) - 3} entries of metadata: AWS takes {MOST_TAGS - 3} tags beside TorchX's"
        )
    if problems:
        raise RequestError(problems)
    return tags


def tag_value(text: str) -> str:
    """Returns a text as the value of a tag.

    >>> tag_value("a,b")
    'a_b'
    """
    return _NOT_ALLOWED.sub("_", text)[:_LONGEST_VALUE]
