"""Run a separate Docker Engine on this machine, with base images that are built here.

    integration/services/docker_engine.py start FOLDER [--python]
    export DOCKER_HOST=unix://FOLDER/docker.sock
    integration/services/docker_engine.py stop FOLDER

Needs root. ``integration/install.sh docker`` installs the programs. All files are below FOLDER;
nothing is downloaded. The images are ``torchx-test/busybox:1`` (busybox-static) and, with
``--python``, ``torchx-test/python:1`` (this machine's Debian Python with its libraries). The
daemon's process id is in FOLDER/docker.pid; ``stop`` ends only that process.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from service_process import ServiceError as ServiceError
from service_process import environment, is_alive, send_signal, spawn

PATIENCE = 60.0  # seconds until an engine or a command counts as failed
BUSYBOX = "torchx-test/busybox:1"
PYTHON = "torchx-test/python:1"


# Daemons may outlive this process. Without a reference, Popen would warn about a running child.
_started: list[subprocess.Popen[bytes]] = []


def start(
    folder: Path,
    *,
    python: bool = False,
    storage_driver: str = "",
    live_restore: bool = False,
    addresses: str = "10.213.0.0/16",
) -> dict[str, str]:
    """Start an engine below ``folder``, or restart the one that was stopped there.

    Args:
        folder: A new or empty folder, or the folder of a stopped engine.
        python: Also build the image with Python.
        storage_driver: Such as ``overlay2`` or ``vfs`` (default: the engine's choice).
        live_restore: Keep containers running while the daemon is down.
        addresses: The address range of its networks; each network gets 256 addresses.

    Returns:
        The environment variables with which clients find the engine.

    Raises:
        ServiceError: The engine does not start.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    socket = folder / "docker.sock"
    if len(str(socket)) > 100:
        raise ServiceError(
            f"{str(socket)!r} is too long for a socket's path; choose a shorter folder"
        )
    variables = {"DOCKER_HOST": f"unix://{socket}"}
    command = ["dockerd", "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
    command += ["--host", f"unix://{socket}", "--pidfile", str(folder / "dockerd.pid")]
    command += ["--config-file", str(folder / "daemon.json"), "--group", "root"]
    if storage_driver:
        command += ["--storage-driver", storage_driver]
    # Addresses of its own, so that it does not touch the bridges of this machine's other engines.
    settings = {
        "bridge": "none",
        # Without a bridge, the engine cannot find this address itself.
        "host-gateway-ip": "127.0.0.1",
        "live-restore": live_restore,
        "default-address-pools": [{"base": addresses, "size": 24}],
        "shutdown-timeout": 3,
    }
    (folder / "daemon.json").write_text(json.dumps(settings))
    (folder / "dockerd.pid").unlink(missing_ok=True)
    process = spawn(command, folder / "dockerd.log", "docker", environment({}))
    _started.append(process)
    (folder / "docker.pid").write_text(f"{process.pid}\n")
    deadline = time.monotonic() + PATIENCE
    while not _docker(["version"], variables, check=False):
        if process.poll() is not None or time.monotonic() > deadline:
            what = "exited" if process.poll() is not None else f"is not ready after {PATIENCE} s"
            end = (folder / "dockerd.log").read_text(errors="replace")[-1500:]
            raise ServiceError(f"dockerd {what}: {end}")
        time.sleep(0.1)
    present = _docker(["images", "--format", "{{.Repository}}:{{.Tag}}"], variables) or ""
    if BUSYBOX not in present.split():
        import_busybox(variables)
    if python and PYTHON not in present.split():
        import_python(variables)
    return variables


def stop(folder: Path) -> None:
    """Stop the engine of ``folder``; do nothing if none runs."""
    try:
        pid = int((folder / "docker.pid").read_text())
    except FileNotFoundError:
        return
    send_signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while is_alive(pid):
        if time.monotonic() > deadline:
            send_signal(pid, signal.SIGKILL)
            deadline += 20
        time.sleep(0.05)
    (folder / "docker.pid").unlink()


def kill(folder: Path) -> None:
    """Kill the daemon, to simulate a crash; its containers may continue."""
    pid = int((folder / "docker.pid").read_text())
    send_signal(pid, signal.SIGKILL)
    while is_alive(pid):
        time.sleep(0.02)


def destroy(folder: Path, *, keep_files: bool = False) -> None:
    """Stop an engine; remove its containers, its networks' bridges and its files.

    The bridges of an engine that was only stopped would occupy the addresses of the next engine.

    Args:
        folder: The folder of the engine.
        keep_files: Keep the engine's files.
    """
    folder = folder.resolve()
    variables = {"DOCKER_HOST": f"unix://{folder}/docker.sock"}
    if (folder / "docker.pid").exists():
        containers = (_docker(["ps", "-aq"], variables, check=False) or "").split()
        if containers:
            _docker(["rm", "-f", *containers], variables, check=False)
        _docker(["network", "prune", "-f"], variables, check=False)
    stop(folder)
    _remove_bridges(folder)
    with open("/proc/self/mounts") as mounts:
        below = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{folder}/")]
    for mount in reversed(below):
        subprocess.run(["umount", "-l", mount], check=False)
    if not keep_files:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_bridges(folder: Path) -> None:
    """Remove the bridges of networks that the engine created and did not remove."""
    database = folder / "data" / "network" / "files" / "local-kv.db"
    kept = database.read_bytes() if database.exists() else b""
    named = {name.decode() for name in re.findall(rb"br-[0-9a-f]{12}", kept)}
    for bridge in sorted(named & set(os.listdir("/sys/class/net"))):
        subprocess.run(["ip", "link", "del", bridge], check=False, env=environment({}))


def import_busybox(variables: dict[str, str]) -> None:
    """Build the small image: busybox, and a link for each of its commands."""
    busybox = shutil.which("busybox", path=environment({})["PATH"])
    if busybox is None:
        raise ServiceError("'busybox' is not on PATH; run: integration/install.sh docker")
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        for name in ("bin", "etc", "tmp", "root", "dev", "proc", "sys"):
            (folder / name).mkdir()
        (folder / "tmp").chmod(0o1777)
        shutil.copy2(busybox, folder / "bin" / "busybox")
        names = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
        for name in names.stdout.split():
            if name != "busybox":
                (folder / "bin" / name).symlink_to("busybox")
        (folder / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        _import(folder, BUSYBOX, ["ENV PATH=/bin"], variables)


def import_python(variables: dict[str, str]) -> None:
    """Build the image with busybox and Debian's Python, including its shared libraries."""
    python = Path("/usr/bin/python3").resolve()
    if not python.exists():
        raise ServiceError("'/usr/bin/python3' does not exist; run: integration/install.sh docker")
    library = Path(f"/usr/lib/{python.name}")
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        for name in ("bin", "etc", "tmp", "root", "dev", "proc", "sys", "usr/bin", "usr/lib"):
            (folder / name).mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        busybox = shutil.which("busybox", path=environment({})["PATH"])
        if busybox is not None:
            shutil.copy2(busybox, folder / "bin" / "busybox")
            for name in ("sh", "cat", "ls", "sleep", "env", "echo", "hostname", "test"):
                (folder / "bin" / name).symlink_to("busybox")
        shutil.copy2(python, folder / "usr" / "bin" / python.name)
        for name in ("python3", "python"):
            (folder / "usr" / "bin" / name).symlink_to(python.name)
        shutil.copytree(
            library,
            folder / "usr" / "lib" / library.name,
            symlinks=False,
            ignore_dangling_symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "test", "idlelib", "tkinter", "config-*"),
        )
        (folder / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        linked = [python, *sorted((library / "lib-dynload").glob("*.so"))]
        for path in _libraries(linked):
            target = folder / str(path).lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        _import(folder, PYTHON, ["ENV PATH=/usr/bin:/bin"], variables)


def _libraries(programs: list[Path]) -> list[Path]:
    """Return the shared libraries that programs link to, including the loader."""
    listed = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    ).stdout
    paths = {part for line in listed.split("\n") for part in line.split() if part.startswith("/")}
    return sorted(Path(path) for path in paths if not path.endswith(":") and Path(path).is_file())


def _import(folder: Path, tag: str, changes: list[str], variables: dict[str, str]) -> None:
    options = [part for change in changes for part in ("--change", change)]
    command = ["docker", "import", *options, "-", tag]
    process = subprocess.Popen(
        command, env=environment(variables), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stdin is not None
    with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
        for path in sorted(folder.iterdir()):
            archive.add(path, path.name)
    process.stdin.close()
    if process.wait():
        raise ServiceError(f"docker import {tag} failed")


def _docker(command: list[str], variables: dict[str, str], check: bool = True) -> str | None:
    done = subprocess.run(
        ["docker", *command],
        env=environment(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    if done.returncode == 0:
        return done.stdout or " "
    if check:
        raise ServiceError(f"docker {' '.join(command)}: {done.stderr or done.stdout}")
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a separate Docker Engine on this machine.")
    parser.add_argument("do", choices=("start", "stop"))
    parser.add_argument("folder", type=Path, help="the folder of the engine's files")
    parser.add_argument("--python", action="store_true", help="also build an image with Python")
    arguments = parser.parse_args()
    if arguments.do == "stop":
        destroy(arguments.folder)
        return 0
    try:
        variables = start(arguments.folder, python=arguments.python)
    except ServiceError as e:
        stop(arguments.folder)
        print(f"docker: {e}", file=sys.stderr)
        return 1
    for key, value in variables.items():
        print(f"export {key}={value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
