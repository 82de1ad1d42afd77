"""The files of a workspace, and their digest."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import IO, TYPE_CHECKING, NamedTuple

from torchx_kit.workspace.digests import FileDigests, open_listed, read_chunks, stat_key
from torchx_kit.workspace.ignore import ROOT, TORCHX_IGNORE, IgnoreRules
from torchx_kit.workspace.secret_files import looks_secret, warn_left_out
from torchx_kit.workspace.walk import (
    is_local,
    read_error,
    read_ignore_rules,
    walk,
)
from torchx_specs.errors import WorkspaceError, one_line

if TYPE_CHECKING:
    from io import FileIO

    from fsspec import AbstractFileSystem

    from torchx_specs.workspace.spec import Workspace

#: The mode of files on file systems without modes.
_DEFAULT_MODE = 0o644
_LINK_MODE = 0o777
# The setting prevents Git from starting a program that the repository's configuration names.
_LIST = "git -c core.fsmonitor=false ls-files -z --others --ignored --exclude-standard --directory"


class WorkspaceFile(NamedTuple):
    """A file or a symbolic link of a workspace."""

    path: str
    """The path in the job's copy: relative to the root of the workspace, with ``/``."""
    source: str
    """The path on ``fs``."""
    size: int
    """The size in bytes; 0 for a link."""
    mode: int
    """Permission bits."""
    link: str | None = None
    """The target of a link, relative to the link's folder; None for a file."""
    fs: AbstractFileSystem | None = None
    """The file system of ``source``; None for this machine's."""
    stat_key: bytes = b""
    """The file's status when it was listed, on this machine; see
    :func:`torchx_kit.workspace.digests.stat_key`."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks of at most 1 MiB.

        Raises:
            WorkspaceError: The file cannot be read.
        """
        try:
            with _open(self) as fp:
                yield from read_chunks(fp, self.size)
        except OSError as e:
            raise read_error(self.source, e) from None


def _open(entry: WorkspaceFile) -> IO[bytes] | FileIO:
    if entry.fs is None:
        # Unbuffered: a small file is read in one call.
        return open(open_listed(entry.source), "rb", buffering=0)
    opened: IO[bytes] = entry.fs.open(entry.source, "rb")
    return opened


def workspace_files(
    workspace: Workspace,
    ignore_name: str | Sequence[str] = TORCHX_IGNORE,
    last_rules: IgnoreRules | None = None,
    *,
    follow_links: bool = False,
    gitignore: bool = False,
) -> list[WorkspaceFile]:
    """Return the files of a workspace, ordered by path.

    The ignore file in a project's root applies to that project. The ignore file of a project that
    becomes the root of the workspace applies to the whole workspace. If two projects have a file
    with the same path, the later project's is used. Empty folders are skipped.

    A symbolic link to a path in the same project becomes a relative link. Sockets, pipes, devices
    and links to missing paths outside of the project are skipped with a warning. Files that look
    like secrets are skipped with a warning, too, unless a rule includes them; so are links to such
    files with ``follow_links``.

    Args:
        workspace: The workspace.
        ignore_name: Name of the ignore file, or several names; their rules apply in this order. A
            missing file has no rules.
        last_rules: Rules that apply to every project, after the rules of its ignore file.
        follow_links: Whether to replace a link to a file outside of the project, or to an excluded
            file, by the file. Otherwise a link to a file outside is an error, and a link to an
            excluded file stays a link.
        gitignore: Whether to exclude the files that Git ignores, in projects on this machine. A
            rule of an ignore file may include them.

    Raises:
        WorkspaceError: A project cannot be opened (see :func:`open_project`), its target is not
            below the root of the workspace, a file cannot be read, or a link leads to a file or
            folder outside of the project.
    """
    left_out: list[str] = []
    found: list[WorkspaceFile] = []
    root_rules = IgnoreRules()
    for source, target in workspace.projects.items():
        secrets: list[str] = []
        fs, root = open_project(source)
        prefix = _checked_target(source, target)
        if fs is None and not os.path.isdir(root):
            # A single file gets the name of the target, or keeps its own.
            entries: Iterable[WorkspaceFile] = [
                _local_file(prefix or os.path.basename(root), os.path.realpath(root))
            ]
        elif fs is not None and fs.isfile(root):
            name = prefix or posixpath.basename(root)
            entries = [_fsspec_file(name, fs, fs.info(root))]
        else:
            rules = read_ignore_rules(fs, root, ignore_name) + (last_rules or IgnoreRules())
            if gitignore and fs is None:
                rules = _git_ignored(root) + rules
            if not prefix:
                root_rules = rules
            if fs is None:
                entries = _local_files(root, rules, follow_links, secrets)
            else:
                entries = _fsspec_files(fs, root, rules, secrets)
            if prefix:
                entries = (entry._replace(path=f"{prefix}/{entry.path}") for entry in entries)
        found += entries
        left_out += [f"{prefix}/{path}" if prefix else path for path in secrets]
    warn_left_out(left_out)
    found.sort(key=attrgetter("path"))
    if len(workspace.projects) > 1:
        # The sort is stable: of files with the same path, the later project's is the last.
        by_path = {entry.path: entry for entry in found}
        found = [e for p, e in by_path.items() if not root_rules.ignores(p, defaults=False)]
    return found


