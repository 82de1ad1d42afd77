"""The journal: this user's submissions from this machine, one file for each submission.

The files are in ``$TORCHX_HOME/journal`` (default: ``~/.torchx/journal``), and have the mode 0600.
The name of a file begins with the time of the submission, so that the newest submission is found
without opening the other files. ``TORCHX_JOURNAL=0`` turns the journal off.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from torchx_kit.atomic_files import write_atomically
from torchx_kit.home import home_path
from torchx_kit.trust import open_trusted
from torchx_specs.errors import SerializationError, one_line
from torchx_specs.model.app import AppDef, AppDryRunInfo, Role
from torchx_specs.model.app import RunInput as RunInput
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.workspace.spec import Workspace

logger = logging.getLogger(__name__)

#: Name of the variable that turns the journal off if its value is ``0``.
ENV_TORCHX_JOURNAL = "TORCHX_JOURNAL"
#: The number of submissions that are kept; older ones are deleted.
MAX_SUBMISSIONS = 10_000
#: The number of newest submissions that show which schedulers and sessions the user needs.
RECENT = 100
#: The largest size of a file, in bytes. An app that is too large is left out of its file.
MAX_BYTES = 128 * 1024
_VERSION = 1
# How many entries a process writes before it deletes old ones again: each time takes milliseconds.
_WRITES = 100
_written = itertools.count()
_MAX_COMMAND = 4000
# The time in nanoseconds, a part of the app's id, and a random number.
_FILE = re.compile(r"\d{20}-.*-[0-9a-f]{8}\.json\Z")
# Set inside of a hook of Git, and then name the hook's repository instead of the folder's.
_REPOSITORY_VARIABLES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE")
# How long Git may take in a folder, which may be on a network. In seconds.
_GIT_SECONDS = 10.0
# At the end of the name of an image or folder; with a number if a job has changed the folder.
_DIGEST = re.compile(r"([0-9a-f]{12,64})(?:-\d+)?\Z")


@dataclass(frozen=True)
class Submission:
    """One submission in the journal.

    Args:
        handle: The app.
        name: Name of the app.
        time: When the app was submitted, in UTC.
        command: The command line of the submitting process, with secrets masked.
        folder: The working directory of the submitting process.
        cfg: The options of the scheduler, as they were given.
        app: The app as a document of :mod:`torchx_specs.formats.serialize`; None if it is missing.
        app_missing: Why the app is missing, or an empty string.
        workspace: The workspace that was given for the first role,
            ``{local path: remote sub-directory}``, or None.
        workspace_required: Whether a scheduler without workspaces must report an error.
        workspace_digest: Digest of the workspace's files and of the image, or None if unknown.
        git_commit: The commit that was checked out in the workspace, or None.
        parent_run_id: The id of the parent run, or None.
        component: The component that returned the app; empty if it is unknown.
        arguments: The arguments of the component, as on a command line.
        builds: The images and folders that were built from the workspaces, as the roles' metadata
            has them, by role; only those whose names have a digest, so that they stay the same.
        runs_on: The scheduler of the apps, for a group of apps such as a sweep; otherwise empty.
    """

    handle: str
    name: str
    time: datetime
    command: tuple[str, ...] = ()
    folder: str = ""
    cfg: dict[str, Any] = field(default_factory=dict)
    app: dict[str, Any] | None = None
    app_missing: str = ""
    workspace: dict[str, str] | None = None
    workspace_required: bool = True
    workspace_digest: str | None = None
    git_commit: str | None = None
    parent_run_id: str | None = None
    component: str = ""
    arguments: tuple[str, ...] = ()
    builds: dict[str, dict[str, str]] = field(default_factory=dict)
    runs_on: str = ""

    @property
    def scheduler(self) -> str:
        """Name of the scheduler."""
        return parse_app_handle(self.handle).scheduler_backend

    @property
    def app_id(self) -> str:
        """The app's id in its scheduler."""
        return parse_app_handle(self.handle).app_id


def journal_folder() -> str:
    """Return the path of the journal, which may not exist."""
    return home_path("journal")


# -- writing an entry


