"""Copies a file or directory between fsspec URLs.

    python -m torchx_apps.copy --src s3://bucket/data --dst /tmp/data

* A file is copied to ``--dst``, or into it if ``--dst`` is a directory or ends with ``/``.
* If ``--src`` is a directory, its content is added to the directory ``--dst``. Symbolic links are
  followed.
* Missing parent directories are created. A local file is replaced only when the new file is
  complete.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .locations import Location, join_below
from .program import ArgumentParser, ProgramError, positive_int, run

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterator

PROG = "torchx_apps.copy"
BUFSIZE = 65536


@dataclass
class Copied:
    """The number of copied files, and their size in bytes."""

    files: int = 0
    size: int = 0


def parse_args(argv: list[str]) -> Namespace:
    """Parse the arguments; print one line and exit with code 2 if they are invalid."""
    parser = ArgumentParser(prog=PROG, description="Copy a file or directory between fsspec URLs.")
    parser.add_argument("--src", required=True, help="fsspec URL of the source")
    parser.add_argument("--dst", required=True, help="fsspec URL of the destination")
    parser.add_argument(
        "--bufsize",
        type=positive_int,
        default=BUFSIZE,
        help="bytes to read at a time (default: %(default)s)",
    )
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Copy a file or directory and print each copied file."""
    args = parse_args(argv)
    print(f"copying from {args.src} to {args.dst}", flush=True)
    copied = copy(args.src, args.dst, args.bufsize)
    print(f"copied {copied.files} {'file' if copied.files == 1 else 'files'}, {copied.size} B")


def copy(src: str, dst: str, bufsize: int = BUFSIZE) -> Copied:
    """Copy the file or directory ``src`` to ``dst``, both fsspec URLs.

    Args:
        src: The file or directory to copy.
        dst: The destination. If ``src`` is a file, ``dst`` may be the directory to copy it into.
        bufsize: Number of bytes to read at a time.

    Returns:
        The number of copied files and their size.

    Raises:
        ProgramError: A URL or a name in ``src`` is not valid, ``src`` does not exist, ``dst`` is
            ``src`` or inside of it, ``dst`` is a file but ``src`` is a directory, or a link in
            ``src`` points to one of its parent directories.
        OSError: Reading or writing failed.
    """
    source, target = Location.of(src), Location.of(dst)
    if _is_source_folder(source, src):
        return _copy_folder(source, target, bufsize)
    if dst.endswith("/") or target.is_folder():
        target = Location(target.fs, join_below(target.path, os.path.basename(source.path)))
    if _same_place(source, target):
        raise ProgramError(f"source and destination are the same file: {source}")
    return Copied(1, _copy_file(source, target, bufsize))


def _is_source_folder(source: Location, src: str) -> bool:
    try:
        if source.is_local:
            return stat.S_ISDIR(os.stat(source.path).st_mode)
        return bool(source.fs.info(source.path)["type"] == "directory")
    except FileNotFoundError:
        raise ProgramError(f"no such file or directory: {src}") from None


def _same_place(source: Location, target: Location) -> bool:
    return source.fs == target.fs and _canonical(source) == _canonical(target)


def _canonical(location: Location) -> str:
    return os.path.realpath(location.path) if location.is_local else location.path.rstrip("/")


def _copy_file(source: Location, target: Location, bufsize: int) -> int:
    if source.fs == target.fs and not source.is_local:
        size = _copy_on_filesystem(source, target)
        if size is not None:
            return size
    mode = os.stat(source.path).st_mode & 0o777 if source.is_local else 0o666
    with source.fs.open(source.path, "rb") as file, target.writer(mode) as out:
        shutil.copyfileobj(file, out, bufsize)
        size = int(file.tell())
    return _report(source, target, size)


def _copy_on_filesystem(source: Location, target: Location) -> int | None:
    """Copy within a file system without transferring data.

    Returns:
        The size of the file in bytes; None if the file system does not support such copies.
    """
    target.parent().make_folder()
    try:
        source.fs.cp_file(source.path, target.path)
    except NotImplementedError:
        return None
    return _report(source, target, int(source.fs.info(source.path).get("size") or 0))


def _report(source: Location, target: Location, size: int) -> int:
    print(f"{source} -> {target} ({size} B)", flush=True)
    return size


def _copy_folder(source: Location, target: Location, bufsize: int) -> Copied:
    if target.fs == source.fs and f"{_canonical(target)}/".startswith(f"{_canonical(source)}/"):
        raise ProgramError(f"cannot copy the directory {source} into itself ({target})")
    if not target.is_folder() and target.fs.exists(target.path):
        raise ProgramError(f"cannot copy the directory {source} over the file {target}")
    # List everything first, so that nothing is copied if a name is not valid.
    entries = list(_walk_local(source.path) if source.is_local else _walk_remote(source))
    copied = Copied()
    target.make_folder()
    for relative, is_folder in entries:
        destination = Location(target.fs, join_below(target.path, relative))
        if is_folder:
            destination.make_folder()
        else:
            origin = Location(source.fs, join_below(source.path, relative))
            copied.size += _copy_file(origin, destination, bufsize)
            copied.files += 1
    return copied


def _walk_remote(source: Location) -> Iterator[tuple[str, bool]]:
    """Yield ``(path below source, is directory)``; a directory comes before the files in it."""
    root = source.path.rstrip("/")
    found = source.fs.find(source.path, withdirs=True, detail=True)
    for name in sorted(found):
        relative = name[len(root) :].strip("/")
        if relative:  # some file systems include the directory itself in its listing
            join_below(root, relative)  # refuse names such as ../../etc/passwd in an archive
            yield relative, found[name]["type"] == "directory"


def _walk_local(
    folder: str, prefix: str = "", above: tuple[str, ...] = ()
) -> Iterator[tuple[str, bool]]:
    """Yield the same as :func:`_walk_remote` for a local directory, and follow symbolic links.

    fsspec does not follow symbolic links.

    Args:
        folder: The directory.
        prefix: The path of the directory below the source, with a slash at its end.
        above: The real paths of the directories above this one.
    """
    above = (*above, os.path.realpath(folder))
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        relative = f"{prefix}{entry.name}"
        mode = os.stat(entry.path).st_mode  # a broken link is an error, which names the link
        if stat.S_ISDIR(mode):
            if os.path.realpath(entry.path) in above:
                raise ProgramError(f"the link {entry.path} points to one of its parent directories")
            yield relative, True
            yield from _walk_local(entry.path, f"{relative}/", above)
        elif stat.S_ISREG(mode):
            yield relative, False
        else:
            print(f"skipping {entry.path}: not a file or directory", file=sys.stderr)


if __name__ == "__main__":
    run(main, PROG)
