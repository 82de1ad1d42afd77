"""Containers of the AWS double: local processes, whose output becomes log events."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence

from aws_double_logs import EVENT_BYTES

#: Environment variables that every image is assumed to set.
IMAGE_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", "/usr/local/bin:/usr/bin:/bin"),
    "HOME": "/tmp",
}


class StartError(Exception):
    """The container cannot start; the text is the message of the container runtime."""


class ContainerProcess:
    """A process in place of a container; it runs the command, without an image.

    Args:
        argv: The command.
        env: Environment variables, in addition to :data:`IMAGE_ENVIRONMENT`.
        write: Function that gets each line of output, without its newline.

    Raises:
        StartError: The program does not exist.
    """

    def __init__(
        self, argv: Sequence[str], env: Mapping[str, str], write: Callable[[str], object]
    ) -> None:
        self._write = write
        self._folder = tempfile.mkdtemp(prefix="aws-double-")
        self.ended = threading.Event()
        self.exit_code: int | None = None
        try:
            self._process = subprocess.Popen(
                list(argv),
                env={**IMAGE_ENVIRONMENT, **env},
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError, IndexError) as e:
            shutil.rmtree(self._folder, ignore_errors=True)
            program = argv[0] if argv else ""
            raise StartError(
                "CannotStartContainerError: Error response from daemon: failed to create task for"
                f' container: OCI runtime create failed: exec: "{program}": {e}'
            ) from None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def stop(self, grace: float) -> None:
        """Send SIGTERM to the process, and SIGKILL after ``grace`` seconds."""
        self._signal(signal.SIGTERM)
        if not self.ended.wait(grace):
            self._signal(signal.SIGKILL)
            self.ended.wait()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _wait(self) -> None:
        code = self._process.wait()
        self._signal(signal.SIGKILL)  # a container's other processes end with the first
        self._reader.join(10)
        shutil.rmtree(self._folder, ignore_errors=True)
        self.exit_code = code if code >= 0 else 128 - code
        self.ended.set()

    def _read(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        rest = b""
        while block := os.read(pipe.fileno(), 1 << 16):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self._put(line)
        if rest:
            self._put(rest)
        pipe.close()

    def _put(self, line: bytes) -> None:
        for start in range(0, max(1, len(line)), EVENT_BYTES):
            self._write(line[start : start + EVENT_BYTES].decode("utf-8", "replace"))
