"""Start and stop a private HTCondor pool on this machine, with the nodes n1 to n4.

    integration/services/htcondor.py start FOLDER [--nodes 4] [--release trixie]
    export CONDOR_CONFIG=FOLDER/condor_config PATH=FOLDER/bin:$PATH
    integration/services/htcondor.py stop FOLDER

Debian bookworm has no HTCondor, so the daemons, the commands and the jobs run in a chroot with a
newer release. ``start`` makes the chroot if it is missing, with debootstrap, which
``integration/install.sh htcondor`` installs.

HTCondor refuses jobs of root. So the pool has its own user namespace, in which root is the user
``tester``. Outside of it, the files of the jobs belong to root. The mounts of the chroot are in a
mount namespace. Both namespaces end with the processes of the pool.

All files are below FOLDER, which must be below /tmp. The collector listens on a free port of
127.0.0.1. FOLDER/pids has the ids of the daemons; ``stop`` ends only these and the other processes
in the pool's user namespace, which include the jobs.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
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

NODES = 4
CPUS = 16  # The CPUs of each node; they may be more than this machine's CPUs.
MEMORY_MB = 4000
RELEASE = "trixie"
CHROOTS = Path("/var/tmp/torchx-chroots")
CHROOT_PACKAGES = ("condor", "python3")
COMMANDS = (
    *("condor_submit", "condor_q", "condor_history", "condor_rm", "condor_hold", "condor_release"),
    *("condor_status", "condor_version", "condor_config_val", "condor_ping", "condor_qedit"),
    *("condor_vacate_job", "condor_suspend", "condor_continue", "condor_drain", "condor_off"),
    *("condor_submit_dag", "condor_wait", "condor_userprio", "condor_tail", "condor_dagman"),
)
# The user of the daemons and of the jobs, with this id in the pool's namespace.
USER = "tester"
UID = 1000
# The variable PATH in the chroot.
PROGRAMS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How long a daemon may take to start, in seconds.
PATIENCE = 120.0

CONFIG = """\
RELEASE_DIR = /usr
BIN = /usr/bin
SBIN = /usr/sbin
LIB = /usr/lib/condor
LIBEXEC = /usr/libexec/condor
SHARE = /usr/share/condor
LOCAL_DIR = {folder}
LOG = {folder}/log
SPOOL = {folder}/spool
RUN = {folder}/run
LOCK = {folder}/run
EXECUTE = {folder}/execute
LOCAL_CONFIG_FILE =
LOCAL_CONFIG_DIR =
REQUIRE_LOCAL_CONFIG_FILE = False

CONDOR_HOST = 127.0.0.1
COLLECTOR_HOST = 127.0.0.1:{port}
NETWORK_INTERFACE = 127.0.0.1
USE_SHARED_PORT = False
UID_DOMAIN = torchx.test
FILESYSTEM_DOMAIN = torchx.test
SCHEDD_NAME = torchx@
SCHEDD_HOST = torchx@

SEC_DEFAULT_AUTHENTICATION = PREFERRED
SEC_DEFAULT_AUTHENTICATION_METHODS = FS
SEC_DEFAULT_ENCRYPTION = OPTIONAL
SEC_DEFAULT_INTEGRITY = OPTIONAL
# Daemons share a session only if one condor_master started them.
SEC_USE_FAMILY_SESSION = False
# Without this line, condor_schedd and condor_negotiator wait 20 s for each other at the first job.
SCHEDD.SEC_CLIENT_NEGOTIATION = NEVER
ALLOW_READ = *
ALLOW_WRITE = *
ALLOW_DAEMON = *
ALLOW_NEGOTIATOR = *
ALLOW_ADMINISTRATOR = *
ALLOW_ADVERTISE_STARTD = *
ALLOW_ADVERTISE_SCHEDD = *
ALLOW_ADVERTISE_MASTER = *

# Short intervals, in seconds.
NEGOTIATOR_INTERVAL = 1
NEGOTIATOR_CYCLE_DELAY = 0
NEGOTIATOR_MIN_INTERVAL = 1
SCHEDD_INTERVAL = 2
SCHEDD_MIN_INTERVAL = 1
UPDATE_INTERVAL = 5
# How long the collector remembers a node that reports no more.
CLASSAD_LIFETIME = 30
POLLING_INTERVAL = 1
PERIODIC_EXPR_INTERVAL = 1
MAX_PERIODIC_EXPR_INTERVAL = 2
STARTER_INITIAL_UPDATE_INTERVAL = 1
STARTER_UPDATE_INTERVAL = 2
SHADOW_QUEUE_UPDATE_INTERVAL = 2
JOB_DEFAULT_LEASE_DURATION = 20
KILLING_TIMEOUT = 3
MachineMaxVacateTime = 3
CONDOR_FSYNC = False
# Without these, daemons measure the machine's speed and look for programs at each start.
RunBenchmarks = False
STARTD_CRON_JOBLIST =
SCHEDD_CRON_JOBLIST =
# Each daemon has its own condor_procd; without one, it crashes in KillFamily::takesnapshot.
SCHEDD.PROCD_ADDRESS = {folder}/run/procd.schedd
JAVA =
DOCKER =
SINGULARITY =
MAIL = /bin/true

