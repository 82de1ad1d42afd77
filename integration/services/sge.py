"""Start and stop a private Grid Engine cluster on this machine, with the execution hosts n1 to n3.

    integration/services/sge.py start FOLDER [--hosts 3]
    export PATH=FOLDER/bin:$PATH
    integration/services/sge.py stop FOLDER

Grid Engine identifies a host by its name and its address. So each host has its own namespaces for
its name, its network and its mounts. The host ``head`` runs the qmaster; a bridge in its namespace
connects the hosts. The namespaces, and the network in them, end with the processes of the cluster.
The commands in FOLDER/bin run Debian's commands on ``head``.

All files are below FOLDER. The daemons and the namespaces need root. ``integration/install.sh sge``
installs the programs. FOLDER/pids has the ids of the processes; ``stop`` ends only these and the
processes of the cluster's jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
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

HOSTS = 3
SLOTS = 16  # The slots of each host; they may be more than this machine's CPUs.
COMMANDS = (
    *("qsub", "qstat", "qdel", "qhold", "qrls", "qacct", "qalter", "qconf", "qhost", "qmod"),
    "qresub",
)
PROGRAMS = Path("/usr/lib/gridengine")
DATA = Path("/usr/share/gridengine")
INSTALLED = Path("/var/lib/gridengine")
# The name of the cell, which is the directory below SGE_ROOT that has the cluster's configuration.
CELL = "default"
QMASTER_PORT = 6444
EXECD_PORT = 6445
# How long a daemon may take to start, in seconds.
PATIENCE = 120.0

BOOTSTRAP = """\
admin_user              root
default_domain          none
ignore_fqdn             false
spooling_method         classic
spooling_lib            libspoolc
spooling_params         {common};{folder}/qmaster
binary_path             /usr/sbin
qmaster_spool_dir       {folder}/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
"""

# Changes to Debian's configuration of a new cluster: allow jobs of root, and use short intervals.
CONFIGURATION = {
    "execd_spool_dir": "{folder}/execd",
    "mailer": "/bin/true",
    "min_uid": "0",
    "min_gid": "0",
    "load_report_time": "00:00:01",
    "max_unheard": "00:00:20",
    "reporting_params": (
        "accounting=true reporting=false flush_time=00:00:01 accounting_flush_time=00:00:00"
        " joblog=false sharelog=00:00:00"
    ),
    "execd_params": "ENABLE_ADDGRP_KILL=true",
}
SCHEDULER = {
    "schedule_interval": "0:0:1",
    "flush_submit_sec": "1",
    "flush_finish_sec": "1",
    "schedd_job_info": "true",
    "load_formula": "slots",
}

EXECUTION_HOST = """\
hostname              {name}
load_scaling          NONE
complex_values        slots={slots},gpu=4
user_lists            NONE
xuser_lists           NONE
projects              NONE
xprojects             NONE
usage_scaling         NONE
report_variables      NONE
"""

PARALLEL_ENVIRONMENT = """\
pe_name            smp
slots              999
user_lists         NONE
xuser_lists        NONE
start_proc_args    NONE
stop_proc_args     NONE
allocation_rule    $pe_slots
control_slaves     FALSE
job_is_first_task  TRUE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""

# The largest number of jobs of a host that run at the same time.
_JOBS = 100
# Daemons outlive this process. The list keeps their Popen objects, whose deletion would warn.
_started: list[subprocess.Popen[bytes]] = []


def start(folder: Path, *, hosts: int = HOSTS) -> dict[str, str]:
    """Start a cluster.

    Args:
        folder: A new or empty directory.
        hosts: Number of execution hosts, named n1, n2 and so on.

    Returns:
        The environment variables by which clients find the cluster.

    Raises:
        ServiceError: A daemon does not start. The daemons that have started are stopped.
    """
    folder = folder.resolve()
    try:
        return _start(folder, [f"n{number}" for number in range(1, hosts + 1)])
    except BaseException:
        stop(folder)
        raise


def _start(folder: Path, hosts: list[str]) -> dict[str, str]:
    if not PROGRAMS.exists():
        raise ServiceError("Grid Engine is not installed; run: integration/install.sh sge")
    folder.mkdir(parents=True, exist_ok=True)
    _make_network(folder, hosts)
    _make_cell(folder)
    start_qmaster(folder)
    _configure(folder, hosts)
    start_hosts(folder, hosts)
    return {"PATH": f"{folder}/bin:{os.environ.get('PATH', os.defpath)}"}


def start_qmaster(folder: Path) -> None:
    """Start sge_qmaster, and wait until it answers.

    Raises:
        ServiceError: sge_qmaster does not answer in time.
    """
    folder = folder.resolve()
    _spawn(folder, "qmaster", [str(PROGRAMS / "sge_qmaster")], host="head")

    def answers() -> bool:
        return _run(folder, "head", ["qconf", "-sconf"], check=False).returncode == 0

    _wait(folder, "qmaster", answers)


