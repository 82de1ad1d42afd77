"""The argv of ``ssh``, the shared connection to a host, and what ssh's messages mean."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO

from torchx_kit.home import make_private
from torchx_kit.hosts.errors import HostError, HostRefusedError, HostUnreachableError
from torchx_kit.trust import USE, distrust
from torchx_specs.errors import ConfigError, RequestError

#: How long a connection without a client stays open, in seconds.
IDLE_SECONDS = 600
#: How many clients of this machine share the connection. sshd accepts 10 sessions by default; for
#: another one, ssh would open a second connection, with a second prompt.
MOST_CLIENTS = 8
# How often a client that waits looks for another's end, in seconds.
_SLOT_CHECK = 0.1
# ssh adds 17 characters to the 40 of %C for a temporary name; a socket's path has at most 107.
_LONGEST_FOLDER = 48
_NAME = re.compile(r"(?:[\w.+-]+@)?\w[\w.-]*", re.ASCII)
_OPTIONS = (
    "ServerAliveInterval=15",
    "ServerAliveCountMax=3",
    "ConnectTimeout=30",
    "ClearAllForwardings=yes",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
)
# A change of the configuration is needed after these messages; a retry would fail again.
_PERMANENT = re.compile(
    "permission denied|host key|identification has changed|could not resolve hostname .*(?:name or"
    " service not known|nodename nor servname|no address)|too many authentication failures|bad"
    " owner or permissions|bad configuration option|no matching|terminating, |unsupported option",
    re.I | re.S,
)
_UNIMPORTANT = re.compile(r"@*|warning: permanently added .*|mux_client_.*|controlsocket .*", re.I)
# A user at a terminal can answer the questions that these errors come from.
_NEEDS_ANSWER = re.compile("permission denied|host key verification failed", re.I)
_CHANGED_KEY = re.compile("identification has changed", re.I)


def check_name(name: str) -> str:
    """Return the name of a host if ssh cannot take it for an option or anything else.

    Raises:
        RequestError: It is not a host name, an alias of ``~/.ssh/config``, or ``user@host``.
    """
    if _NAME.fullmatch(name):
        return name
    raise RequestError(
        f"host '{name}' is not a valid name: use a host name, a Host of ~/.ssh/config, or user@host"
    )


class OpenSsh:
    """The command ``ssh`` for one host.

    Args:
        name: The name of the host, an alias of ``~/.ssh/config``, or ``user@host``.

    Raises:
        RequestError: The name is not valid.
    """

    def __init__(self, name: str) -> None:
        self.name = check_name(name)

    def argv(self, *options: str, command: str = "") -> list[str]:
        """Return an argv of ssh.

        Args:
            options: Further options of ssh.
            command: The command for the host's shell. Every shell must understand it, so it must
                not contain a value that is not quoted for all of them.
        """
        own = [*_OPTIONS, f"ControlPath={control_folder()}/%C"]
        settings = [part for option in own for part in ("-o", option)]
        return ["ssh", *settings, *options, "--", self.name, *([command] if command else [])]

    def attached_argv(self, argv: Sequence[str], *, tty: bool) -> list[str]:
        """Return an argv that runs a command on the host, with the streams of this process.

        The arguments are in hexadecimal, because shells have different rules of quoting.
        """
        words = [one.encode("utf-8", "surrogateescape").hex() or "-" for one in argv]
        if tty:
            return self.argv("-tt", command=start_command(words))
        return [sys.executable, "-m", "torchx_host_ssh.attached", self.name, *words]

    def connect(self) -> None:
        """Open the shared connection, unless it is open.

        First, ssh may not ask anything, so that its messages can be read. If an answer of the user
        could help, and this process has a terminal, ssh tries again, and may ask.

        Raises:
            HostRefusedError: The same will happen again.
            HostUnreachableError: The host does not answer.
        """
        with open(os.path.join(control_folder(), f"{self.name}.lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # ssh would make a second connection beside the first
            if _call(self.argv("-O", "check"))[0] == 0:
                return
            master = ("-o", "ControlMaster=yes", "-o", f"ControlPersist={IDLE_SECONDS}", "-fNT")
            code, messages = _call(self.argv("-o", "BatchMode=yes", *master))
            if code == 0:
                return
            can_ask = _NEEDS_ANSWER.search(messages) and not _CHANGED_KEY.search(messages)
            if can_ask and has_terminal():
                asked = subprocess.run(self.argv(*master), stdin=subprocess.DEVNULL, check=False)
                if asked.returncode == 0:
                    return
        raise self.failure(messages)

    def disconnect(self) -> None:
        """Close the shared connection."""
        _call(self.argv("-O", "exit"))

    def failure(self, messages: str) -> HostError:
        """Return the error for messages of ssh."""
        lines = [" ".join(line.split()) for line in messages.splitlines()]
        text = " ".join(line for line in lines if not _UNIMPORTANT.fullmatch(line))
        text = text.rstrip(".") or "ssh ended without a message"
        kind = HostRefusedError if _PERMANENT.search(text) else HostUnreachableError
        return kind(f"cannot connect to {self.name}: {text}")

    @contextlib.contextmanager
    def client(self) -> Iterator[None]:
        """Wait until fewer than :data:`MOST_CLIENTS` processes use the connection, and use it."""
        path = os.path.join(control_folder(), self.name)
        with contextlib.ExitStack() as files:
            slots = [files.enter_context(open(f"{path}.{k}", "ab")) for k in range(MOST_CLIENTS)]
            # Any of the clients may be the first to end, so the wait is for no particular one.
            while not any(_lock(slot) for slot in slots):
                time.sleep(_SLOT_CHECK)
            yield


def start_command(words: Sequence[str], marker: str = "") -> str:
    """Return a command for the host's shell that runs a program.

    Args:
        words: The program and its arguments, each in hexadecimal, or ``-`` if it is empty.
        marker: Text that is written to standard output before the program starts.
    """
    code = (
        f'import os,sys;os.write(1,b"{marker}");os.environ.pop("SSH_CLIENT",None);'
        'a=[bytes.fromhex(x.strip("-")) for x in sys.argv[1:]];os.execvp(a[0],a)'
    )
    return f"exec python3 -IS -c '{code}' {' '.join(words)}"


def control_folder() -> str:
    """Return the folder of the sockets, which only this user can use.

    Raises:
        ConfigError: Another user can use it.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    path = os.path.join(runtime, "torchx-ssh")
    if not runtime or len(os.fsencode(path)) > _LONGEST_FOLDER or not os.access(runtime, os.W_OK):
        path = f"/tmp/torchx-ssh-{os.getuid()}"  # noqa: S108 - its owner and mode are checked
    make_private(path)
    if reason := distrust(os.lstat(path), USE, [os.getuid()]):
        raise ConfigError(f"{path}: {reason}, so no connection is made there; remove it")
    return path


def has_terminal() -> bool:
    """Return True if ssh can ask the user a question."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _call(argv: Sequence[str]) -> tuple[int, str]:
    """Run ssh, and return its exit code and its messages."""
    # A file, because a proxy of the connection may keep a pipe open.
    with tempfile.TemporaryFile() as messages:
        try:
            code = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=messages,
                check=False,
            ).returncode
        except FileNotFoundError:
            raise HostError("there is no command ssh on PATH; install OpenSSH's client") from None
        messages.seek(0)
        return code, messages.read().decode("utf-8", "replace")


def _lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