def _git_ignored(root: str) -> IgnoreRules:
    """Return rules that exclude the files below ``root`` that Git ignores.

    All ``.gitignore`` files of the repository apply, and the user's settings of Git. Files that Git
    tracks are not excluded.

    Args:
        root: A folder of this machine, in a Git repository.

    Raises:
        WorkspaceError: Git is not installed, or the folder is not in a repository.
    """
    import subprocess

    try:
        done = subprocess.run(_LIST.split(), cwd=root, capture_output=True, check=False)
    except OSError as e:
        raise WorkspaceError(f"option gitignore: cannot run git: {e.strerror or e}") from None
    if done.returncode:
        problem = one_line(done.stderr)
        raise WorkspaceError(f"option gitignore: git cannot list the files of {root}: {problem}")
    paths = os.fsdecode(done.stdout).split("\0")
    return IgnoreRules(excluded=frozenset(path.rstrip("/") for path in paths if path))


def tree_digest(files: Iterable[WorkspaceFile], digests: FileDigests | None = None) -> str:
    """Return the SHA-256 of a tree, in hexadecimal.

    The digest covers paths, contents, executable bits and links, but not times and owners.

    Args:
        files: The files of the tree.
        digests: Cache of the digests of single files; None reads every file.

    Raises:
        WorkspaceError: A file cannot be read.
    """
    import hashlib

    known = FileDigests() if digests is None else digests
    entries = list(files)
    tree = hashlib.sha256()
    for entry, content in zip(entries, known.digests(entries), strict=True):
        path = entry.path.encode("utf-8", "surrogateescape")
        if entry.link is not None:
            kind, content = b"link", entry.link.encode("utf-8", "surrogateescape")
        else:
            kind = b"exec" if entry.mode & 0o111 else b"file"
        # The lengths separate the entries.
        tree.update(b"%s %d %d\n%s%s" % (kind, len(path), len(content), path, content))
    return tree.hexdigest()


def open_project(source: str) -> tuple[AbstractFileSystem | None, str]:
    """Return the file system of a project (None for this machine), and the path on it.

    Args:
        source: A local path or an fsspec URL.

    Raises:
        WorkspaceError: ``source`` does not exist, or it is a URL and fsspec is not installed or
            does not support the protocol, or ``source`` is the home directory or ``/``.
    """
    protocol, separator, rest = source.partition("://")
    if not separator or protocol in ("file", "local"):
        path = os.path.abspath(os.path.expanduser(rest if separator else source))
        if not os.path.exists(path):
            raise WorkspaceError(
                f"workspace does not exist: {source}" + (f" ({path})" if path != source else "")
            )
        _check_not_home(path)
        return None, path
    try:
        import fsspec
        from fsspec.implementations.cached import CachingFileSystem
    except ImportError:
        raise WorkspaceError(
            f"workspace '{source}' is a URL, which needs fsspec: pip install 'torchx-specs[fsspec]'"
        ) from None
    try:
        fs, path = fsspec.core.url_to_fs(source)
        if isinstance(fs, CachingFileSystem) and is_local(fs.fs):
            fs = fs.fs
        if is_local(fs):
            return open_project(path)
        exists = fs.exists(path)
    except (ImportError, ValueError, OSError) as e:
        raise WorkspaceError(f"workspace '{source}' cannot be opened: {e}") from None
    if not exists:
        raise WorkspaceError(f"workspace does not exist: {source}")
    return fs, path


def home_or_root(path: str) -> str:
    """Return a description of a folder that must not be uploaded; empty for other folders.

    These are the root directory, the user's home directory, and the folders above the home
    directory that the user database names (``$HOME`` may be another folder).

    Args:
        path: A path on this machine.
    """
    import pwd

    real = os.path.realpath(path)
    if _is_same_folder(real, "/"):
        return "the root directory"
    if _is_same_folder(real, os.path.expanduser("~")):
        return "your home directory"
    try:
        own = os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:  # In a container, the user may have no entry.
        return ""
    # HOME may be another folder than the user's own, for example with sudo.
    if _is_same_folder(real, own):
        return "your home directory"
    return "a folder above your home directory" if own.startswith(f"{real}/") else ""


def _is_same_folder(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)  # A bind mount has another path, but the same inode.
    except OSError:
        return False


