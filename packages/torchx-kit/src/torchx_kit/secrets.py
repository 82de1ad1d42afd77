"""Secrets of the submitting user, for schedulers that run jobs on the submitting machine.

The value of ``${secret:NAME}`` is in the environment variable ``TORCHX_SECRET_NAME`` (upper case,
``_`` for ``-`` and ``.``), or in the file ``$TORCHX_HOME/secrets/NAME``. The value of
``${secret:NAME/KEY}`` is in ``TORCHX_SECRET_NAME__KEY``, or in ``$TORCHX_HOME/secrets/NAME/KEY``.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from torchx_kit.home import home_path
from torchx_kit.logs.regular_files import open_regular
from torchx_kit.scripts.shell import quote
from torchx_kit.trust import USE, WRITE, distrust
from torchx_specs.errors import RequestError
from torchx_specs.model.secrets import SecretRef, parse_secret

if TYPE_CHECKING:
    from torchx_kit.hosts.api import Host

#: The names of variables that contain secrets begin with this text.
ENV_PREFIX = "TORCHX_SECRET_"

# Linux refuses to start a process with a longer variable.
_MAX_BYTES = 128 << 10


def env_name(reference: SecretRef) -> str:
    """Return the name of the environment variable that contains a secret.

    >>> env_name(SecretRef("team-a.hf")), env_name(SecretRef("db", "password"))
    ('TORCHX_SECRET_TEAM_A_HF', 'TORCHX_SECRET_DB__PASSWORD')
    """
    text = reference.name if reference.key is None else f"{reference.name}__{reference.key}"
    return ENV_PREFIX + re.sub(r"[.-]", "_", text).upper()


def file_path(reference: SecretRef) -> str:
    """Return the path of the file that contains a secret."""
    return home_path("secrets", *filter(None, reference))


def secret_refs(env: Mapping[str, str]) -> dict[str, SecretRef]:
    """Return the variables whose values are references to secrets: ``{name: reference}``.

    Raises:
        RequestError: A reference is invalid.
    """
    parsed = {key: parse_secret(value) for key, value in env.items()}
    return {key: reference for key, reference in parsed.items() if reference is not None}


def without_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of an environment without the variables that contain secrets."""
    return {key: value for key, value in environ.items() if not key.startswith(ENV_PREFIX)}


def hidden_secrets(host: Host) -> dict[str, None]:
    """Return the host's variables that contain secrets, each with the value None.

    For :meth:`Host.run <torchx_kit.hosts.api.Host.run>`, None removes a variable from a command's
    environment. This keeps secrets out of batch systems, which store the environment of the command
    that submits a job.
    """
    return dict.fromkeys(name for name in host.variable_names() if name.startswith(ENV_PREFIX))


def resolve_secrets(environments: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Read all secrets to which environment variables refer; return ``{reference: secret}``.

    The references are text, such as ``${secret:hf}``; :func:`with_values` replaces them.

    Args:
        environments: The environments; the value of a variable may be a reference.

    Raises:
        RequestError: Secrets are missing, unreadable or not protected from other users; the error's
            ``problems`` has a message for each. Or a reference is invalid. No message contains the
            value of a secret.
    """
    values: dict[str, str] = {}
    problems: dict[str, str] = {}
    for env in environments:
        for key, reference in secret_refs(env).items():
            text = env[key]
            if text in values or text in problems:
                continue
            try:
                values[text] = read_secret(reference)
            except RequestError as e:
                problems[text] = f"env[{key!r}]: {e}"
    if problems:
        raise RequestError(problems.values())
    return values


def own_secrets(environments: Iterable[Mapping[str, str]]) -> dict[SecretRef, str]:
    """Return the secrets of this machine to which environment variables refer, by reference.

    Args:
        environments: As for :func:`resolve_secrets`. References to other secrets are left out.

    Raises:
        RequestError: A secret is unreadable or not protected from other users.
    """
    found = {}
    for env in environments:
        for reference in secret_refs(env).values():
            if os.environ.get(env_name(reference)) or os.path.lexists(file_path(reference)):
                found[reference] = read_secret(reference)
    return found


def with_values(env: Mapping[str, str], values: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of an environment in which secrets replace the references to them.

    Args:
        env: The environment.
        values: The result of :func:`resolve_secrets`.
    """
    return {key: values.get(value, value) for key, value in env.items()}


def read_secret(reference: SecretRef) -> str:
    """Return the secret to which a reference refers.

    Raises:
        RequestError: The secret is missing, unreadable or not protected from other users. The
            message does not contain the value of the secret.
    """
    value = os.environ.get(env_name(reference))
    if value:
        return value
    try:
        data = _read(reference)
    except OSError as e:
        raise RequestError(_describe(e, reference)) from None
    if b"\0" in data or not data:
        problem = "contains a NUL character" if data else "is empty"
        raise RequestError(f"{file_path(reference)} {problem}, so it is not a secret")
    return os.fsdecode(data)


def _read(reference: SecretRef) -> bytes:
    """Return the content of a secret's file without one newline at the end."""
    *folders, name = (home_path("secrets"), *filter(None, reference))
    folder: int | None = None
    path = ""
    with ExitStack() as stack:
        for part in folders:
            path = os.path.join(path, part)
            # Only the first folder may be a symbolic link, because the user chooses this folder.
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            flags |= 0 if folder is None else os.O_NOFOLLOW
            folder = os.open(part, flags, dir_fd=folder)
            stack.callback(os.close, folder)
            _raise_if_unsafe(folder, path, WRITE, "700")
        path = os.path.join(path, name)
        fd = open_regular(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    with open(fd, "rb") as file:
        _raise_if_unsafe(fd, path, USE, "600")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise RequestError(f"{path} is longer than {_MAX_BYTES} bytes, so it is not a secret")
    return data[:-1] if data.endswith(b"\n") else data


def _raise_if_unsafe(fd: int, path: str, refused: int, mode: str) -> None:
    reason = distrust(os.fstat(fd), refused, {os.geteuid()})
    if reason:
        raise RequestError(
            f"{path}: {reason}; only the user who submits the app may own and use a secret;"
            f" run: chmod {mode} {quote(path)}"
        )


def _describe(error: OSError, reference: SecretRef) -> str:
    """Return the reason why a secret cannot be read."""
    path = file_path(reference)
    if error.errno == errno.ENOENT:
        return (
            f"the secret '{reference.name}' is missing; set {env_name(reference)}, or write the"
            f" secret to {path} (mode 0600)"
        )
    if error.errno == errno.EISDIR:
        return f"{path} is a directory; refer to a file in it: {SecretRef(reference.name, 'KEY')}"
    if error.errno == errno.ENOTDIR:
        return f"{os.path.dirname(path)} must be a directory that contains the file {path}"
    if error.errno in (errno.ELOOP, errno.EINVAL):
        return f"{path} is not a regular file; replace it by a file (mode 0600)"
    return f"cannot read {path}: {error.strerror or error}"
