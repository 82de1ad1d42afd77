"""List the jobs of a Slurm cluster whose accounting has COUNT ended jobs: slurm_list.py COUNT.

The script starts a separate cluster with accounting, and writes the jobs into its database.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from api import get_runner

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "integration" / "services"))
import slurm

count = int(sys.argv[1])


def fill(folder: Path) -> None:
    """Write ended jobs of this user into the database, two in each minute."""
    now = int(time.time())
    mariadb = ["mariadb", f"--socket={slurm.database_socket(folder)}", "slurm_acct"]
    described = subprocess.run(
        [*mariadb, "-N", "-e", "describe torchx_job_table"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    columns = {line.split("\t")[0] for line in described.splitlines()}
    fixed = {
        "account": "'research'",
        "`partition`": "'main'",
        "id_assoc": "(select min(id_assoc) from torchx_assoc_table where user = 'root')",
        "state": "3",
        "nodelist": "'n1'",
        "nodes_alloc": "1",
        "node_inx": "'0'",
        "priority": "1",
        "cpus_req": "1",
        "exit_code": "0",
        "tres_alloc": "'1=1,2=100,4=1,5=1'",
        "tres_req": "'1=1,2=100,4=1,5=1'",
        "work_dir": "'/tmp'",
        "id_user": str(os.getuid()),
        "id_group": "0",
        "id_resv": "0",
        "id_wckey": "0",
        "het_job_id": "0",
        "het_job_offset": "4294967294",
        "state_reason_prev": "0",
        "timelimit": "60",
    }
    fixed = {key: value for key, value in fixed.items() if key.strip("`") in columns}
    names = [*fixed, "job_name", "id_job", "time_submit", "time_eligible", "time_start", "time_end"]
    rows = []
    for number in range(count):
        begun = now - 60 * (count - number) // 2
        times = f"{begun}, {begun}, {begun + 1}, {begun + 30}"
        rows.append(f"({', '.join(fixed.values())}, 'train-0', {100_000 + number}, {times})")
    sql = f"insert into torchx_job_table ({', '.join(names)}) values\n" + ",\n".join(rows)
    subprocess.run(mariadb, input=sql, text=True, check=True)


with tempfile.TemporaryDirectory(prefix="torchx-slurm-") as name:
    folder = Path(name)
    try:
        os.environ.update(slurm.start(folder, accounting=True))
        fill(folder)
        with get_runner() as runner:
            runner.scheduler_run_opts("slurm")  # Load the scheduler's modules before measuring.
            begun = time.perf_counter()
            found = len(runner.list("slurm"))
            seconds = time.perf_counter() - begun
    finally:
        slurm.stop(folder)
if found < count:
    raise SystemExit(f"listed {found} of {count}")
print({"seconds": seconds, "jobs": found})