NUM_CPUS = {cpus}
MEMORY = {memory}
MACHINE_RESOURCE_GPUS = GPU-0, GPU-1, GPU-2, GPU-3
START = True
PREEMPT = False
SUSPEND = False
RANK = 0
{nodes}
{settings}
"""
NODE = """
{name}.STARTD_NAME = {name}
{name}.NETWORK_HOSTNAME = {name}
{name}.EXECUTE = {folder}/execute/{name}
{name}.PROCD_ADDRESS = {folder}/run/procd.{name}
{name}.STARTD_LOG = {folder}/log/StartLog.{name}
{name}.STARTER_LOG = {folder}/log/StarterLog.{name}
"""


# Daemons outlive this process. The list keeps their Popen objects, whose deletion would warn.
_started: list[subprocess.Popen[bytes]] = []


def start(
    folder: Path, *, nodes: int = NODES, release: str = RELEASE, settings: str = ""
) -> dict[str, str]:
    """Start a pool.

    Args:
        folder: A new or empty directory below /tmp.
        nodes: Number of nodes, named n1, n2 and so on.
        release: The Debian release whose HTCondor to use, from a chroot that :func:`make_chroot`
            has made.
        settings: More lines for the configuration.

    Returns:
        The environment variables by which clients find the pool.

    Raises:
        ServiceError: A daemon does not start. The daemons that have started are stopped.
    """
    folder = folder.resolve()
    try:
        return _start(folder, [f"n{number}" for number in range(1, nodes + 1)], release, settings)
    except BaseException:
        stop(folder)
        raise


def _start(folder: Path, nodes: list[str], release: str, settings: str) -> dict[str, str]:
    for name in ("log", "spool", "run", *(f"execute/{node}" for node in nodes), "bin"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    values = {
        "folder": folder,
        "port": _free_port(),
        "cpus": CPUS,
        "memory": MEMORY_MB,
        "nodes": "".join(NODE.format(name=name, folder=folder) for name in nodes),
        "settings": settings,
    }
    (folder / "condor_config").write_text(CONFIG.format_map(values))
    _make_namespaces(folder, release)
    _write_commands(folder)
    variables = {
        "CONDOR_CONFIG": str(folder / "condor_config"),
        "PATH": f"{folder}/bin:{os.environ.get('PATH', os.defpath)}",
    }
    _spawn(folder, "collector", ["condor_collector", "-f", "-p", str(values["port"])])
    _spawn(folder, "negotiator", ["condor_negotiator", "-f"])
    for name in nodes:
        start_node(folder, name)
    start_schedd(folder)

    def all_report() -> bool:
        done = _run(folder, ["condor_status", "-af", "Machine"], check=False)
        return set(done.stdout.split()) == set(nodes)

    _wait(folder, nodes[0], all_report)
    return variables


def start_node(folder: Path, name: str) -> None:
    """Start the condor_startd of a node."""
    _spawn(folder, name, ["condor_startd", "-f", "-local-name", name])


def start_schedd(folder: Path) -> None:
    """Start condor_schedd, and wait until it answers.

    Raises:
        ServiceError: condor_schedd does not answer in time.
    """
    _spawn(folder, "schedd", ["condor_schedd", "-f"])
    _wait(folder, "schedd", lambda: _run(folder, ["condor_q"], check=False).returncode == 0)


def kill(folder: Path, name: str) -> None:
    """Kill a daemon and the processes that it has started, as a crash of its machine would.

    Args:
        folder: The pool's directory.
        name: ``collector``, ``negotiator``, ``schedd`` or the name of a node. With condor_schedd,
            the condor_shadow of each job is killed; with a node, its jobs.
    """
    pids = [recorded_pids(folder)[name]]
    for pid in pids:  # The list grows in the loop.
        send_signal(pid, signal.SIGSTOP)  # A stopped process starts no other one.
        children = Path(f"/proc/{pid}/task/{pid}/children")
        if children.exists():
            pids += map(int, children.read_text().split())
    for pid in pids:
        send_signal(pid, signal.SIGKILL)
    wait_until_ended(pids, PATIENCE)


def stop(folder: Path) -> None:
    """Kill the processes of a pool and of its jobs, if they run."""
    folder = folder.resolve()
    pids = recorded_pids(folder)
    if "namespaces" in pids:
        for pid in _inside(pids["namespaces"]):
            send_signal(pid, signal.SIGKILL)
    for pid in pids.values():
        send_signal(pid, signal.SIGKILL)
    wait_until_ended(pids.values(), 5)
    (folder / "pids").unlink(missing_ok=True)


def _inside(holder: int) -> list[int]:
    """Return the processes in the user namespace of a process."""
    try:
        mine = os.readlink(f"/proc/{holder}/ns/user")
    except OSError:
        return []
    if mine == os.readlink("/proc/self/ns/user"):
        return []  # The process has not made its namespace yet.
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(path / "ns" / "user") == mine:
                found.append(int(path.name))
        except OSError:
            continue  # The process has ended.
    return found


def make_chroot(release: str) -> None:
    """Install the HTCondor of a Debian release below :data:`CHROOTS`, unless it is there.

    Raises:
        ServiceError: The installation failed; the message has the reason.
    """
    CHROOTS.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).resolve().parent.parent / "chroot.sh"
    root = CHROOTS / f"{release}-condor"
    with open(CHROOTS / f"{release}-condor.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [str(script), release, str(root), *CHROOT_PACKAGES],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ServiceError(f"no HTCondor of Debian {release}: {done.stderr.strip()[-500:]}")
        users = root / "etc" / "passwd"
        line = f"{USER}:x:{UID}:{UID}::/tmp:/bin/bash\n"
        if line not in users.read_text():
            with open(users, "a") as file:
                file.write(line)


def _make_namespaces(folder: Path, release: str) -> None:
    """Create the mount namespace with the chroot, and the user namespace of the pool.

    The folders that tests and jobs share have the same path in the chroot.
    """
    root = CHROOTS / f"{release}-condor"
    if not (root / ".packages").exists():
        raise ServiceError(f"HTCondor is not installed; run: {__file__} start --release {release}")
    shared = ("/proc", "/sys", "/dev", "/tmp")
    mounts = " && ".join(f'mount --rbind {path} "$1"{path}' for path in shared)
    inside = f'unshare --map-user={UID} --map-group={UID} --root="$1" --wd=/'
    script = f'{mounts} && exec {inside} sh -c \'touch "$1" && exec sleep infinity\' sh "$2"'
    ready = folder / "namespaces.ready"
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    spawn = [*command, str(root), str(ready)]
    _started.append(spawn_recorded(folder, "namespaces", spawn, "htcondor", {}))
    _wait(folder, "namespaces", ready.exists)


def _write_commands(folder: Path) -> None:
    """Create commands in FOLDER/bin that run HTCondor's commands in the pool's namespaces."""
    entering = " ".join(_entering(folder))
    for name in COMMANDS:
        path = folder / "bin" / name
        path.write_text(
            "#!/bin/sh\n"
            # Jobs inherit PATH, and must find the commands of the chroot instead of these.
            f"PATH={PROGRAMS}\n"
            "case $PWD in /tmp/*) folder=$PWD ;; *) folder=/ ;; esac\n"
            f'exec {entering} /usr/bin/env --chdir="$folder" {name} "$@"\n'
        )
        path.chmod(0o755)


def _entering(folder: Path) -> list[str]:
    target = str(recorded_pids(folder)["namespaces"])
    namespaces = ("--user", "--preserve-credentials", "--mount", "--root", "--wd")
    return ["nsenter", "--target", target, *namespaces]


def _free_port() -> int:
    """Return a port on which no program listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _spawn(folder: Path, name: str, command: list[str]) -> None:
    spawn = [*_entering(folder), *command]
    _started.append(spawn_recorded(folder, name, spawn, "htcondor", _variables(folder)))


def _run(folder: Path, command: list[str], check: bool = True) -> subprocess.CompletedProcess[str]:
    return run([*_entering(folder), *command], _variables(folder), PATIENCE, check)


def _variables(folder: Path) -> dict[str, str]:
    """Return the variables of programs in the namespaces, which do not find FOLDER/bin."""
    return {"CONDOR_CONFIG": str(folder / "condor_config"), "PATH": PROGRAMS}


def _wait(folder: Path, name: str, ready: Callable[[], bool]) -> None:
    logs = (folder / f"{name}.out", *sorted((folder / "log").glob("*Log*")))
    wait_until_ready(folder, name, ready, logs, PATIENCE)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Start or stop a private HTCondor pool on this machine."
    )
    parser.add_argument("do", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--release", default=RELEASE, help="use the HTCondor of this release")
    arguments = parser.parse_args()
    if arguments.do == "stop":
        stop(arguments.folder)
        return 0

    def start_pool() -> dict[str, str]:
        make_chroot(arguments.release)
        return start(arguments.folder, nodes=arguments.nodes, release=arguments.release)

    return print_exports("htcondor", start_pool)


if __name__ == "__main__":
    sys.exit(main())
