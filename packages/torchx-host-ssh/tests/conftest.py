"""A double of ssh that runs the helper program on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from torchx_host_ssh.host import SshHost

# The command of the host is the last argument. Options of the double come from its folder: the
# file `fails` has an exit code and messages, `noise` is printed first, `calls` lists the arguments.
SSH = """\
#!/bin/sh
folder=$(dirname "$0")
printf '%s\\n' "$*" >> "$folder/calls"
for last; do :; done
case "$*" in *"-O check"*) exit 1;; *"-O exit"*) exit 0;; esac
case "$*" in *-fNT*)
    if [ -e "$folder/fails" ]; then cat "$folder/fails" >&2; exit 255; fi
    exit 0;;
esac
cat "$folder/noise" 2> /dev/null
if [ -e "$folder/path" ]; then PATH=$(cat "$folder/path"); export PATH; fi
exec /bin/sh -c "$last"
"""


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the double, which is the first one on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(SSH)
    (folder / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    runtime = tmp_path / "r"
    runtime.mkdir(0o700)
    monkeypatch.setattr("torchx_host_ssh.openssh.control_folder", lambda: str(runtime))
    return folder


@pytest.fixture
def connect(double: Path) -> Iterator[Callable[[], SshHost]]:
    """Return a function that makes hosts, which are closed after the test."""
    hosts: list[SshHost] = []

    def make() -> SshHost:
        hosts.append(SshHost("login1"))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def host(connect: Callable[[], SshHost]) -> SshHost:
    return connect()
