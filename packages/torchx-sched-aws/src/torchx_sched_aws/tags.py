"""Tags of jobs: TorchX's own, and an app's metadata."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from getpass import getuser

from torchx_sched_aws.limits import maximum
from torchx_specs.version import __version__

#: Tag with the TorchX release that submitted the job.
TAG_TORCHX_VER = "torchx.pytorch.org/version"
#: Tag with the name of the app.
TAG_TORCHX_APPNAME = "torchx.pytorch.org/app-name"
#: Tag with the user who submitted the job.
TAG_TORCHX_USER = "torchx.pytorch.org/user"

#: Maximum number of tags of an AWS resource.
MAX_TAGS = maximum("Tags")
_NOT_ALLOWED = re.compile(r"[^\w\s.:/=+\-@]")


def current_user() -> str:
    """Return the name of the current user, or ``unknown`` if the system has none."""
    try:
        return getuser()
    except (KeyError, OSError):  # KeyError before Python 3.13
        return "unknown"


def make_tags(app_name: str, user: str, metadata: Mapping[str, object]) -> dict[str, str]:
    """Return the tags of a job.

    Characters that AWS does not allow in a tag become ``_``, and long texts are cut. Metadata that
    is not a string, number or boolean (for example an overlay) is left out.

    Args:
        app_name: Name of the app.
        user: Name of the user who submits the app.
        metadata: Metadata of the app.
    """
    tags = {
        TAG_TORCHX_VER: __version__,
        TAG_TORCHX_APPNAME: tag_value(app_name),
        TAG_TORCHX_USER: tag_value(user),
    }
    for key, value in metadata.items():
        if isinstance(value, (str, int, float)):
            tags[_NOT_ALLOWED.sub("_", str(key))[: maximum("Tags[].Key")]] = tag_value(str(value))
    return tags


def tag_problems(tags: Collection[str]) -> Iterator[str]:
    """Yield why AWS does not accept the names of a job's tags, one line each.

    Args:
        tags: The names of all tags, three of which are TorchX's own.
    """
    for name in tags:
        if name.lower().startswith("aws:") or not name.strip():
            yield f"'{name}' cannot be a tag: AWS reserves names that begin with 'aws:'"
    if len(tags) > MAX_TAGS:
        yield (
            f"{len(tags)} tags: AWS allows {MAX_TAGS} tags on a job, {MAX_TAGS - 3} besides"
            " TorchX's own"
        )


def tag_value(text: str) -> str:
    """Convert a text to a valid value of a tag.

    >>> tag_value("a,b")
    'a_b'
    """
    return _NOT_ALLOWED.sub("_", text)[: maximum("Tags[].Value")]