def kill_qmaster(folder: Path) -> None:
    """Kill sge_qmaster, as a crash of its machine would."""
    pid = recorded_pids(folder.resolve())["qmaster"]
    os.kill(pid, signal.SIGKILL)
    wait_until_ended([pid], PATIENCE)


def start_hosts(folder: Path, names: Sequence[str]) -> None:
    """Start sge_execd on execution hosts, and wait until they report their load.

    Raises:
        ServiceError: A host does not report its load in time.
    """
    folder = folder.resolve()
    for name in names:
        _spawn(folder, f"execd-{name}", [str(PROGRAMS / "sge_execd")], host=name)

    def all_report_their_load() -> bool:
        lines = _run(folder, "head", ["qhost"], check=False).stdout.split("\n")
        loads = {fields[0]: fields[6] for fields in map(str.split, lines) if len(fields) > 7}
        return all(loads.get(name, "-") != "-" for name in names)

    _wait(folder, f"execd-{names[0]}", all_report_their_load)


def kill_host(folder: Path, name: str) -> None:
    """Kill sge_execd and the jobs of an execution host, as a crash of the host would."""
    folder = folder.resolve()
    keeper = recorded_pids(folder)[name]
    namespace = os.readlink(f"/proc/{keeper}/ns/uts")
    pids = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # The process has ended.
            if int(path.name) != keeper and os.readlink(path / "ns" / "uts") == namespace:
                pids.append(int(path.name))
    for pid in pids:
        send_signal(pid, signal.SIGKILL)
    wait_until_ended(pids, PATIENCE)


def stop(folder: Path) -> None:
    """Kill the processes of a cluster and of its jobs, if they run."""
    folder = folder.resolve()
    pids = recorded_pids(folder)
    jobs = _job_processes(folder)
    for pid in (*reversed(pids.values()), *jobs):
        send_signal(pid, signal.SIGKILL)
    wait_until_ended(pids.values(), 5)
    (folder / "pids").unlink(missing_ok=True)


def _job_processes(folder: Path) -> list[int]:
    """Return the processes of jobs and their shepherds, which outlive sge_execd."""
    mine = f"SGE_ROOT={folder}/root".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mine in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
        except OSError:
            continue  # The process has ended, or belongs to another user.
    return found


def _make_network(folder: Path, hosts: list[str]) -> None:
    """Create the namespaces of the hosts and connect them."""
    addresses = {name: f"10.88.0.{number}" for number, name in enumerate(["head", *hosts], 1)}
    lines = ["127.0.0.1 localhost", *(f"{at} {name}" for name, at in addresses.items())]
    (folder / "hosts").write_text("\n".join(lines) + "\n")
    for name in addresses:
        ready = folder / f"{name}.ready"
        script = (
            'hostname "$1" && ip link set lo up && mount --bind "$2" /etc/hosts && touch "$3"'
            " && exec sleep infinity"
        )
        command = ["unshare", "--uts", "--net", "--mount", "--propagation", "private"]
        command += ["sh", "-c", script, "sh", name, str(folder / "hosts"), str(ready)]
        _spawn(folder, name, command)
        _wait(folder, name, ready.exists)
    bridge = "ip link add cluster type bridge && ip link set cluster up"
    _run(folder, "head", ["sh", "-c", f"{bridge} && ip addr add 10.88.0.1/24 dev cluster"])
    for name in hosts:
        target = str(recorded_pids(folder)[name])
        link = f"to-{name}"
        _run(
            folder,
            "head",
            ["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", target],
        )
        _run(folder, "head", ["ip", "link", "set", link, "master", "cluster", "up"])
        _run(folder, name, ["ip", "addr", "add", f"{addresses[name]}/24", "dev", "eth0"])
        _run(folder, name, ["ip", "link", "set", "eth0", "up"])


def _make_cell(folder: Path) -> None:
    """Write the files of a new cluster."""
    root = folder / "root"
    common = root / CELL / "common"
    common.mkdir(parents=True)
    for name in ("qmaster", "execd", "bin"):
        (folder / name).mkdir()
    for name in ("bin", "lib", "util", "utilbin"):
        (root / name).symlink_to(INSTALLED / name)
    (common / "bootstrap").write_text(BOOTSTRAP.format(folder=folder, common=common))
    (common / "act_qmaster").write_text("head\n")
    defaults = (DATA / "default-configuration").read_text()
    changes = {key: value.format(folder=folder) for key, value in CONFIGURATION.items()}
    (folder / "configuration").write_text(_changed(defaults, changes))
    spooling = ["classic", "libspoolc", f"{common};{folder}/qmaster"]
    _run(folder, "head", [str(PROGRAMS / "spoolinit"), *spooling, "init"])
    resources = DATA / "util" / "resources"
    for kind, source in (
        ("configuration", str(folder / "configuration")),
        ("complexes", str(resources / "centry")),
        ("usersets", str(resources / "usersets")),
        ("managers", "root"),
    ):
        _run(folder, "head", [str(PROGRAMS / "spooldefaults"), kind, source])
    for name in COMMANDS:
        path = folder / "bin" / name
        path.write_text(
            "#!/bin/sh\n"
            # Jobs inherit PATH, and must find Debian's commands instead of these.
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
            f"exec {' '.join(_entering(folder, 'head'))} /usr/bin/env"
            f' --chdir="$PWD" {" ".join(_assignments(folder))} {name} "$@"\n'
        )
        path.chmod(0o755)


