"""A connection is cut, or the client killed, during a submission: every job is submitted once.

The random tests have ``TORCHX_SUBMISSIONS`` submissions (default: 200) and the seed
``TORCHX_SUBMISSION_SEED`` (default: 34).
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sshd as service
from ssh_proxy import Proxy

from patience import wait_for
from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.lookup import find_host
from torchx_runner import get_runner
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_runner.submissions.journal import submissions
from torchx_specs import AppDef, AppState, Role
from torchx_specs.errors import BackendError
from torchx_specs.schedulers import Scheduler

SUBMISSIONS = int(os.environ.get("TORCHX_SUBMISSIONS", "200"))
SEED = int(os.environ.get("TORCHX_SUBMISSION_SEED", "34"))
# About how many blocks the beginning of a connection has, and a submission through it.
BLOCK_BYTES = 512
BEGINNING = 60
WHOLE = 16

#: Kills clients after numbers of blocks, which a function chooses, and counts the outcomes.
KillClients = Callable[[Callable[[int], Iterable[int]]], "Counter[str]"]


@pytest.fixture
def cluster_host(work: Path, connect: Callable[[str], SshHost]) -> Iterator[SshHost]:
    """Return the machine with Slurm, by a connection that nothing cuts; cancel all jobs later."""
    host = connect("bash")
    yield host
    host.run(["scancel", "-u", host.user()])


@pytest.fixture
def slow(
    cluster_host: SshHost, proxy: Callable[..., Proxy], alias: Callable[..., str]
) -> Iterator[tuple[Proxy, str]]:
    """Return a proxy of the machine with Slurm, and the name of the machine behind it."""
    cutter = proxy(block=BLOCK_BYTES)
    name = alias(Port=cutter.port)
    yield cutter, name
    find_host(name).close()  # type: ignore[attr-defined]
    SshHost(name).ssh.disconnect()


@pytest.fixture
def prefix() -> str:
    """Return the beginning of the names of this test's jobs; Slurm lists those of other tests."""
    return f"t{secrets.token_hex(4)}-"


def jobs(host: SshHost, prefix: str) -> dict[str, list[str]]:
    """Return the numbers of a test's jobs in the queue, by their names."""
    found: dict[str, list[str]] = {}
    for line in host.run(["squeue", "-h", "-o", "%i %j"]).stdout.splitlines():
        number, _, name = line.partition(" ")
        if name.startswith(prefix):
            found.setdefault(name, []).append(number)
    return found


def app(name: str) -> AppDef:
    return AppDef(name, [Role("sh", image="", entrypoint="true")])


def cut_submissions(
    scheduler: Scheduler[Any], cutter: Proxy, host: SshHost, prefix: str, cuts: Iterable[int]
) -> Counter[str]:
    """Submit jobs while the connection is cut after a number of blocks, and check the queue."""
    submitted: dict[str, str] = {}
    outcomes: Counter[str] = Counter()
    for k, blocks in enumerate(cuts):
        name = f"{prefix}{k}"
        cutter.after(blocks, cutter.cut)
        with contextlib.suppress(BackendError):
            submitted[name] = scheduler.submit(app(name), {"extra": ["hold"]})
        outcomes["missed" if cutter.is_waiting() else "cut"] += 1
        outcomes["submitted" if name in submitted else "refused"] += 1
        cutter.after(0, lambda: None)
    assert jobs(host, prefix) == {name: [number] for name, number in submitted.items()}
    listed = {one.app_id for one in scheduler.list() if one.name.startswith(prefix)}
    assert listed == set(submitted.values())
    return outcomes


@pytest.mark.gate
def test_a_cut_at_each_step_submits_each_job_once(
    slow: tuple[Proxy, str], cluster_host: SshHost, prefix: str
) -> None:
    cutter, name = slow
    scheduler = InstalledSchedulers()[f"slurm@{name}"]("test")
    scheduler.list()  # connects
    outcomes = cut_submissions(scheduler, cutter, cluster_host, prefix, range(16))
    assert outcomes["cut"] >= 8
    assert not outcomes["refused"]
    scheduler.close()


