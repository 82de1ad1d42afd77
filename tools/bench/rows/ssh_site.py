"""A Slurm cluster that is 150 ms away over SSH, for scripts that measure it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "services"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "ssh"))
import slurm
import sshd
from service_process import run
from ssh_proxy import Proxy

# Half of a round trip, in seconds.
DELAY = 0.075
# A client that reads only its user's configuration connects to the proxy, too.
ANY_CLIENT = """\
Host 127.0.0.1
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
"""


@dataclass
class Site:
    """The cluster behind the machine ``bash``, and the working directory of the client.

    Attributes:
        machines: The directory of the SSH servers.
        laptop: The working directory.
        port: The port of the machine, behind the proxy.
        user: The user of the machine.
    """

    machines: Path
    laptop: Path
    port: int
    user: str

    def add_machine(self, name: str) -> None:
        """Add a name of the machine; its connections have a proxy of their own."""
        config = self.machines / "config"
        block = config.read_text().partition("Host bash\n")[2].partition("Host ")[0]
        proxy = Proxy(sshd.port_of(self.machines, "bash"), DELAY)
        block = block.replace(f"Port {self.port}", f"Port {proxy.port}")
        config.write_text(f"{config.read_text()}Host {name}\n{block}\n")


@contextmanager
def site(*, accounting: bool = False) -> Iterator[Site]:
    """Start a cluster, an SSH server with a user, and a proxy that delays bytes."""
    with tempfile.TemporaryDirectory(prefix="torchx-bench-", dir="/tmp") as name:
        folders = [Path(name, part) for part in ("machines", "slurm", "laptop")]
        machines, cluster, laptop = folders
        Path(name).chmod(0o755)
        for folder in folders:
            folder.mkdir()
        os.environ["XDG_RUNTIME_DIR"] = name
        os.environ["TORCHX_HOME"] = str(Path(name, "torchx"))
        try:
            variables = slurm.start(cluster, nodes=2, accounting=accounting)
            os.environ.update(sshd.start(machines, ["bash"]))
            if accounting:
                add = ["sacctmgr", "-i", "add", "user", sshd.user_of(machines, "bash")]
                run([*add, "account=root"], variables, 60.0)
            start_up = sshd.home_of(machines, "bash") / sshd.START_UP_FILES["bash"]
            start_up.write_text("".join(f"export {key}='{variables[key]}'\n" for key in variables))
            port = sshd.port_of(machines, "bash")
            proxy = Proxy(port, DELAY)
            config = machines / "config"
            text = config.read_text().replace(f"Port {port}", f"Port {proxy.port}")
            config.write_text(f"{ANY_CLIENT}{text}")
            os.chdir(laptop)
            yield Site(machines, laptop, proxy.port, sshd.user_of(machines, "bash"))
        finally:
            sshd.stop(machines)
            slurm.stop(cluster)