def _check_not_home(path: str) -> None:
    what = home_or_root(path)
    if what:
        raise WorkspaceError(
            f"the workspace {path} is {what}, which has files that a job must not get; run in the"
            " folder of a project, name it (--workspace=FOLDER), or upload nothing (--workspace='')"
        )


def _checked_target(source: str, target: str) -> str:
    """Return ``target`` as a relative path with ``/``, empty for the root of the workspace."""
    normalized = posixpath.normpath(target) if target else "."
    if normalized.startswith("/") or normalized.split("/")[0] == "..":
        raise WorkspaceError(
            f"workspace project {source} has the target '{target}', which is not below the root of"
            " the workspace; use a relative path without '..'"
        )
    return "" if normalized == "." else normalized


def _local_files(
    root: str, rules: IgnoreRules, follow_links: bool, left_out: list[str]
) -> Iterator[WorkspaceFile]:
    real_root = os.path.realpath(root)
    for _, relative, _, entries in walk(None, root, rules, left_out):
        prefix = f"{relative}/" if relative else ""
        for name, entry in entries.items():
            path = prefix + name
            try:
                # entry.stat() would keep the status of every file of a large folder in memory.
                status = os.lstat(entry.path)
            except OSError as e:
                raise read_error(entry.path, e) from None
            mode = status.st_mode
            if stat.S_ISREG(mode):
                yield _regular_file(path, entry.path, status)
            elif stat.S_ISLNK(mode):
                kept = _link_entry(path, entry.path, real_root, rules, follow_links)
                if kept is None:
                    continue
                if kept.link is None and _is_linked_secret(kept, rules):
                    left_out.append(path)
                else:
                    yield kept
            else:
                _warn_skipped(entry.path, "is neither a file nor a folder")


def _link_entry(
    path: str, source: str, real_root: str, rules: IgnoreRules, follow_links: bool
) -> WorkspaceFile | None:
    target = os.path.realpath(source)
    is_file = os.path.isfile(target)
    below = real_root.rstrip("/") + "/"
    if target == real_root or target.startswith(below):
        inside = target[len(below) :]
        if not (follow_links and is_file and rules.ignores(inside)):
            link = os.path.relpath(inside or ".", os.path.dirname(path) or ".")
            return WorkspaceFile(path, source, 0, _LINK_MODE, link=link)
    if is_file and follow_links:
        return _local_file(path, target)
    if is_file:
        raise WorkspaceError(
            f"{source} is a link to the file {target} outside of the workspace; exclude it in"
            f" {TORCHX_IGNORE}, or set the option follow_links=True to copy that file"
        )
    if os.path.isdir(target):
        raise WorkspaceError(
            f"{source} is a link to the folder {target} outside of the workspace;"
            f" exclude it in {TORCHX_IGNORE}, or make that folder a project of the workspace"
        )
    problem = "is neither a file nor a folder" if os.path.lexists(target) else "does not exist"
    _warn_skipped(source, f"is a link to {target}, which {problem}")
    return None


def _is_linked_secret(entry: WorkspaceFile, rules: IgnoreRules) -> bool:
    """Return True if a file that replaces a link looks like a secret, and no rule includes it."""
    has_rule = rules.verdict(entry.path, is_folder=False) is not ROOT
    return not has_rule and looks_secret(entry.source, entry.source)


def _local_file(path: str, source: str) -> WorkspaceFile:
    try:
        status = os.stat(source)
    except OSError as e:
        raise read_error(source, e) from None
    return _regular_file(path, source, status)


def _regular_file(path: str, source: str, status: os.stat_result) -> WorkspaceFile:
    mode = stat.S_IMODE(status.st_mode)
    return WorkspaceFile(path, source, status.st_size, mode, stat_key=stat_key(status))


def _fsspec_files(
    fs: AbstractFileSystem, root: str, rules: IgnoreRules, left_out: list[str]
) -> Iterator[WorkspaceFile]:
    for _, relative, _, files in walk(fs, root, rules, left_out):
        for name, info in files.items():
            if info["type"] == "file":
                yield _fsspec_file(f"{relative}/{name}" if relative else name, fs, info)
            else:
                _warn_skipped(info["name"], "is neither a file nor a folder")


def _fsspec_file(path: str, fs: AbstractFileSystem, info: dict[str, object]) -> WorkspaceFile:
    mode = info.get("mode")
    size = info.get("size")
    return WorkspaceFile(
        path,
        str(info["name"]),
        size if isinstance(size, int) else 0,
        stat.S_IMODE(mode) if isinstance(mode, int) and mode else _DEFAULT_MODE,
        fs=fs,
    )


def _warn_skipped(source: str, reason: str) -> None:
    import logging

    logging.getLogger(__name__).warning("%s %s; the workspace is used without it", source, reason)