class JournalEntry:
    """The entry of one submission, which is written before the submission.

    If the journal is turned off, the methods do nothing. If it cannot be written, they only log a
    warning, because the submission does not depend on the journal.

    Args:
        run_input: The input of the dry run.
        info: The dry run that is submitted.
    """

    def __init__(self, run_input: RunInput, info: AppDryRunInfo[Any]) -> None:
        self._run_input = run_input
        self._info = info
        self._data: dict[str, Any] = {}
        self._handle = self._path = ""

    def write(self, handle: str) -> None:
        """Write the entry. Sometimes, delete all but the newest :data:`MAX_SUBMISSIONS` entries.

        Args:
            handle: The app. If it differs from the handle of an earlier call, the new entry
                replaces the earlier one.
        """
        if handle == self._handle or not journal_is_on():
            return
        earlier, self._handle = self._path, handle
        with _logged(handle):
            self._data = self._data or _entry(self._run_input, self._info)
            self._path = _write(handle, {**self._data, "handle": handle})
            _remove(earlier)

    def remove(self) -> None:
        """Remove the entry, because the app was not submitted."""
        _remove(self._path)
        self._handle = self._path = ""


def record_group(
    handle: str, component: str, arguments: Sequence[str], scheduler: str, cfg: Mapping[str, Any]
) -> None:
    """Add the entry of a group of apps, such as a sweep; the entry has no app.

    Args:
        handle: The handle of the group, which is not that of an app.
        component: The component that returned the apps.
        arguments: The arguments that all apps share.
        scheduler: The scheduler of the apps.
        cfg: The options of the scheduler.
    """
    if not journal_is_on():
        return
    with _logged(handle):
        call = {"component": component, "arguments": list(arguments), "runs_on": scheduler}
        missing = {"app": None, "app_missing": "it has several apps"}
        common = _common_entry(component, cfg)
        _write(handle, {**common, **call, **missing, "handle": handle})


@contextlib.contextmanager
def _logged(handle: str) -> Iterator[None]:
    """Log a warning if an entry cannot be written."""
    try:
        yield
    except Exception as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else e
        logger.warning(
            "the journal %s has no entry for %s: %s; 'torchx history' and '@1' do not find it",
            journal_folder(),
            handle,
            reason,
        )


def _remove(path: str) -> None:
    if path:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _entry(run_input: RunInput, info: AppDryRunInfo[Any]) -> dict[str, Any]:
    app, workspace = run_input.app, run_input.workspace
    if isinstance(workspace, str):
        workspace = Workspace.from_str(workspace)
    used = workspace or next((role.workspace for role in app.roles if role.workspace), None)
    folder = next(iter(used.projects), "") if used else ""
    document, missing = _app_document(app)
    call = run_input.call
    builds = _builds(info.app)
    return {
        **_common_entry(app.name, run_input.cfg),
        "app": document,
        "app_missing": missing,
        "workspace": dict(workspace.projects) if workspace else None,
        "workspace_required": workspace.required if workspace else True,
        "workspace_digest": next(filter(None, map(_digest, builds.values())), None),
        "builds": builds,
        "git_commit": checked_out_commit(os.path.expanduser(folder) or os.curdir),
        "parent_run_id": run_input.parent_run_id,
        "component": call.component if call else "",
        "arguments": list(call.arguments) if call else [],
    }


def checked_out_commit(folder: str) -> str | None:
    """Return the commit that is checked out in a folder or in one of its parents.

    The result is the same if files have uncommitted changes.

    Args:
        folder: Any folder.

    Returns:
        The commit, or None if Git is not installed or does not answer, the folder is not in a
        repository of this user, or the repository has no commit.
    """
    import subprocess

    command = ["git", "-C", folder, "rev-parse", "--verify", "--quiet", "HEAD"]
    environment = {k: v for k, v in os.environ.items() if k not in _REPOSITORY_VARIABLES}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def _common_entry(name: str, cfg: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "name": name,
        "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "command": _command(),
        "folder": _working_directory(),
        "cfg": dict(cfg),
    }


