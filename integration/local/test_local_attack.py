"""Random attacks on local jobs: kills, damaged records, full disks, few file descriptors.

``TORCHX_ATTACK_SEED`` selects the random choices (default: 1). ``TORCHX_ATTACK_ROUNDS`` is the
number of rounds of each attack (default: 10). ``pytest -s`` prints the figures.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_supervisors import supervisors
from patience import wait_for
from torchx_sched_local.scheduler import create_scheduler
from torchx_specs import AppState
from torchx_specs.model.status import is_terminal

SEED = int(os.environ.get("TORCHX_ATTACK_SEED", "1"))
ROUNDS = int(os.environ.get("TORCHX_ATTACK_ROUNDS", "10"))

SUBMIT = """
import json, sys
import torchx_specs as specs
from torchx_sched_local.scheduler import create_scheduler
args = json.loads(sys.argv[1])
scheduler = create_scheduler("attack")
role = specs.Role("main", image="", entrypoint="sh", args=["-c", args["script"]],
                  num_replicas=args["replicas"])
app_id = scheduler.schedule(scheduler.submit_dryrun(
    specs.AppDef("app", [role]), {"detach": args["detach"], "log_dir": args["log_dir"]}))
print(app_id, flush=True)
scheduler.wait(app_id)
print(scheduler.describe(app_id).state.name, flush=True)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def rounds(name: str, count: int = ROUNDS) -> Iterator[random.Random]:
    """Yield a source of random choices for each round."""
    for number in range(count):
        yield random.Random(f"{SEED} {name} {number}")  # noqa: S311 - the same every time


