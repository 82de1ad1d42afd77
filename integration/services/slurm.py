"""Start and stop a private Slurm cluster on this machine, with the nodes n1 to n4.

    integration/services/slurm.py start FOLDER [--accounting] [--nodes 4]
    export SLURM_CONF=FOLDER/slurm.conf
    integration/services/slurm.py stop FOLDER

All files are below FOLDER, and the daemons listen on free ports. Slurm's daemons need root.
``--accounting`` adds slurmdbd with a private MariaDB, which listens on a socket in FOLDER.
``integration/install.sh slurm`` installs the programs. FOLDER/pids has the ids of the daemons;
``stop`` ends only these and the processes of the cluster's jobs.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
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
CPUS = 16  # May be more than this machine's CPUs, because of the option config_overrides.
MEMORY_MB = 4000
CHROOTS = Path("/var/tmp/torchx-chroots")
CHROOT_PACKAGES = ("munge", "slurm-client", "slurmctld", "slurmd")
CHROOT_PROGRAMS = (
    *("munged", "slurmctld", "slurmd"),
    *("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun"),
)
# How long a daemon may take to start, in seconds.
PATIENCE = 120.0

SLURM_CONF = """\
ClusterName=torchx
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
SlurmdParameters=config_overrides
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
MinJobAge={min_job_age}
KillWait=3
MessageTimeout={patience}
SlurmdTimeout=300
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
JobSubmitPlugins=lua
{accounting}
{settings}
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={cpus} \
RealMemory={memory} Feature=cpu,small
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO PreemptMode=OFF
PartitionName=two Nodes=n[1-2] MaxTime=10 MaxNodes=2 State=UP
PartitionName=closed Nodes=n{nodes} AllowAccounts=nobody State=UP
PartitionName=requeued Nodes=n1 PreemptMode=REQUEUE State=UP
PartitionName=cancelled Nodes=n1 PreemptMode=CANCEL State=UP
PartitionName=graceful Nodes=n1 PreemptMode=CANCEL GraceTime=20 State=UP
PartitionName=urgent Nodes=n1 PriorityTier=10 PreemptMode=OFF State=UP
"""

# A plugin that changes the comments of jobs, as some sites do. slurmctld reads it from the folder
# of slurm.conf.
JOB_SUBMIT_LUA = """\
function slurm_job_submit(job, partitions, uid)
    job.comment = "site=test " .. (job.comment or "")
    return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
    return slurm.SUCCESS
