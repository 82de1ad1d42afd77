"""Runs a command on a host: ``python -m torchx_host_ssh.attached HOST WORD...``.

The words are in hexadecimal. Standard input and error are those of this process. What start-up
files of the shell print on standard output is left out.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence

from torchx_host_ssh.openssh import OpenSsh, start_command

_BLOCK_BYTES = 1 << 16


def main(name: str, words: Sequence[str]) -> int:
    """Run the command, and return its exit code."""
    marker = f"torchx-{secrets.token_hex(16)}"
    argv = OpenSsh(name).argv("-T", command=start_command(words, marker))
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, bufsize=0)
    if process.stdout is None:
        raise AssertionError("unreachable: the output is a pipe")
    skipped, is_output = b"", False
    while data := process.stdout.read(_BLOCK_BYTES):
        if not is_output:
            skipped, found, data = (skipped + data).partition(marker.encode())
            is_output = bool(found)
        write(data)
    return process.wait()


def write(data: bytes) -> None:
    """Write all bytes to standard output."""
    while data:
        data = data[os.write(1, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
