"""Start a container registry on this machine (Debian's docker-registry).

    integration/services/registry.py start FOLDER [--user NAME:PASSWORD]
    integration/services/registry.py stop FOLDER

The registry listens on a free port of 127.0.0.1 without TLS, and keeps its files in FOLDER. Its
access log is FOLDER/registry.log. ``integration/install.sh registry`` installs it. ``stop`` ends
only the process whose id is in FOLDER/registry.pid.
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

PATIENCE = 120.0

CONFIG = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: false}}}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}, delete: {{enabled: true}}}}
http: {{addr: "{address}:{port}"{tls}}}
"""


#: The registries that this process has started, by folder; :func:`stop` waits for their end.
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
    """Start a registry, and return its name, ``ADDRESS:PORT``.

    Args:
        folder: A new or empty folder.
        user: The user that must log in, as ``name:password``; empty requires no login.
        address: The address of this machine on which the registry listens.
        tls: The files of the registry's certificate and key; None serves without TLS.
        clients: The certificate of the authority that signs client certificates. If given, the
            registry requires a client certificate.
        token: The realm, service, issuer and rootcertbundle of a token service. If given, the
            registry requires tokens of this service.

    Raises:
        ServiceError: The registry does not start.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as probe:
        probe.bind((address, 0))
        port = int(probe.getsockname()[1])
    authorities = f", clientcas: [{clients}]" if clients else ""
    tls_config = f", tls: {{certificate: {tls[0]}, key: {tls[1]}{authorities}}}" if tls else ""
    config = CONFIG.format(folder=folder, address=address, port=port, tls=tls_config)
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
    """End the registry that :func:`start` has started in ``folder``, if it runs."""
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
    # The registry accepts bcrypt only. Perl, which every Debian has, can compute it.
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
    parser = argparse.ArgumentParser(description="Start or stop a registry on this machine.")
    parser.add_argument("action", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--user", default="")
    arguments = parser.parse_args()
    if arguments.action == "stop":
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