end
"""

SLURMDBD_CONF = """\
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser=root
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct
"""


# Daemons outlive this process. The list keeps their Popen objects, whose deletion would warn.
_started: list[subprocess.Popen[bytes]] = []


def start(
    folder: Path,
    *,
    accounting: bool = False,
    nodes: int = NODES,
    min_job_age: int = 15,
    release: str = "",
    settings: str = "",
) -> dict[str, str]:
    """Start a cluster.

    Args:
        folder: A new or empty directory below /tmp.
        accounting: Whether to start slurmdbd and MariaDB.
        nodes: Number of nodes.
        min_job_age: How long the controller remembers an ended job, in seconds.
        release: The Debian release whose Slurm to use, from a chroot that :func:`make_chroot` has
            made; empty uses this machine's Slurm. A release cannot have accounting.
        settings: More lines for slurm.conf.

    Returns:
        The environment variables by which clients find the cluster.

    Raises:
        ServiceError: A daemon does not start. The daemons that have started are stopped.
    """
    folder = folder.resolve()
    try:
        return _start(folder, accounting, nodes, min_job_age, release, settings)
    except BaseException:
        stop(folder)
        raise


def _start(
    folder: Path, accounting: bool, nodes: int, min_job_age: int, release: str, settings: str
) -> dict[str, str]:
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # munged requires that every user can read the folders above its socket.
    ports = _free_ports(nodes + 2)
    host = socket.gethostname().partition(".")[0]
    values = {
        "folder": folder,
        "host": host,
        "controller": ports[0],
        "dbd": ports[1],
        "first": ports[2],
        "last": ports[2] + nodes - 1,
        "nodes": nodes,
        "cpus": CPUS,
        "memory": MEMORY_MB,
        "min_job_age": min_job_age,
        # Slurm 24.11 discards a request that is older than this many seconds. The job step of a
        # discarded request never starts.
        "patience": 60 if release else 5,
        "settings": settings,
        "accounting": "AccountingStorageType=accounting_storage/none\n"
        "JobAcctGatherType=jobacct_gather/none",
    }
    if accounting:
        values["accounting"] = (
            "AccountingStorageType=accounting_storage/slurmdbd\n"
            f"AccountingStorageHost=127.0.0.1\nAccountingStoragePort={ports[1]}\n"
            f"AccountingStoragePass={folder}/munge.socket\nAccountingStoreFlags=job_comment\n"
            "AccountingStorageEnforce=associations,limits,qos\n"
            "JobAcctGatherType=jobacct_gather/none"
        )
    _write(folder / "slurm.conf", SLURM_CONF.format_map(values), 0o644)
    _write(folder / "job_submit.lua", JOB_SUBMIT_LUA, 0o644)
    variables = {"SLURM_CONF": str(folder / "slurm.conf")}
    if release:
        # Without this file, slurmd fails unless it may change its cgroup.
        _write(folder / "cgroup.conf", "CgroupPlugin=disabled\n", 0o644)
        variables["PATH"] = f"{_enter_chroot(folder, release)}:{os.environ['PATH']}"
    _start_munge(folder, variables)
    if accounting:
        _start_database(folder)
        _write(folder / "slurmdbd.conf", SLURMDBD_CONF.format_map(values), 0o600)
        # slurmdbd has no setting for the database's socket; its client library reads a variable.
        database_variables = {**variables, "MYSQL_UNIX_PORT": database_socket(folder)}
        _spawn(folder, "slurmdbd", ["slurmdbd", "-D"], database_variables)
        _wait(
            folder, "slurmdbd", lambda: succeeds(["sacctmgr", "-n", "list", "cluster"], variables)
        )
        _run(["sacctmgr", "-i", "add", "cluster", "torchx"], variables)
        _run(["sacctmgr", "-i", "add", "account", "research"], variables)
        _run(["sacctmgr", "-i", "add", "qos", "one", "MaxJobsPerUser=1"], variables)
        _run(["sacctmgr", "-i", "add", "qos", "few", "MaxSubmitJobsPerUser=4"], variables)
        _run(
            ["sacctmgr", "-i", "add", "user", "root", "account=research", "qos=normal,one,few"],
            variables,
        )
    start_controller(folder, variables)
    for number in range(1, nodes + 1):
        command = ["slurmd", "-D", "-N", f"n{number}"]
        _spawn(folder, f"slurmd-n{number}", command, variables)
    ready = f"{nodes}"

    def all_idle() -> bool:
        done = _run(["sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D"], variables, check=False)
        return done.stdout.strip() == ready

    _wait(folder, "slurmd-n1", all_idle)
    return variables


def start_controller(folder: Path, variables: dict[str, str] | None = None) -> None:
    """Start slurmctld, and wait until it answers.

    Args:
        folder: The cluster's directory.
        variables: The variables that :func:`start` returned; a cluster in a chroot requires them.

    Raises:
        ServiceError: slurmctld does not answer in time.
    """
    variables = variables or {"SLURM_CONF": str(folder / "slurm.conf")}
    _spawn(folder, "slurmctld", ["slurmctld", "-D"], variables)
    _wait(folder, "slurmctld", lambda: succeeds(["scontrol", "ping"], variables, "is UP"))


def set_min_job_age(folder: Path, variables: dict[str, str], seconds: int) -> None:
    """Change how long the running controller remembers ended jobs.

    Args:
        folder: The cluster's directory.
        variables: The variables that :func:`start` returned.
        seconds: The new value of MinJobAge, in seconds.

    Raises:
        ServiceError: The controller refuses the change.
    """
    conf = (folder / "slurm.conf").read_text()
    changed = re.sub(r"^MinJobAge=.*$", f"MinJobAge={seconds}", conf, flags=re.MULTILINE)
    _write(folder / "slurm.conf", changed, 0o644)
    _run(["scontrol", "reconfigure"], variables)
    setting = re.compile(rf"^MinJobAge\s*= {seconds} sec", re.MULTILINE)

    def is_changed() -> bool:
        shown = _run(["scontrol", "show", "config"], variables, check=False)
        return setting.search(shown.stdout) is not None

    _wait(folder, "slurmctld", is_changed)


def kill_daemon(folder: Path, name: str) -> None:
    """Kill a daemon, slurmctld or slurmd-NODE, as a crash of its machine would."""
    pid = recorded_pids(folder)[name]
    os.kill(pid, signal.SIGKILL)
    wait_until_ended([pid], PATIENCE)


def stop(folder: Path) -> None:
    """Stop the daemons of a cluster, if they run, and kill the processes of its jobs."""
    folder = folder.resolve()
    pids = recorded_pids(folder)
    for name in reversed(pids):
        send_signal(pids[name], signal.SIGTERM)
    wait_until_ended(pids.values(), 5)
    for pid in (*pids.values(), *_job_processes(folder)):
        send_signal(pid, signal.SIGKILL)
    (folder / "pids").unlink(missing_ok=True)


def _job_processes(folder: Path) -> list[int]:
    """Return the pids of a cluster's jobs and slurmstepds; these processes may outlive slurmd."""
    mine = f"SLURM_CONF={folder}/slurm.conf".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes().split(b"\0")
            name = (path / "comm").read_text().strip()
        except OSError:
            continue  # The process has ended, or belongs to another user.
        of_job = any(variable.startswith(b"SLURM_JOB_ID=") for variable in variables)
        if mine in variables and (of_job or name == "slurmstepd"):
            found.append(int(path.name))
    return found


