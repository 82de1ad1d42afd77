"""The program of a job: ``python -c PROGRAM FOLDER UID`` calls a pickled function.

FOLDER is the folder of the call; its parent contains the function. UID is the id of the user who
submitted the job; in a container, the program often runs with another user id.

The exit code is 0 if the function returned, 1 if it failed or its result cannot be pickled, and 2
if it could not be called. It is 75 if a signal has stopped the function after a checkpoint: the
next attempt goes on from there. If the job was cancelled before its start, the function is not
called, and the exit code is 0.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import traceback
from functools import partial
from typing import Any

import cloudpickle

from torchx_functions.checkpoint import CHECKPOINT, Checkpoints
from torchx_functions.errors import NoResultError, UnsafeFolderError
from torchx_functions.folders import PrivateFolder
from torchx_functions.outcome import CANCELLED, CLAIM, OUTCOME, STARTED, Header, Versions


def main(argv: list[str]) -> int:
    """Call a pickled function, record the outcome, and return the exit code.

    Args:
        argv: The folder of the call, and the id of the user who submitted the job.
    """
    if len(argv) != 2 or not argv[1].isdigit():
        print("usage: FOLDER UID", file=sys.stderr)
        return 2
    # LSF sends SIGINT to cancel a job. Like SIGTERM, it must end the program without an outcome.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    path, owners = argv[0], {os.geteuid(), int(argv[1])}
    try:
        with (
            PrivateFolder(os.path.dirname(path), 1, owners) as group,
            PrivateFolder(path, 2, owners) as folder,
        ):
            return _run(group, folder)
    except FileNotFoundError:
        print(
            f"torchx_functions: the folder {path} is incomplete or does not exist here: it was"
            " deleted, or this machine or container does not have it; use folder= with a shared"
            " file system, or mount the folder at the same path",
            file=sys.stderr,
        )
    except (UnsafeFolderError, NoResultError, OSError) as e:
        print(f"torchx_functions: {e}", file=sys.stderr)
    return 2


def _run(group: PrivateFolder, folder: PrivateFolder) -> int:
    is_first = folder.create(CLAIM, STARTED)
    if not is_first and folder.read(CLAIM) == CANCELLED:
        print("torchx_functions: the job was cancelled before its start", file=sys.stderr)
        return 0
    has_checkpoint = CHECKPOINT in folder.names()
    if has_checkpoint:
        print("torchx_functions: the function goes on from its checkpoint", file=sys.stderr)
    elif not is_first:
        print(
            "torchx_functions: another attempt of this job has started before; without a"
            " checkpoint, the function starts anew",
            file=sys.stderr,
        )
    # An earlier attempt may have failed, and left its outcome.
    folder.remove(OUTCOME)
    versions = Versions()
    spec = json.loads(group.read("job.json"))
    submitted = Versions(**spec["versions"])
    if not versions.reads(submitted):
        return _refuse(
            folder,
            f"the job has {versions}, but the function was pickled by {submitted}; install the"
            " same versions in the job's image or environment",
        )
    sys.path.insert(0, os.getcwd())  # the job has imported its own modules without it
    sys.path += [
        entry for entry in spec["sys_path"] if entry not in sys.path and os.path.isdir(entry)
    ]
    try:
        if has_checkpoint:
            function, args, kwargs = pickle.loads(folder.read(CHECKPOINT))  # noqa: S301
        else:
            function = pickle.loads(group.read("function.pkl"))  # noqa: S301 - a checked folder
            args, kwargs = pickle.loads(folder.read("call.pkl"))  # noqa: S301
    except UnsafeFolderError:
        raise
    except BaseException as e:  # SystemExit(0) would end the job without an outcome
        traceback.print_exc()
        return _refuse(
            folder,
            f"the function or its arguments cannot be unpickled in the job:"
            f" {type(e).__name__}: {e}; the job has {versions}, the client has {submitted}",
        )
    return _call(folder, function, args, kwargs)


def _refuse(folder: PrivateFolder, message: str) -> int:
    print(f"torchx_functions: {message}", file=sys.stderr)
    folder.write(OUTCOME, Header(False, Versions(), message=message).to_line())
    return 2


def _call(folder: PrivateFolder, function: Any, args: Any, kwargs: Any) -> int:
    data = b""
    try:
        with Checkpoints(folder, function, args, kwargs, partial(_refuse, folder)):
            value = function(*args, **kwargs)
    except BaseException as e:
        text = traceback.format_exc()
        print(text, end="", file=sys.stderr, flush=True)
        header = Header(False, Versions(), type(e).__qualname__, _message(e), text)
        if isinstance(e, Exception):
            data, problem = _pickled(e.with_traceback(None))
            if problem:
                header.message = f"{header.type_name}: {header.message}"
        else:  # SystemExit or KeyboardInterrupt would end the client, too
            header.message = f"the function ended the program by {e!r}"
    else:
        header = Header(True, Versions())
        data, problem = _pickled(value)
        if problem:
            header.ok, header.message = False, f"the result cannot be pickled: {problem}"
            print(f"torchx_functions: {header.message}", file=sys.stderr)
    folder.write(OUTCOME, header.to_line(), data)
    return 0 if header.ok else 1


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the error's own __str__ failed
        return "(no message)"


def _pickled(value: object) -> tuple[bytes, str]:
    """Return the pickled value, or no bytes and the reason why it cannot be pickled."""
    try:
        return cloudpickle.dumps(value), ""
    except Exception as e:
        return b"", f"{type(e).__name__}: {e}"
