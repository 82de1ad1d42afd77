"""Run `torchx status` of an app with COUNT replicas: status_replicas.py SCHEDULER COUNT.

The script starts a Slurm cluster, in which the job stays pending because each replica needs a node,
or a double of Kubernetes, in which the replicas run. The double needs the packages of
integration/requirements-k8s.txt, which this script installs into a new environment.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api import app, get_runner

INTEGRATION = Path(__file__).resolve().parents[3] / "integration"
SERVICES = INTEGRATION / "services"
ROUNDS = 5
START_SECONDS = 900

scheduler, count = sys.argv[1], int(sys.argv[2])


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[dict[str, str]]:
    sys.path.insert(0, str(SERVICES))
    import slurm

    try:
        yield slurm.start(folder, nodes=4)
    finally:
        slurm.stop(folder)


@contextmanager
def kubernetes_double(folder: Path) -> Iterator[dict[str, str]]:
    python = folder / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", folder / "environment"], check=True)
    requirements = ["-r", INTEGRATION / "requirements-k8s.txt"]
    subprocess.run([python, "-m", "pip", "install", "-q", *requirements], check=True)
    double, program = folder / "double", SERVICES / "k8s_double.py"
    subprocess.run([python, program, "start", double], check=True, stdout=subprocess.DEVNULL)
    try:
        yield {"KUBECONFIG": str(double / "kubeconfig")}
    finally:
        subprocess.run([python, program, "stop", double], check=True)


STATE = {"slurm": "PENDING", "kubernetes": "RUNNING"}[scheduler]
SERVICE = {"slurm": slurm_cluster, "kubernetes": kubernetes_double}[scheduler]
with (
    tempfile.TemporaryDirectory(prefix="torchx-bench-", dir="/tmp") as name,
    SERVICE(Path(name)) as variables,
):
    os.environ.update(variables)
    torchx = [str(Path(sys.executable).with_name("torchx")), "status"]
    job = app(1, count, "sh", "-c", "exec sleep 3600")
    job.roles[0].image = "busybox:local" if scheduler == "kubernetes" else ""
    with get_runner() as runner:
        handle = runner.run(job, scheduler, {})
        try:
            deadline = time.monotonic() + START_SECONDS
            states = ""
            while states.count(STATE) < count:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{states.count(STATE)} of {count} replicas are {STATE}")
                time.sleep(2)
                shown = subprocess.run(
                    [*torchx, "--replicas", handle], capture_output=True, text=True, check=False
                )
                states = shown.stdout
            seconds = []
            for _ in range(ROUNDS):
                begun = time.perf_counter()
                subprocess.run([*torchx, handle], stdout=subprocess.DEVNULL, check=True)
                seconds.append(time.perf_counter() - begun)
        finally:
            runner.delete(handle)
print({"seconds": statistics.median(seconds), "replicas": count})