def test_random_cuts_submit_each_job_once(
    slow: tuple[Proxy, str], cluster_host: SshHost, prefix: str
) -> None:
    cutter, name = slow
    scheduler = InstalledSchedulers()[f"slurm@{name}"]("test")
    host = find_host(name)
    assert isinstance(host, SshHost)
    generator = random.Random(SEED)  # noqa: S311 - no cryptography

    def cuts() -> Iterator[int]:
        for _ in range(SUBMISSIONS):
            scheduler.list()  # connects
            if generator.random() < 0.3:  # the beginning of a connection is cut
                host.close()
                host.ssh.disconnect()
                yield generator.randrange(BEGINNING + WHOLE)
            else:
                yield generator.randrange(WHOLE)

    outcomes = cut_submissions(scheduler, cutter, cluster_host, prefix, cuts())
    print(f"{dict(outcomes)}, seed {SEED}")
    assert min(outcomes["cut"], outcomes["submitted"]) > SUBMISSIONS / 4
    scheduler.close()


@pytest.fixture
def kill_clients(
    slow: tuple[Proxy, str],
    cluster_host: SshHost,
    machines: Path,
    environment: dict[str, str],
    work: Path,
    prefix: str,
) -> KillClients:
    """Return a function that kills ``torchx run``, and checks the queue and the journal.

    Its argument returns the numbers of blocks after which ``torchx run`` is killed, for the number
    of blocks of a whole submission.
    """
    return partial(_kill_clients, *slow, cluster_host, machines, environment, work, prefix)


def _kill_clients(
    cutter: Proxy,
    name: str,
    host: SshHost,
    machines: Path,
    environment: dict[str, str],
    work: Path,
    prefix: str,
    choose: Callable[[int], Iterable[int]],
) -> Counter[str]:
    program = f"{Path(sys.executable).parent}/torchx"
    variables = {**environment, "TORCHX_HOME": os.environ["TORCHX_HOME"]}
    outcomes: Counter[str] = Counter()

    def run(k: int, blocks: int) -> int:
        """Run ``torchx``, and return how many blocks it needed."""
        before = cutter.passed
        options = ["--workspace=", "-cfg", "extra=hold", "--name", f"{prefix}{k}"]
        process = subprocess.Popen(
            [program, "run", "-s", f"slurm@{name}", *options, "utils.sh", "true"],
            env=variables,
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        cutter.after(blocks, process.kill)
        messages = process.communicate()[1].decode()
        assert process.returncode in (0, -9), messages
        outcomes["killed" if process.returncode else "ended"] += 1
        return cutter.passed - before

    run(0, sys.maxsize)  # opens the connection that the others share
    kills = [sys.maxsize, sys.maxsize, *choose(run(1, sys.maxsize))]
    for k in range(2, len(kills)):
        run(k, kills[k])
    # A helper program without a client finishes its command.
    user = service.user_of(machines, "bash")
    helpers = ["pgrep", "-u", user, "-fc", '"torchx","exec"']
    wait_for(lambda: host.run(helpers).stdout.strip() == "1")
    queued = jobs(host, prefix)
    with get_runner() as runner:
        # A job that Slurm has is found by the handle of the journal.
        recorded = {one.name: one.handle for one in submissions()}
        for k in range(len(kills)):
            numbers = queued.get(f"{prefix}{k}", [])
            assert len(numbers) < 2
            outcomes["submitted"] += len(numbers)
            handle = recorded.get(f"{prefix}{k}")
            if not numbers:
                status = runner.status(handle) if handle else None
                assert status is None or status.state in (AppState.PENDING, AppState.CANCELLED)
                continue
            assert handle is not None
            status = runner.status(handle)
            assert status is not None
            assert status.state == AppState.PENDING
        listed = Counter(one.name for one in runner.list(f"slurm@{name}"))
    assert all(listed[name] == 1 for name in queued)
    return outcomes


@pytest.mark.gate
def test_a_client_that_is_killed_submits_each_job_at_most_once(
    kill_clients: KillClients,
) -> None:
    last_steps = lambda whole: range(whole - 10, whole, 2)  # noqa: E731
    kill_clients(last_steps)


def test_random_kills_submit_each_job_at_most_once(
    kill_clients: KillClients,
) -> None:
    generator = random.Random(SEED)  # noqa: S311 - no cryptography

    def moments(whole: int) -> list[int]:
        return [generator.randrange(whole) for _ in range(SUBMISSIONS)]

    outcomes = kill_clients(moments)
    print(f"{dict(outcomes)}, seed {SEED}")
    assert min(outcomes["killed"], outcomes["submitted"]) > SUBMISSIONS / 50