def start(
    script: str,
    replicas: int = 1,
    detach: bool = False,
    log_dir: Path | None = None,
    prefix: str = "",
) -> subprocess.Popen[str]:
    import json

    args = {"script": script, "replicas": replicas, "detach": detach}
    args["log_dir"] = str(log_dir) if log_dir else None
    command = [sys.executable, "-c", prefix + SUBMIT, json.dumps(args)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def processes_with(mark: str) -> list[int]:
    """Return the pids of the other processes that have a mark in their command line."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            parts = Path("/proc", name, "cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in parts and int(name) != os.getpid():
            found.append(int(name))
    return found


def test_kills_while_an_app_starts(home: Path, tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for number, choice in enumerate(rounds("start")):
        mark, detach = f"54321.{os.getpid()}{number:04}", choice.random() < 0.8
        process = start(f"sleep {mark}", 20, detach)
        victim = choice.choice(["supervisor", "launcher"]) if detach else "launcher"
        signal_number = choice.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        if victim == "supervisor":
            pids = wait_for(lambda: supervisors(str(home)), pause=0)
            time.sleep(choice.uniform(0, 0.3))
            for pid in pids:
                kill(pid, signal.SIGKILL)
        else:
            time.sleep(choice.uniform(0, 0.6))
            process.send_signal(signal_number)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)  # the app still runs if the first signal came too late
        process.communicate()
        scheduler = create_scheduler("other")
        for app in scheduler.list():
            scheduler.delete(app.app_id)
        wait_for(lambda: not processes_with(f"sleep\0{mark}"))  # noqa: B023
        counts["apps left"] += len(scheduler.list())
        counts["kills"] += 1
    report("start", counts)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def test_kills_while_an_app_ends(home: Path) -> None:
    counts: Counter[str] = Counter()
    for choice in rounds("end"):
        code, detach = choice.choice([0, 3]), choice.random() < 0.5
        expected = AppState.FAILED if code else AppState.SUCCEEDED
        process = start(f"for i in $(seq 500); do echo $i; done; exit {code}", 3, detach)
        assert process.stdout is not None
        app_id = process.stdout.readline().strip()
        time.sleep(choice.uniform(0, 0.1))
        for pid in supervisors(str(home)) if detach else [process.pid]:
            kill(pid, signal.SIGKILL)
        scheduler = create_scheduler("other")
        wait_for(lambda: is_terminal(scheduler.describe(app_id).state))  # noqa: B023
        found = scheduler.describe(app_id)
        counts["wrong states"] += found.state not in (expected, AppState.CANCELLED)
        for k in range(3):
            log = home / "local" / "attack" / app_id / "main" / str(k) / "stdout.log"
            shown = "".join(scheduler.log_iter(app_id, "main", k)).encode()
            counts["incomplete logs"] += shown != read(log)
        process.kill()
        process.communicate()
        counts["kills"] += 1
        scheduler.delete(app_id)
    report("end", counts)


def test_damaged_records(home: Path) -> None:
    counts: Counter[str] = Counter()
    expected = {}
    for code, state in ((0, AppState.SUCCEEDED), (3, AppState.FAILED)):
        process = start(f"exit {code}", 2, log_dir=home / "logs")
        app_id = process.communicate()[0].split()[0]
        expected[app_id] = state
    records = ["journal", "../SUCCESS"]
    for choice in rounds("damage", 20 * ROUNDS):
        app_id = choice.choice(sorted(expected))
        path = home / "logs" / "attack" / app_id / ".torchx" / choice.choice(records)
        whole = path.read_bytes()
        i = choice.randrange(len(whole))
        changed = [
            whole[:i] + bytes([choice.randrange(256)]) + whole[i + 1 :],
            whole[:i],
            whole[:i] + b"\0" * (len(whole) - i),
            whole[:i] + whole[i + 1 :],
        ]
        path.write_bytes(choice.choice(changed))
        try:
            scheduler = create_scheduler("other")
            states = {app.app_id: app.state for app in scheduler.list()}
            found = scheduler.describe(app_id)
            # A state that the rest of the journal does not have is said to be unknown.
            is_unknown = path.name == "journal" and found.msg.endswith("state is not known")
            right = {**expected, app_id: AppState.CANCELLED} if is_unknown else expected
            counts["unknown states"] += is_unknown
            counts["wrong states"] += states != right or found.state != right[app_id]
        except Exception as e:
            counts["library errors"] += 1
            print(path.name, i, repr(e))
        path.write_bytes(whole)
        counts["damaged records"] += 1
    report("damage", counts)


def test_damaged_records_of_running_apps(home: Path) -> None:
    counts: Counter[str] = Counter()
    records = ["room", "supervisor.log"]
    for number, choice in enumerate(rounds("running")):
        mark = f"54322.{os.getpid()}{number:04}"
        process = start(f"sleep {mark} & wait", 2, choice.random() < 0.5, home / "logs")
        assert process.stdout is not None
        app_id = process.stdout.readline().strip()
        folder = home / "logs" / "attack" / app_id
        damaged = [*choice.sample(records, choice.randint(0, 2)), "journal"]
        choice.shuffle(damaged)
        for name in damaged:
            damage(folder / ".torchx" / name, choice)
        is_killed = choice.random() < 0.2
        if is_killed:  # the guard ends the app
            for pid in supervisors(str(home)) or [process.pid]:
                kill(pid, signal.SIGKILL)
        try:
            scheduler = create_scheduler("other")
            found = scheduler.describe(app_id)
            listed = [app.state for app in scheduler.list()]
            if not is_killed:
                is_right = found and found.state == AppState.RUNNING and listed == [found.state]
                counts["wrong states"] += not is_right
                scheduler.cancel(app_id)
                counts["orphans"] += len(processes_with(f"sleep\0{mark}"))
            wait_for(lambda: is_terminal(create_scheduler("third").describe(app_id).state))  # noqa: B023
            found = create_scheduler("third").describe(app_id)
            counts["wrong ends"] += found.state != AppState.CANCELLED
            scheduler.delete(app_id)
            counts["apps left"] += folder.exists() or scheduler.list() != []
        except Exception as e:
            counts["library errors"] += 1
            print(damaged, repr(e))
        wait_for(lambda: not processes_with(f"sleep\0{mark}"))  # noqa: B023
        process.communicate()
        counts["damaged apps"] += 1
    report("running", counts)


def damage(path: Path, choice: random.Random) -> None:
    """Truncate, change, empty, overwrite or remove a file, as ``choice`` selects."""
    whole = path.read_bytes() if path.exists() else b""
    i = choice.randrange(len(whole)) if whole else 0
    changed = [
        whole[:i],
        whole[:i] + bytes([choice.randrange(256)]) + whole[i + 1 :],
        b"",
        choice.randbytes(60),
        None,
    ]
    content = choice.choice(changed)
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def test_few_file_descriptors() -> None:
    counts: Counter[str] = Counter()
    for choice in rounds("descriptors"):
        limit, detach = choice.randint(50, 120), choice.random() < 0.5
        prefix = f"import resource; resource.setrlimit(7, ({limit}, {limit}))\n"
        process = start("sleep 0.2", choice.randint(limit - 10, limit + 30), detach, prefix=prefix)
        out, err = process.communicate()
        counts["wrong states"] += out.split()[1:] != ["SUCCEEDED"]
        counts["tracebacks"] += "Traceback" in err
        counts["apps"] += 1
    report("descriptors", counts)


def test_full_disks(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    disk = tmp_path / "disk"
    disk.mkdir()
    for choice in rounds("disk"):
        mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("only root may mount a small disk")
        try:
            code, detach = choice.choice([0, 3]), choice.random() < 0.5
            expected = AppState.FAILED if code else AppState.SUCCEEDED
            # An app cannot start if its disk is full before the start is recorded.
            fill = f"until [ -e {disk}/go ]; do sleep 0.01; done; head -c 3000000 /dev/zero"
            script = f"{fill}; sleep {choice.uniform(0, 0.2)}; exit {code}"
            process = start(script, choice.randint(1, 4), detach, disk / "logs")
            assert process.stdout is not None
            app_id = process.stdout.readline().strip()
            (disk / "go").touch()
            shown, _ = process.communicate()
            counts["wrong states"] += shown.strip() != expected.name
            counts["wrong states later"] += (
                create_scheduler("other").describe(app_id).state != expected
            )
            create_scheduler("other").delete(app_id)
            counts["full disks"] += 1
        finally:
            subprocess.run(["umount", "-l", str(disk)], check=True)
    report("disk", counts)


def report(name: str, counts: Counter[str]) -> None:
    """Print the figures, and fail if something went wrong."""
    print(f"\nattack {name}, seed {SEED}: {dict(counts)}")
    tried = {"kills", "damaged records", "unknown states", "damaged apps", "apps", "full disks"}
    assert {key: n for key, n in counts.items() if n and key not in tried} == {}
