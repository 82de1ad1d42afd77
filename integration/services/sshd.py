"""Start and stop SSH servers on this machine, with users of their own.

    integration/services/sshd.py start FOLDER [--shell bash --shell fish]
    export PATH=FOLDER/bin:$PATH
    ssh bash
    integration/services/sshd.py stop FOLDER

For each shell there is a machine: a server on a free port of 127.0.0.1, and an ordinary user with
this shell, whose start-up files print text. FOLDER/bin/ssh is OpenSSH's ``ssh`` with FOLDER/config
in place of the files of the user and of this machine. In it, a machine has the name of its shell.
Keys are made for each start. ``stop`` ends the servers and the processes of their users, and
removes the users.

Needs root. ``integration/install.sh ssh`` installs the programs.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from service_process import ServiceError as ServiceError
from service_process import (
    print_exports,
    recorded_pids,
    run,
    send_signal,
    spawn_recorded,
    wait_until_ended,
    wait_until_ready,
)

SHELLS = ("bash", "zsh", "fish", "tcsh")
# How long a server may take to start, in seconds.
PATIENCE = 60.0
# The start-up file that each shell reads for a command, and a noisy content.
NOISE = 'printf "Welcome!\\nno newline"\n'
START_UP_FILES = {
    "bash": ".bashrc",
    "zsh": ".zshenv",
    "fish": ".config/fish/config.fish",
    "tcsh": ".tcshrc",
}

SSHD_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
AcceptEnv TORCHX_* SLURM_*
{settings}
"""
SSH_CONFIG = """\
Host {name}
    HostName 127.0.0.1
    Port {port}
    User {user}
    IdentityFile {folder}/key
    IdentitiesOnly yes
    UserKnownHostsFile {folder}/known_hosts
    GlobalKnownHostsFile /dev/null
    HostKeyAlias {name}
"""
SSH = """\
#!/bin/sh
exec {ssh} -F {folder}/config "$@"
"""

_started: list[subprocess.Popen[bytes]] = []


def start(folder: Path, shells: Sequence[str] = SHELLS, settings: str = "") -> dict[str, str]:
    """Start the servers, and return the environment variables of their clients.

    Args:
        folder: The directory of the service; every user can reach it.
        shells: The shells of the users.
        settings: Further lines of sshd_config.

    Raises:
        ServiceError: A server does not start, or a program is missing.
    """
    for program in ("sshd", "ssh", "ssh-keygen", *shells):
        if shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
            raise ServiceError(f"{program} is not installed; run: integration/install.sh ssh")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("key", "host_key"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]
        run([*key, str(folder / name)], {}, PATIENCE)
    shutil.copy(folder / "key.pub", folder / "authorized_keys")
    (folder / "authorized_keys").chmod(0o644)
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(SSH.format(ssh=shutil.which("ssh"), folder=folder))
    (folder / "bin" / "ssh").chmod(0o755)
    for shell in shells:
        add_machine(folder, shell, shell, settings)
    return {"PATH": f"{folder}/bin{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def add_machine(folder: Path, name: str, shell: str = "bash", settings: str = "") -> None:
    """Start a server with a user; the machine has a name in FOLDER/config."""
    user = _add_user(folder, name, shell)
    port = free_port()
    config = folder / f"sshd-{name}.conf"
    config.write_text(SSHD_CONFIG.format(port=port, folder=folder, settings=settings))
    with open(folder / "config", "a") as file:
        file.write(SSH_CONFIG.format(name=name, port=port, user=user, folder=folder))
    with open(folder / "known_hosts", "a") as file:
        file.write(f"{name} {(folder / 'host_key.pub').read_text()}")
    start_server(folder, name)


def start_server(folder: Path, name: str) -> None:
    """Start the server of a machine, again after :func:`stop_server`."""
    command = ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / f"sshd-{name}.conf")]
    log = folder / f"{name}.out"
    begun = log.read_text().count("listening on") if log.exists() else 0
    _started.append(spawn_recorded(folder, name, command, "ssh", {}))
    wait_until_ready(
        folder, name, lambda: log.read_text().count("listening on") > begun, [log], PATIENCE
    )


def stop_server(folder: Path, name: str) -> None:
    """End the server of a machine; its connections stay."""
    pid = recorded_pids(folder)[name]
    send_signal(pid, signal.SIGTERM)
    wait_until_ended([pid], PATIENCE)


def port_of(folder: Path, name: str) -> int:
    """Return the port of a machine's server."""
    return int((folder / f"sshd-{name}.conf").read_text().split()[1])


def user_of(folder: Path, name: str) -> str:
    """Return the user of a machine."""
    return (folder / f"user-{name}").read_text()


def home_of(folder: Path, name: str) -> Path:
    """Return the home directory of the user of a machine."""
    return folder / f"home-{name}"


def stop(folder: Path) -> None:
    """End the servers and their users' processes, and remove the users."""
    pids = list(recorded_pids(folder).values())
    for pid in pids:
        send_signal(pid, signal.SIGTERM)
    wait_until_ended(pids, PATIENCE)
    for process in _started:
        process.poll()
    for file in folder.glob("user-*"):
        user = file.read_text()
        subprocess.run(["pkill", "-KILL", "-u", user], check=False)
        run(["userdel", "--force", user], {}, PATIENCE, check=False)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _add_user(folder: Path, name: str, shell: str) -> str:
    user = f"torchx-{name[:8]}-{secrets.token_hex(3)}"
    home = home_of(folder, name)
    program = str(shutil.which(shell))
    (folder / f"user-{name}").write_text(user)
    # Without the password "*", sshd takes the account for a locked one.
    options = ["--create-home", "--home-dir", str(home), "--shell", program, "--password", "*"]
    run(["useradd", *options, user], {}, PATIENCE)
    start_up = home / START_UP_FILES[shell]
    start_up.parent.mkdir(parents=True, exist_ok=True)
    start_up.write_text(NOISE)
    run(["chown", "-R", f"{user}:", str(home)], {}, PATIENCE)
    return user


def main() -> int:
    parser = argparse.ArgumentParser(description="Start or stop SSH servers on this machine.")
    parser.add_argument("do", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shell", action="append", choices=SHELLS)
    arguments = parser.parse_args()
    if arguments.do == "stop":
        stop(arguments.folder)
        return 0
    return print_exports("sshd", lambda: start(arguments.folder, arguments.shell or SHELLS))


if __name__ == "__main__":
    sys.exit(main())
