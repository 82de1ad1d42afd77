"""The notifier ``command``: runs a program, such as ``mail`` or ``notify-send``."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from torchx_kit.secrets import without_secrets
from torchx_notify.settings import check_keys, required, seconds
from torchx_specs.errors import BackendError, RequestError, one_line

_KEYS = ("command", "timeout")
_TIMEOUT = 30.0
_LONGEST = 3600.0
#: The fields of a notification that arguments may contain, in braces.
FIELDS = ("summary", "name", "state", "handle", "scheduler", "app_id")
_FIELD = re.compile(r"\{([a-z_]+)\}")
_LONGEST_ARGUMENT = 2000
_LONGEST_ERROR = 300


def run(command: Sequence[str], timeout: float, data: Mapping[str, Any]) -> None:
    """Run a program with the text of a notification on its standard input.

    Args:
        command: The program and its arguments. A field of :data:`FIELDS` in braces, such as
            ``{summary}``, is replaced by its value.
        timeout: How long the program may run, in seconds.
        data: The notification.

    Raises:
        BackendError: The program does not exist, failed or did not end in time.
    """
    argv = [_filled(argument, data) for argument in command]
    program = argv[0]
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=without_secrets(os.environ),
            start_new_session=True,
        )
    except OSError as e:
        raise BackendError(f"cannot run {program}: {e.strerror or e}") from None
    try:
        _, error = process.communicate(text_of(data).encode("utf-8", "replace"), timeout)
    except subprocess.TimeoutExpired:
        with process, suppress(ProcessLookupError):  # `with process` waits for the end
            os.killpg(process.pid, signal.SIGKILL)
        raise BackendError(f"{program} did not end within {timeout:g} s") from None
    if process.returncode:
        lines = error.decode("utf-8", "replace").strip().splitlines()
        detail = f": {one_line(lines[-1])[:_LONGEST_ERROR]}" if lines else ""
        raise BackendError(f"{program} ended with exit code {process.returncode}{detail}")


def text_of(data: Mapping[str, Any]) -> str:
    """Return a notification as text: name, summary, and a line for each other field that is set.

    >>> print(text_of({"name": "train", "summary": "FAILED: exit code 1", "ended": None}), end="")
    train FAILED: exit code 1
    """
    lines = [f"{one_line(str(data.get('name') or ''))} {one_line(str(data.get('summary') or ''))}"]
    keys = ("handle", "state", "submitted", "started", "ended", "ui_url")
    lines += [f"{key}: {one_line(str(data[key]))}" for key in keys if data.get(key)]
    return "\n".join(lines).strip() + "\n"


def _filled(argument: str, data: Mapping[str, Any]) -> str:
    """Replace the fields in an argument by their values.

    If an argument begins with a field whose value begins with a dash, a space is inserted before
    the value. Otherwise a job's name could become an option of the program.
    """

    def value(found: re.Match[str]) -> str:
        text = one_line(str(data.get(found[1]) or ""))[:_LONGEST_ARGUMENT]
        text = "".join(c if c.isprintable() else "?" for c in text)
        return f" {text}" if found.start() == 0 and text.startswith("-") else text

    return _FIELD.sub(value, argument)


def create(config: Mapping[str, str]) -> Callable[[Mapping[str, Any]], None]:
    """Return the notifier that a section ``[notifier:NAME]`` configures.

    Args:
        config: ``command``, a command line that is split like a shell's but never run by a shell,
            and ``timeout`` in seconds.

    Raises:
        RequestError: A key is unknown, or a value is missing or malformed.
    """
    check_keys(config, _KEYS)
    text = required(config, "command", "mail -s '{summary}' me@example.com")
    try:
        argv = shlex.split(text)
    except ValueError as e:
        raise RequestError(f"the value of 'command' cannot be split: {e}; check its quotes") from e
    if not argv:
        raise RequestError("the value of 'command' has no program")
    for name in _FIELD.findall(text):
        if name not in FIELDS:
            raise RequestError(
                f"the value of 'command' contains the unknown field {{{name}}}; fields:"
                f" {', '.join(FIELDS)}"
            )
    if _FIELD.search(argv[0]):
        raise RequestError("the program of 'command' must not contain a field")
    return partial(run, argv, seconds(config, "timeout", _TIMEOUT, _LONGEST))