def _configure(folder: Path, hosts: list[str]) -> None:
    """Add the hosts, a queue, a parallel environment and a resource for GPUs."""
    shown = _run(folder, "head", ["qconf", "-ssconf"]).stdout
    _load(folder, "-Msconf", "scheduler", _changed(shown, SCHEDULER))
    resources = _run(folder, "head", ["qconf", "-sc"]).stdout
    gpu = "gpu gpu INT <= YES JOB 0 0\n"
    _load(folder, "-Mc", "resources", resources + gpu)
    _load(folder, "-Ap", "pe", PARALLEL_ENVIRONMENT)
    _run(folder, "head", ["qconf", "-as", "head"])
    (folder / "local").mkdir()
    for name in hosts:
        _run(folder, "head", ["qconf", "-ah", name])
        # Grid Engine kills all processes that have the group id of an ended job. So the hosts of
        # all clusters on this machine need ids of their own.
        first = 1_000_000 + _JOBS * recorded_pids(folder)[name]
        local = folder / "local" / name
        local.write_text(f"gid_range {first}-{first + _JOBS - 1}\n")
        _run(folder, "head", ["qconf", "-Aconf", str(local)])
        _load(folder, "-Ae", f"host-{name}", EXECUTION_HOST.format(name=name, slots=SLOTS))
    _load(
        folder,
        "-Ahgrp",
        "group",
        f"group_name @allhosts\nhostlist {' '.join(hosts)}\n",
    )
    template = _run(folder, "head", ["qconf", "-sq"]).stdout
    changes = {
        "qname": "all.q",
        "hostlist": "@allhosts",
        "slots": str(SLOTS),
        "pe_list": "smp",
        "shell": "/bin/bash",
        "load_thresholds": "NONE",
    }
    _load(folder, "-Aq", "queue", _changed(template, changes))


def _load(folder: Path, option: str, name: str, text: str) -> None:
    """Pass a text to an option of qconf that reads a file."""
    path = folder / f"{name}.conf"
    path.write_text(text)
    _run(folder, "head", ["qconf", option, str(path)])


def _changed(text: str, changes: dict[str, str]) -> str:
    """Return a text of lines ``NAME VALUE`` in which ``changes`` replace the values of names."""
    lines = []
    for line in text.split("\n"):
        name = line.partition(" ")[0]
        lines.append(f"{name} {changes[name]}" if name in changes else line)
    return "\n".join(lines)


def _assignments(folder: Path) -> list[str]:
    return [
        f"SGE_ROOT={folder}/root",
        f"SGE_CELL={CELL}",
        f"SGE_QMASTER_PORT={QMASTER_PORT}",
        f"SGE_EXECD_PORT={EXECD_PORT}",
        "SGE_ND=1",  # This keeps the daemons in the foreground.
    ]


def _entering(folder: Path, host: str) -> list[str]:
    target = str(recorded_pids(folder)[host])
    return ["nsenter", "--target", target, "--uts", "--net", "--mount"]


def _spawn(folder: Path, name: str, command: Sequence[str], host: str = "") -> None:
    if host:
        command = [*_entering(folder, host), "env", *_assignments(folder), *command]
    _started.append(spawn_recorded(folder, name, command, "sge", {}))


def _run(
    folder: Path, host: str, command: Sequence[str], check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command on a host of the cluster."""
    entering = [*_entering(folder, host), "env", *_assignments(folder)]
    return run([*entering, *command], {}, PATIENCE, check)


def _wait(folder: Path, name: str, ready: Callable[[], bool]) -> None:
    logs = (folder / f"{name}.out", folder / "qmaster" / "messages")
    wait_until_ready(folder, name, ready, logs, PATIENCE)


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Start or stop a private Grid Engine cluster on this machine."
    )
    parser.add_argument("do", choices=("start", "stop"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hosts", type=int, default=HOSTS)
    arguments = parser.parse_args()
    if arguments.do == "stop":
        stop(arguments.folder)
        return 0
    return print_exports("sge", lambda: start(arguments.folder, hosts=arguments.hosts))


if __name__ == "__main__":
    sys.exit(main())
