"""A container registry of one's own on this machine (Debian's docker-registry).

    integration/services/registry.py start FOLDER [--user NAME:PASSWORD]
    integration/services/registry.py stop FOLDER

It serves 127.0.0.1 on a port that was free, without TLS, from FOLDER. Its access log is
FOLDER/registry.log. ``integration/install.sh registry`` installs it. Its process id is in
FOLDER/registry.pid; ``stop`` ends that and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from service_process import ServiceError as ServiceError
from service_process import spawn

PATIENCE = 30.0

CONFIG = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: false}}}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}
http: {{addr: "{address}:{port}"{tls}}}
"""


#: What this process has started, by folder: it is waited for once it was told to end.
_started: dict[Path, subprocess.Popen[bytes]] = {}


def start(
    folder: Path,
    *,
    user: str = "",
    address: str = "127.0.0.1",
    tls: tuple[Path, Path] | None = None,
    clients: Path | None = None,
    token: dict[str, str] | None = None,
) -> str:
    """Starts a registry; returns its name, ``ADDRESS:PORT``.

    Args:
        folder: a new or empty one
        user: ``name:password``, where it is to ask for that
        address: of this machine
        tls: certificate and key, with which it serves
        clients: authority whose certificates it wants to see from clients, with ``tls``
        token: realm, service, issuer and rootcertbundle of the service whose tokens it wants

    Raises:
        ServiceError: it does not come up
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind((address, 0))
        port = int(probe.getsockname()[1])
    wanted = f", clientcas: [{clients}]" if clients else ""
    served = f", tls: {{certificate: {tls[0]}, key: {tls[1]}{wanted}}}" if tls else ""
    config = CONFIG.format(folder=folder, address=address, port=port, tls=served)
    if token:
        config += f"auth: {{token: {json.dumps(token)}}}\n"
    if user:
        name, _, password = user.partition(":")
        _write_passwords(folder / "htpasswd", name, password)
        config += f"auth: {{htpasswd: {{realm: torchx, path: {folder}/htpasswd}}}}\n"
    (folder / "config.yml").write_text(config)
    command = ["docker-registry", "serve", str(folder / "config.yml")]
    process = spawn(command, folder / "registry.log", "registry")
    _started[folder] = process
    (folder / "registry.pid").write_text(f"{process.pid}\n")
    deadline = time.monotonic() + PATIENCE
    while not _answers(address, port):
        if process.poll() is not None or time.monotonic() > deadline:
            raise ServiceError((folder / "registry.log").read_text(errors="replace")[-1500:])
        time.sleep(0.05)
    return f"{address}:{port}"


def stop(folder: Path) -> None:
    """Ends the registry that :func:`start` has started there; does nothing if none runs."""
    try:
        pid = int((folder / "registry.pid").read_text())
        os.kill(pid, signal.SIGTERM)
    except (FileNotFoundError, ProcessLookupError):
        return
    process = _started.pop(folder.resolve(), None)
    if process is not None:
        process.wait(PATIENCE)
    (folder / "registry.pid").unlink()


def _write_passwords(path: Path, name: str, password: str) -> None:
    # perl is on every Debian, and knows bcrypt, which is all that the registry takes
    script = "print crypt($ARGV[0], q($2y$05$abcdefghijklmnopqrstuu))"
    done = subprocess.run(
        ["perl", "-e", script, password], capture_output=True, text=True, check=True
    )
    path.write_text(f"{name}:{done.stdout}\n")


def _answers(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=5):
            return True
    except OSError:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description="A registry of one's own on this machine.")
    parser.add_argument("do", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--user", default="")
    arguments = parser.parse_args()
    if arguments.do == "stop":
        stop(arguments.folder)
        return 0
    try:
        print(start(arguments.folder, user=arguments.user))
    except ServiceError as e:
        print(f"registry: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