def make_chroot(release: str) -> None:
    """Install the Slurm of a Debian release below :data:`CHROOTS`, unless it is installed there.

    Raises:
        ServiceError: The installation failed; the message has the reason.
    """
    CHROOTS.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).resolve().parent.parent / "chroot.sh"
    with open(CHROOTS / f"{release}-slurm.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [str(script), release, str(CHROOTS / f"{release}-slurm"), *CHROOT_PACKAGES],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise ServiceError(f"no Slurm of Debian {release}: {done.stderr.strip()[-500:]}")


def _enter_chroot(folder: Path, release: str) -> Path:
    """Create commands that run the programs of a release in its chroot; return their folder.

    The chroot's mounts are in a mount namespace that ends with the cluster's processes, so nothing
    has to be unmounted. The folders that tests and jobs share have the same path in the chroot.
    """
    root = CHROOTS / f"{release}-slurm"
    shared = ("/proc", "/sys", "/dev", "/tmp")
    mounts = " && ".join(f"mount --rbind {path} {root}{path}" for path in shared)
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    _spawn(folder, "mounts", [*command, f"{mounts} && touch mounted && exec sleep infinity"], {})
    _wait(folder, "mounts", (folder / "mounted").exists)
    pid = recorded_pids(folder)["mounts"]
    programs = folder / "bin"
    programs.mkdir()
    for name in CHROOT_PROGRAMS:
        _write(
            programs / name,
            "#!/bin/sh\n"
            # Jobs inherit PATH, and must find the programs of the chroot instead of these commands.
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
            "case $PWD in /tmp/*) folder=$PWD ;; *) folder=/ ;; esac\n"
            f"exec nsenter --target {pid} --mount"
            f' chroot {root} /usr/bin/env --chdir="$folder" {name} "$@"\n',
            0o755,
        )
    return programs


def _start_munge(folder: Path, variables: dict[str, str]) -> None:
    _write(folder / "munge" / "munge.key", os.urandom(128), 0o400)
    munge = folder / "munge"
    munge.chmod(0o700)
    command = ["munged", "--foreground", "--force", f"--key-file={munge}/munge.key"]
    command += [f"--socket={folder}/munge.socket", f"--pid-file={munge}/munged.pid"]
    command += [f"--log-file={munge}/munged.log", f"--seed-file={munge}/munged.seed"]
    _spawn(folder, "munged", command, variables)
    _wait(folder, "munged", (folder / "munge.socket").exists)


def _start_database(folder: Path) -> None:
    data = folder / "mysql"
    options = [f"--datadir={data}", "--user=root"]
    _run(
        [
            *("mariadb-install-db", "--no-defaults", "--skip-test-db"),
            *("--auth-root-authentication-method=socket", *options),
        ],
        {},
    )
    sock = database_socket(folder)
    command = ["mariadbd", "--no-defaults", *options, f"--socket={sock}", "--skip-networking"]
    command += ["--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=0"]
    command += [f"--pid-file={folder}/mariadb.pid"]
    _spawn(folder, "mariadb", command, {})
    ping = ["mariadb-admin", f"--socket={sock}", "ping"]
    _wait(folder, "mariadb", lambda: succeeds(ping, {}, "alive"))


def database_socket(folder: Path) -> str:
    """Return the path of the socket on which the cluster's own database listens."""
    return str(folder / "mysql.sock")


def _free_ports(count: int) -> list[int]:
    """Return ``count`` consecutive ports on which no program listens."""
    for base in range(18000 + os.getpid() % 400 * 20, 60000, count):
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return list(range(base, base + count))
    raise ServiceError(f"there are no {count} consecutive free ports")


def _spawn(folder: Path, name: str, command: list[str], variables: dict[str, str]) -> None:
    _started.append(spawn_recorded(folder, name, command, "slurm", variables))


def _run(
    command: list[str], variables: dict[str, str], check: bool = True
) -> subprocess.CompletedProcess[str]:
    return run(command, variables, PATIENCE, check)


def succeeds(command: list[str], variables: dict[str, str], text: str = "") -> bool:
    """Return True if a command succeeds and its output contains a text."""
    done = _run(command, variables, check=False)
    return done.returncode == 0 and text in done.stdout


def _wait(folder: Path, name: str, ready: Callable[[], bool]) -> None:
    logs = (folder / f"{name}.out", folder / f"{name}.log")
    wait_until_ready(folder, name, ready, logs, PATIENCE)


def _write(path: Path, content: str | bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Start or stop a private Slurm cluster on this machine."
    )
    parser.add_argument("do", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--accounting", action="store_true")
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--release", default="", help="use the Slurm of this Debian release")
    arguments = parser.parse_args()
    if arguments.do == "stop":
        stop(arguments.folder)
        return 0

    def start_cluster() -> dict[str, str]:
        if arguments.release:
            make_chroot(arguments.release)
        return start(
            arguments.folder,
            accounting=arguments.accounting,
            nodes=arguments.nodes,
            release=arguments.release,
        )

    return print_exports("slurm", start_cluster)


if __name__ == "__main__":
    sys.exit(main())