def _app_document(app: AppDef) -> tuple[dict[str, Any] | None, str]:
    """Return the app as a document and ``""``, or None and the reason why there is no document."""
    from torchx_specs.formats.serialize import to_dict

    try:
        return to_dict(app), ""
    except SerializationError as e:
        return None, one_line(e)[:_MAX_COMMAND]


def _builds(app: AppDef | None) -> dict[str, dict[str, str]]:
    from torchx_specs.workspace.api import METADATA_KEY

    builds = {}
    for role in app.roles if app is not None else ():
        build = _build(role.metadata.get(METADATA_KEY))
        if build is not None and _digest(build):
            builds[role.name] = build
    return builds


def _digest(build: Mapping[str, str]) -> str | None:
    found = _DIGEST.search(build["image"])
    return found[1] if found else None


def _build(data: Any) -> dict[str, str] | None:
    """Return the build in a role's metadata or in an entry; None if it is malformed."""
    if not isinstance(data, Mapping) or not {"type", "base", "image"} <= data.keys():
        return None
    return {str(key): str(value) for key, value in data.items()}


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # the directory was deleted
        return ""


def _command() -> list[str]:
    """Return the command line of this process, with secrets masked, and shortened if it is long."""
    from torchx_specs.redaction import masked, masked_value

    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "python"
    words = ["torchx" if program == "__main__.py" else program]
    for word in masked(sys.argv[1:]):
        name, equals, value = word.partition("=")
        words.append(f"{name}={masked_value(name, value)}" if equals else word)
    while len(words) > 1 and sum(map(len, words)) > _MAX_COMMAND:
        words.pop()
    return words


def _write(handle: str, entry: dict[str, Any]) -> str:
    """Write an entry to a new file, and return the path of the file."""
    data = _to_json(entry)
    if len(data) > MAX_BYTES:
        entry["app"], entry["app_missing"] = None, f"it needs more than {MAX_BYTES >> 10} KB"
        entry["component"], entry["arguments"] = "", []
        data = _to_json(entry)
        if len(data) > MAX_BYTES:
            raise ValueError(f"the entry needs more than {MAX_BYTES >> 10} KB")
    folder = journal_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    name = f"{time.time_ns():020d}-{_file_part(handle)}-{os.urandom(4).hex()}.json"
    path = os.path.join(folder, name)
    write_atomically(path, data)
    if next(_written) % _WRITES == 0:
        for old in _file_names(folder)[MAX_SUBMISSIONS:]:
            _remove(os.path.join(folder, old))
    return path


def _to_json(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry, default=str).encode()


def _file_part(handle: str) -> str:
    """Return the part of a file's name that depends on the app's id."""
    app_id = parse_app_handle(handle).app_id
    return re.sub(r"[^A-Za-z0-9._]", "_", app_id)[:80]


def journal_is_on() -> bool:
    """Return whether submissions are recorded."""
    return os.environ.get(ENV_TORCHX_JOURNAL) != "0"


# -- reading entries


def submissions(limit: int | None = None) -> Iterator[Submission]:
    """Yield the submissions in the journal, the newest first; skip damaged files.

    Args:
        limit: The largest number of files that are read; None means no limit.
    """
    folder = journal_folder()
    for name in _file_names(folder)[:limit]:
        found = _read(os.path.join(folder, name))
        if found is not None:
            yield found


def find_submission(handle: str) -> Submission | None:
    """Return the submission of an app, or None if it is not in the journal.

    Args:
        handle: The app; its session is ignored.
    """
    return submission_finder()(handle)


def submitted_roles(handle: str) -> list[Role]:
    """Return the roles of an app in the journal; an empty list if the journal lacks them.

    Args:
        handle: The app; its session is ignored.
    """
    from torchx_specs.formats.serialize import from_dict

    found = find_submission(handle)
    try:
        return from_dict(found.app).roles if found is not None and found.app else []
    except SerializationError:  # a later version may have written the entry
        return []


