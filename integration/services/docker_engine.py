"""Start or stop a separate Docker Engine on this machine, with base images made without downloads.

    integration/services/docker_engine.py start FOLDER [OPTION ...]
    export DOCKER_HOST=unix://FOLDER/docker.sock
    integration/services/docker_engine.py stop FOLDER

The engine runs as root and keeps its files in FOLDER. ``integration/install.sh docker`` installs
the programs. The images are ``torchx-test/busybox:1`` (busybox-static) and, with ``--python``,
``torchx-test/python:1`` (Debian's Python with its libraries). ``stop`` removes the containers and
FOLDER, and ends only the process whose id is in FOLDER/docker.pid.

With ``--containerd-store``, containerd stores the images. With ``--root CHROOT``, the engine runs
the programs of another Debian release from a folder that ``integration/chroot.sh`` has made; FOLDER
must then be in /tmp or /var/tmp.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
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

PATIENCE = 120.0
BUSYBOX = "torchx-test/busybox:1"
PYTHON = "torchx-test/python:1"
#: The Debian packages that :func:`make_chroot` installs.
PACKAGES = ("docker.io", "containerd", "iptables")
# The commands of the image with Python, and those that the option requeue of jobs needs.
_COMMANDS = ("sh", "cat", "ls", "sleep", "env", "echo", "hostname", "test")
_REQUEUE_COMMANDS = ("awk", "date", "mv", "rm", "sed", "sort", "tail")
#: Folders that an engine in a chroot shares with this machine.
_SHARED = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp")

# Daemons outlive this process. The list keeps their Popen objects, whose deletion would warn.
_started: list[subprocess.Popen[bytes]] = []


def start(
    folder: Path,
    *,
    python: bool = False,
    storage_driver: str = "",
    live_restore: bool = False,
    addresses: str = "10.213.0.0/16",
    root: Path | None = None,
    containerd_store: bool = False,
) -> dict[str, str]:
    """Start an engine in ``folder``, or restart the engine that was stopped there.

    Args:
        folder: A new or empty folder, or the folder of a stopped engine.
        python: Whether to create the image with Python.
        storage_driver: The storage driver, for example ``overlay2``; empty for the engine's choice.
        live_restore: Whether containers continue while the daemon is stopped.
        addresses: The address range of the engine's networks; each network uses 256 addresses.
        root: The folder of another Debian release (:func:`make_chroot`) with the engine's programs;
            None runs the programs of this machine.
        containerd_store: Whether containerd stores the images (``containerd-snapshotter``).

    Returns:
        The environment variables by which clients find the engine.

    Raises:
        ServiceError: The engine does not start, or an image cannot be created.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    socket = folder / "docker.sock"
    if len(str(socket)) > 100:
        raise ServiceError(f"the path {socket} is too long for a socket; use a shorter folder")
    variables = {"DOCKER_HOST": f"unix://{socket}"}
    command = ["dockerd", "--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")]
    command += ["--host", f"unix://{socket}", "--pidfile", str(folder / "dockerd.pid")]
    command += ["--config-file", str(folder / "daemon.json"), "--group", "root"]
    if storage_driver:
        command += ["--storage-driver", storage_driver]
    if root is not None:
        command = _in_chroot(root.resolve(), command)
    # A separate address range prevents conflicts with the networks of other engines.
    settings = {
        "bridge": "none",
        # The address for the name host-gateway; without a bridge, the engine has no default.
        "host-gateway-ip": "127.0.0.1",
        "live-restore": live_restore,
        "default-address-pools": [{"base": addresses, "size": 24}],
        "shutdown-timeout": 3,
    }
    if containerd_store:
        settings["features"] = {"containerd-snapshotter": True}
    (folder / "daemon.json").write_text(json.dumps(settings))
    (folder / "dockerd.pid").unlink(missing_ok=True)
    process = spawn(command, folder / "dockerd.log", "docker", environment({}))
    _started.append(process)
    (folder / "docker.pid").write_text(f"{process.pid}\n")
    deadline = time.monotonic() + PATIENCE
    while not _docker(["version"], variables, check=False):
        if process.poll() is not None or time.monotonic() > deadline:
            state = "has ended" if process.poll() is not None else "is not ready"
            end = (folder / "dockerd.log").read_text(errors="replace")[-1500:]
            raise ServiceError(f"dockerd {state}: {end}")
        time.sleep(0.1)
    present = _docker(["images", "--format", "{{.Repository}}:{{.Tag}}"], variables) or ""
    if BUSYBOX not in present.split():
        import_busybox(variables)
    if python and PYTHON not in present.split():
        import_python(variables)
    return variables


