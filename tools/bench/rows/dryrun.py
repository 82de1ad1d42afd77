"""Dry-run an app with many roles: dryrun.py SCHEDULER ROLES REPLICAS [KEY=VALUE ...]."""

from __future__ import annotations

import sys
import time

from api import app, get_runner

ARGUMENTS = ["-m", "train", "--id=${app_id}", "--rank", "${replica_id}", "--root=${img_root}"]
ARGUMENTS += [part for number in range(10) for part in (f"--option-{number}", str(number))]
VARIABLES = {"RUN": "${app_id}", "RANK": "${replica_id}"}
VARIABLES.update({f"SETTING_{number}": str(number) for number in range(10)})

scheduler, roles, replicas, *options = sys.argv[1:]
cfg: dict[str, object] = dict(option.split("=", 1) for option in options)
cfg.update({key: False for key, value in cfg.items() if value == "False"})
with get_runner() as runner:
    # Load the scheduler's modules before the measurement, as a long-lived process would have.
    runner.dryrun(app(1, 1, "/bin/true"), scheduler, cfg)
    job = app(int(roles), int(replicas), "python", *ARGUMENTS)
    for role in job.roles:
        role.env.update(VARIABLES)
    begun = time.perf_counter()
    runner.dryrun(job, scheduler, cfg)
    seconds = time.perf_counter() - begun
print({"seconds": seconds})
