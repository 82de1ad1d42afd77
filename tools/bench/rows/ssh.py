"""Use a Slurm cluster that is 150 ms away over SSH: ssh.py WHAT COUNT.

WHAT selects the printed figure: the round trips of a submission with an unchanged workspace
(``submit``), the files that are sent for a workspace of COUNT files of which one has changed
(``files``), or the round trips of the status of COUNT jobs (``status``). The script starts a
cluster, an SSH server with a user, and a proxy that delays bytes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "services"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "ssh"))
import slurm
import sshd
from ssh_proxy import Proxy

from torchx_host_ssh.channel import Channel
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_specs import AppDef, Role, Workspace

what, count = sys.argv[1], int(sys.argv[2])
requests: list[tuple[Any, ...]] = []
request = Channel.request


def record(self: Channel, *arguments: Any, **options: Any) -> Any:
    requests.append(arguments)
    return request(self, *arguments, **options)


def submit(scheduler: Any, folder: Path) -> str:
    role = Role("sh", image="", entrypoint="true", workspace=Workspace({str(folder): ""}))
    return str(scheduler.submit(AppDef("app", [role]), {"extra": ["hold"]}))


def figure(scheduler: Any, folder: Path) -> int:
    """Return the figure that ``what`` selects."""
    for k in range(count if what == "files" else 10):
        (folder / f"{k}.py").write_text(f"print({k})\n")
    app_ids = [submit(scheduler, folder) for _ in range(count if what == "status" else 1)]
    scheduler.list()  # the first query finds out whether the cluster has accounting
    if what == "files":
        (folder / "1.py").write_text("print('changed')\n")
    requests.clear()
    if what == "status":
        entries = [scheduler._entry(app_id) for app_id in app_ids]
        assert len(scheduler._describe_all(entries, pending_reasons=False)) == count
        return len(requests)
    submit(scheduler, folder)
    if what == "submit":
        return len(requests)
    batches = [one[1] for one in requests if one[0] == "batch"]
    return sum(each[0] == "put_part" for batch in batches for each in batch)


with tempfile.TemporaryDirectory(prefix="torchx-bench-", dir="/tmp") as name:
    folders = [Path(name, part) for part in ("machines", "slurm", "laptop")]
    machines, cluster, laptop = folders
    Path(name).chmod(0o755)
    for folder in folders:
        folder.mkdir()
    os.environ["XDG_RUNTIME_DIR"] = name
    os.environ["TORCHX_HOME"] = str(Path(name, "torchx"))
    try:
        variables = slurm.start(cluster, nodes=2)
        os.environ.update(sshd.start(machines, ["bash"]))
        start_up = sshd.home_of(machines, "bash") / sshd.START_UP_FILES["bash"]
        start_up.write_text("".join(f"export {key}='{variables[key]}'\n" for key in variables))
        proxy = Proxy(sshd.port_of(machines, "bash"), 0.075)
        config = machines / "config"
        port = f"Port {sshd.port_of(machines, 'bash')}"
        config.write_text(config.read_text().replace(port, f"Port {proxy.port}"))
        os.chdir(laptop)
        scheduler: Any = InstalledSchedulers()["slurm@bash"]("bench")
        Channel.request = record  # type: ignore[method-assign]
        found = figure(scheduler, laptop)
        scheduler._host.close()
        scheduler._host.ssh.disconnect()
    finally:
        sshd.stop(machines)
        slurm.stop(cluster)
print({"seconds": found})
