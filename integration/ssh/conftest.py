"""SSH servers with users who have different shells, and hosts that reach them."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "services"))
# The conformance suite of hosts: host_conformance.py
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "packages" / "torchx-kit" / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import slurm
import sshd as service
from ssh_proxy import Proxy

from torchx_host_ssh.host import SshHost
from torchx_kit.hosts.lookup import find_host
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_specs.schedulers import Scheduler

#: Returns a host by the name of its machine. The proxy, if there is one, is between them.
Connect = Callable[..., SshHost]


@pytest.fixture(scope="session")
def machines() -> Iterator[Path]:
    """Yield the directory of the servers."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-sshd-"))
    try:
        service.start(folder)
        yield folder
    finally:
        service.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def client(machines: Path) -> Iterator[None]:
    """Let ssh of this process and its children use the configuration of the servers.

    The sockets of connections are in a new directory, so that connections of a user are not used.
    """
    runtime = tempfile.mkdtemp(prefix="tx-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{machines / 'bin'}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        yield
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture
def connect(machines: Path, client: None) -> Iterator[Connect]:
    """Return a function that makes hosts, which are closed after the test."""
    hosts: list[SshHost] = []

    def make(name: str) -> SshHost:
        hosts.append(SshHost(name))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()
        host.ssh.disconnect()


@pytest.fixture
def alias(machines: Path, client: None) -> Iterator[Callable[..., str]]:
    """Return a function that adds a machine to the configuration, with other options.

    An option replaces the one of the machine ``bash``. The result is the name of the machine.
    """
    config = machines / "config"
    before = config.read_text()

    def add(**options: object) -> str:
        name = f"m{secrets.token_hex(4)}"
        block = before.partition("Host bash\n")[2].partition("Host ")[0]
        lines = [f"    {key} {value}\n" for key, value in options.items()]
        config.write_text(f"Host {name}\n{''.join(lines)}{block}\n{config.read_text()}")
        return name

    yield add
    config.write_text(before)


@pytest.fixture
def proxy(machines: Path) -> Iterator[Callable[..., Proxy]]:
    """Return a function that starts a proxy of the machine ``bash``."""
    proxies: list[Proxy] = []

    def make(delay: float = 0.0, **options: int) -> Proxy:
        proxies.append(Proxy(service.port_of(machines, "bash"), delay, **options))
        return proxies[-1]

    yield make
    for one in proxies:
        one.close()


@pytest.fixture(scope="session")
def cluster(machines: Path, client: None) -> Iterator[Path]:
    """Yield the directory of a Slurm cluster, whose commands the machine ``bash`` has."""
    folder = Path(tempfile.mkdtemp(prefix="torchx-slurm-"))
    start_up = service.home_of(machines, "bash") / service.START_UP_FILES["bash"]
    noise = start_up.read_text()
    try:
        variables = slurm.start(folder)
        exports = [f"export {name}='{value}'\n" for name, value in variables.items()]
        start_up.write_text("".join(exports) + noise)
        yield folder
    finally:
        start_up.write_text(noise)
        find_host.cache_clear()
        slurm.stop(folder)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def work(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a new directory and return it; set TORCHX_HOME to another new directory."""
    folder = tmp_path / "laptop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    return folder


@pytest.fixture
def on_laptop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Scheduler[Any]]]:
    """Change to a folder of the laptop, and yield a function that returns a scheduler of a host."""
    folder = tmp_path / "laptop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    with contextlib.ExitStack() as schedulers:

        def create(name: str) -> Scheduler[Any]:
            scheduler = InstalledSchedulers()[name]("conformance")
            schedulers.callback(scheduler.close)
            return scheduler

        yield create
