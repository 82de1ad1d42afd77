"""Use NeMo-Run's SSH tunnel to a Slurm cluster that is 150 ms away: ssh_nemo.py WHAT COUNT.

WHAT selects what is measured: the submission of a job (``submit``), or the status of COUNT jobs
(``status``). The tunnel is connected before.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from ssh_site import Site, site

what, count = sys.argv[1], int(sys.argv[2])


def experiment(place: Site, title: str, tunnel: Any, size: int) -> Any:
    """Submit an experiment of several jobs, and return it."""
    import nemo_run as run

    with run.Experiment(title) as created:
        for k in range(size):
            executor = run.SlurmExecutor(
                account="root",
                partition="main",
                nodes=1,
                ntasks_per_node=1,
                tunnel=tunnel,
                packager=run.Packager(),
                additional_parameters={"hold": True},
            )
            created.add(run.Script(inline="true"), executor=executor, name=f"t{k}")
        created.run(detach=True)
    return created


def seconds(place: Site) -> float:
    import nemo_run as run

    tunnel = run.SSHTunnel(
        host="127.0.0.1",
        user=place.user,
        port=place.port,
        identity=str(place.machines / "key"),
        job_dir=str(place.machines / "home-bash" / "nemo"),
    )
    tunnel.connect()
    experiment(place, "first", tunnel, 1)
    begun = time.monotonic()
    second = experiment(place, "second", tunnel, count if what == "status" else 1)
    submitted = time.monotonic() - begun
    if what == "submit":
        return submitted
    begun = time.monotonic()
    found = second.status(return_dict=True)
    assert len(found) == count, found
    return time.monotonic() - begun


os.environ["NEMORUN_HOME"] = os.getcwd()
with site(accounting=True) as place:
    found = seconds(place)
print({"seconds": found})