def make_chroot(release: str) -> Path:
    """Return a folder with the Docker Engine of another Debian release; install it if missing.

    Args:
        release: The name of the release, for example ``trixie``.

    Raises:
        ServiceError: The packages cannot be installed.
    """
    folder = Path("/var/tmp/torchx-chroots", f"{release}-docker")
    script = Path(__file__).resolve().parent.parent / "chroot.sh"
    command = [str(script), release, str(folder), *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment({}))
    if done.returncode:
        raise ServiceError(
            f"cannot install the Docker Engine of Debian {release} in {folder}:"
            f" {done.stderr.strip() or done.stdout.strip()}"
        )
    return folder


def _in_chroot(root: Path, command: list[str]) -> list[str]:
    """Return a command that runs ``command`` in a chroot; its mounts end with the process."""
    folder = shlex.quote(str(root))
    # runc needs a root directory that is a mount point.
    mounts = [f"mount --bind {folder} {folder}"]
    mounts += [f"mount --rbind {path} {folder}{path}" for path in _SHARED]
    # After chroot alone, `docker exec` would run programs of this machine: a process that joins a
    # mount namespace gets the root of that namespace.
    old = f"{folder}/.old-root"
    pivot = [f"mkdir -p {old}", f"cd {folder}", "pivot_root . .old-root", "umount -l /.old-root"]
    script = " && ".join([*mounts, *pivot, 'shift && exec "$@"'])
    # Keep the mounts of containers out of this machine's namespace, where they would remain.
    isolated = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    return [*isolated, str(root), *command]


def stop(folder: Path) -> None:
    """End the engine that :func:`start` has started in ``folder``, if it runs; keep its files."""
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


def destroy(folder: Path, *, keep_files: bool = False) -> None:
    """End an engine, and remove its containers, the bridges of its networks, and its files.

    A remaining bridge would occupy its addresses, so that the next engine could not use them.

    Args:
        folder: The folder of the engine.
        keep_files: Whether to keep the files in the folder.
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
        mount_points = [line.split()[1] for line in mounts]
    for mount in reversed([point for point in mount_points if point.startswith(f"{folder}/")]):
        subprocess.run(["umount", "-l", mount], check=False)
    if not keep_files:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_bridges(folder: Path) -> None:
    """Remove the network bridges that the engine in ``folder`` created and did not remove."""
    database = folder / "data" / "network" / "files" / "local-kv.db"
    content = database.read_bytes() if database.exists() else b""
    named = {name.decode() for name in re.findall(rb"br-[0-9a-f]{12}", content)}
    for bridge in sorted(named & set(os.listdir("/sys/class/net"))):
        subprocess.run(["ip", "link", "del", bridge], check=False, env=environment({}))


def import_busybox(variables: dict[str, str]) -> None:
    """Create the image :data:`BUSYBOX`, which has busybox under the names of all its commands."""
    busybox = shutil.which("busybox", path=environment({})["PATH"])
    if busybox is None:
        raise ServiceError("busybox is not installed; run: integration/install.sh docker")
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
    """Create the image :data:`PYTHON`: some busybox commands, Debian's Python and its libraries."""
    python = Path("/usr/bin/python3").resolve()
    if not python.exists():
        raise ServiceError("/usr/bin/python3 is missing; run: integration/install.sh docker")
    library = Path(f"/usr/lib/{python.name}")
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        for name in ("bin", "etc", "tmp", "root", "dev", "proc", "sys", "usr/bin", "usr/lib"):
            (folder / name).mkdir(parents=True)
        (folder / "tmp").chmod(0o1777)
        busybox = shutil.which("busybox", path=environment({})["PATH"])
        if busybox is not None:
            shutil.copy2(busybox, folder / "bin" / "busybox")
            for name in (*_COMMANDS, *_REQUEUE_COMMANDS):
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
    """Return the shared libraries that programs link to, and the dynamic loader."""
    listed = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, check=False
    ).stdout
    paths = {text for text in listed.split() if text.startswith("/") and not text.endswith(":")}
    return sorted(Path(path) for path in paths if Path(path).is_file())


def _import(folder: Path, tag: str, changes: list[str], variables: dict[str, str]) -> None:
    options = [argument for change in changes for argument in ("--change", change)]
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
    parser = argparse.ArgumentParser(
        description="Start or stop a separate Docker Engine on this machine."
    )
    parser.add_argument("action", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", action="store_true")
    parser.add_argument("--root", type=Path)
    parser.add_argument("--containerd-store", action="store_true")
    arguments = parser.parse_args()
    if arguments.action == "stop":
        destroy(arguments.folder)
        return 0
    try:
        variables = start(
            arguments.folder,
            python=arguments.python,
            root=arguments.root,
            containerd_store=arguments.containerd_store,
        )
    except ServiceError as e:
        stop(arguments.folder)
        print(f"docker: {e}", file=sys.stderr)
        return 1
    for key, value in variables.items():
        print(f"export {key}={value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
