"""The command ``torchx cp``."""

from __future__ import annotations

import contextlib
import os
import posixpath
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from torchx_cli.arguments.options import Command
from torchx_cli.commands.inside.archives import holds_folder, pack, unpack
from torchx_cli.commands.inside.targets import Target, find_target, parse_remote_path
from torchx_cli.runner_context import open_runner
from torchx_specs.errors import RequestError, TorchXError, one_line
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.schedulers import Stream
from torchx_specs.schedulers.sessions import ProgramNotFoundError, ReplicaNotRunningError, Session

if TYPE_CHECKING:
    from torchx_runner import Runner

_BLOCK = 1 << 16
_MOST_ERROR_BYTES = 4000
# The exit codes of a shell for a program that cannot be run.
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

# Packs the file or folder $1. If $1 is a link, the link's target is packed.
_PACK = """\
path=$1
if [ -h "$path" ]; then path=$(readlink -f -- "$path") || exit; fi
[ -e "$path" ] || { echo "no such file or folder" >&2; exit 1; }
case $path in */*) folder=${path%/*} ;; *) folder=. ;; esac
exec tar -C "${folder:-/}" -cf - -- "${path##*/}"
"""
_UNPACK = 'exec tar -C "$1" -xof -'
_IS_FOLDER = '[ -d "$1" ]'


@click.command("cp", cls=Command)
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="TARGET")
def command(source: str, target: str) -> None:
    """Copy a file or a folder from a replica to this machine, or from this machine to a replica.

    \b
    torchx cp @1/trainer/0:out/model.pt .
    torchx cp data slurm://torchx/17/trainer/0:/tmp/

    SOURCE or TARGET is HANDLE[/ROLE/REPLICA]:PATH; PATH is absolute or relative to the replica's
    working directory. An existing TARGET folder gets the copy inside. A path of this machine that
    contains a colon starts with / or ./. 'torchx exec' passes standard input and output.

    Links are copied as links, and links that lead out of the copy are left out with a warning.
    """
    from_remote, to_remote = parse_remote_path(source), parse_remote_path(target)
    if (from_remote is None) == (to_remote is None):
        raise RequestError(
            "one of SOURCE and TARGET must be HANDLE[/ROLE/REPLICA]:PATH, and the other a path of"
            f" this machine; got '{source:.200}' and '{target:.200}'"
        )
    with open_runner() as runner:
        if from_remote is not None:
            _download(runner, find_target(runner, from_remote.replica), from_remote.path, target)
        elif to_remote is not None:
            _upload(runner, find_target(runner, to_remote.replica), source, to_remote.path)


# -- copying from a replica


def _download(runner: Runner, replica: Target, path: str, target: str) -> None:
    path = path.rstrip("/") or ("/" if path else ".")
    name = posixpath.basename(path)
    is_folder = os.path.isdir(target)
    if is_folder and name not in ("", ".", ".."):
        target = os.path.join(target, name)
    elif not is_folder and target.endswith("/"):
        raise RequestError(f"there is no folder '{target}'; create it first")
    if _has_archives(runner, replica):
        chunks = runner.read_archive(*replica, path)
        unpack(chunks, target)
        _drain(chunks)
        return
    if name in ("", ".", ".."):
        path = posixpath.join(path, ".")
    error: RequestError | None = None
    with runner.open_session(*replica, ["sh", "-c", _PACK, "sh", path]) as session:
        messages = bytearray()
        output = _output(session, messages)
        try:
            unpack(output, target)
        except RequestError as e:  # if tar failed, its message is the cause
            error = e
        code, message = _end(session, output, messages)
    if code:
        raise RequestError(f"cannot read {path} in {replica}: {message}")
    if error is not None:
        raise error


def _drain(chunks: Iterable[object]) -> None:
    for _ in chunks:
        pass


def _output(session: Session, messages: bytearray) -> Iterator[bytes]:
    """Yield the standard output of tar, and add the beginning of its standard error to messages."""
    for stream, data in session.output():
        if stream == Stream.STDERR:
            messages += data[: _MOST_ERROR_BYTES - len(messages)]
        else:
            yield data


def _end(session: Session, output: Iterator[bytes], messages: bytearray) -> tuple[int, str]:
    """Wait until tar has ended, and return its exit code and messages.

    The output is read to its end: tar would fail if the session were closed earlier.
    """
    _drain(output)
    code = session.wait()
    return code, one_line(bytes(messages)) or f"exit code {code}"


# -- copying to a replica


def _upload(runner: Runner, replica: Target, source: str, path: str) -> None:
    if not os.path.lexists(source):
        raise RequestError(f"there is no file or folder '{source:.200}'")
    folder, name = posixpath.split(path)
    if not name or name in (".", "..") or _is_folder(runner, replica, path):
        folder, name = path, os.path.basename(os.path.abspath(source))
    # A link without a target is copied as a link.
    real = os.path.realpath(source) if os.path.exists(source) else source
    _send(runner, replica, folder or ".", partial(pack, real, name))


def _is_folder(runner: Runner, replica: Target, path: str) -> bool:
    """Return True if a path of a replica is a folder, or a link to a folder."""
    with contextlib.suppress(ProgramNotFoundError):
        with runner.open_session(*replica, ["sh", "-c", _IS_FOLDER, "sh", path]) as session:
            _drain(session.output())
            code = session.wait()
        if code < _NOT_EXECUTABLE:
            return code == 0
    # The image has no shell. The scheduler may be able to copy archives without one.
    try:
        return holds_folder(runner.read_archive(*replica, path))
    except RequestError:
        return False


def _has_archives(runner: Runner, replica: Target) -> bool:
    backend = parse_app_handle(replica[0]).scheduler_backend
    return bool(runner.features(backend).archives)


def _send(
    runner: Runner,
    replica: Target,
    folder: str,
    write: Callable[[Callable[[bytes], object]], None],
) -> None:
    """Unpack an archive in a folder of a replica.

    Args:
        runner: The runner.
        replica: The replica.
        folder: The folder, which must exist.
        write: Writes the archive; its argument is a function that takes bytes.
    """
    try:
        session = runner.open_session(*replica, ["sh", "-c", _UNPACK, "sh", folder], stdin=True)
        code, message = _write_to(session, write)
        if code == 0:
            return
        error: TorchXError = RequestError(f"cannot write to {folder} in {replica}: {message}")
    except (ProgramNotFoundError, ReplicaNotRunningError) as e:
        code, error = _NOT_FOUND, e
    if code < _NOT_EXECUTABLE or not _has_archives(runner, replica):
        raise error
    with tempfile.TemporaryFile() as spool:
        write(spool.write)
        spool.seek(0)
        runner.write_archive(*replica, folder, iter(lambda: spool.read(_BLOCK), b""))


def _write_to(
    session: Session, write: Callable[[Callable[[bytes], object]], None]
) -> tuple[int, str]:
    """Write an archive to a session that runs tar; return tar's exit code and error messages."""
    failures: list[Exception] = []

    def send() -> None:
        try:
            write(session.write)
        except Exception as e:  # the main thread raises it when tar has ended
            failures.append(e)
        with contextlib.suppress(TorchXError, OSError):
            session.close_stdin()

    with session:
        thread = threading.Thread(target=send, daemon=True, name="archive")
        thread.start()
        messages = bytearray()
        ended = _end(session, _output(session, messages), messages)
        thread.join()
    if failures:
        raise failures[0]
    return ended