def submission_finder() -> Callable[[str], Submission | None]:
    """Return a function like :func:`find_submission`, for many calls: it lists the folder once."""
    folder = journal_folder()
    names: dict[str, list[str]] = {}
    for name in _file_names(folder):
        names.setdefault(name[21:-14], []).append(name)

    def find(handle: str) -> Submission | None:
        wanted = parse_app_handle(handle)
        for name in names.get(_file_part(handle), ()):
            found = _read(os.path.join(folder, name))
            if found is not None and (found.scheduler, found.app_id) == (
                wanted.scheduler_backend,
                wanted.app_id,
            ):
                return found
        return None

    return find


def numbers_of(handles: Iterable[str]) -> dict[str, int]:
    """Return the N of ``@N`` of each app that is in the journal, 1 for the newest submission.

    Args:
        handles: Handles as they are in the journal.
    """
    wanted = set(handles)
    found: dict[str, int] = {}
    entries = enumerate(submissions(), 1) if wanted else ()
    for number, submission in entries:
        if submission.handle in wanted:
            found.setdefault(submission.handle, number)
            if len(found) == len(wanted):
                break
    return found


def numbered_submission(text: str) -> Submission | None:
    """Return the submission ``@N``, the newest for ``@1``; None if there is none."""
    return numbered_submissions([text]).get(text)


def numbered_submissions(texts: Iterable[str]) -> dict[str, Submission]:
    """Return the submission of each ``@N`` that has one, the newest for ``@1``.

    Args:
        texts: Texts of which some have the form ``@N``.
    """
    matches = {text: re.match(r"@(\d{1,9})\Z", text) for text in texts}
    numbers = {text: int(match[1]) for text, match in matches.items() if match}
    newest = list(itertools.islice(submissions(), max(numbers.values(), default=0)))
    return {text: newest[n - 1] for text, n in numbers.items() if 0 < n <= len(newest)}


def missing_submissions() -> str:
    """Return that old submissions were deleted, for a message; empty if the journal has all."""
    if len(_file_names(journal_folder())) < MAX_SUBMISSIONS:
        return ""
    return f"the journal keeps the newest {MAX_SUBMISSIONS:,} submissions, and deletes older ones"


def _file_names(folder: str) -> Sequence[str]:
    """Return the names of the journal's files, the newest first."""
    try:
        return sorted(filter(_FILE.match, os.listdir(folder)), reverse=True)
    except OSError:
        return []


def _read(path: str) -> Submission | None:
    """Return the submission in a file, or None if the file is damaged or cannot be read."""
    try:
        with open_trusted(path) as file:
            return _parse(json.loads(file.read(MAX_BYTES + 1)))
    except (OSError, ValueError, RecursionError):
        return None


def _parse(data: Any) -> Submission | None:
    """Return the submission of an entry, or None for a missing field or another format version.

    Raises:
        ValueError: The handle or the time is malformed.
    """
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        return None
    handle, name, when = data.get("handle"), data.get("name"), data.get("time")
    if not (isinstance(handle, str) and isinstance(name, str) and isinstance(when, str)):
        return None
    parse_app_handle(handle)
    moment = datetime.fromisoformat(when)
    return Submission(
        handle=handle,
        name=name,
        time=moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc),
        command=tuple(map(str, _of(list, data.get("command")) or ())),
        folder=_of(str, data.get("folder")) or "",
        cfg=_of(dict, data.get("cfg")) or {},
        app=_of(dict, data.get("app")),
        app_missing=_of(str, data.get("app_missing")) or "",
        workspace=_of(dict, data.get("workspace")),
        workspace_required=data.get("workspace_required") is not False,
        workspace_digest=_of(str, data.get("workspace_digest")),
        git_commit=_of(str, data.get("git_commit")),
        parent_run_id=_of(str, data.get("parent_run_id")),
        component=_of(str, data.get("component")) or "",
        arguments=tuple(map(str, _of(list, data.get("arguments")) or ())),
        builds={
            str(name): build
            for name, data in (_of(dict, data.get("builds")) or {}).items()
            if (build := _build(data)) is not None
        },
        runs_on=_of(str, data.get("runs_on")) or "",
    )


def _of(type_: type, value: Any) -> Any:
    return value if isinstance(value, type_) else None
