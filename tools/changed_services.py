"""Print the folders of integration/ whose back end changed: the gate runs all of their tests.

If a double of a service changed, also print ``doubles``: the gate runs the tests of the doubles.
The change has the commits since ``GATE_BASE``, or since twelve hours before the last commit.
In a clone without such a commit, every service has changed.
"""

from __future__ import annotations

import os
import subprocess
import sys

from workspace import ROOT, SERVICES

#: The folders of integration/ that test a distribution with its services.
FOLDERS = {
    "torchx-dashboard": "dashboard",
    "torchx-host-ssh": "ssh",
    "torchx-k8s-supervisor": "k8s",
    "torchx-resilience": "pytorch",
    "torchx-sched-aws": "aws",
    "torchx-sched-docker": "docker",
    "torchx-sched-k8s": "k8s",
    "torchx-sched-local": "local",
    "torchx-sched-lsf": "lsf",
    "torchx-sched-htcondor": "htcondor",
    "torchx-sched-mcad": "k8s",
    "torchx-sched-sge": "sge",
    "torchx-sched-slurm": "slurm",
    "torchx-tracker": "trackers",
    "torchx-tracker-fsspec": "trackers",
    "torchx-tracker-mlflow": "trackers",
    "torchx-tracker-wandb": "trackers",
    # Without a registry, images are built and pruned only in the tests of local_docker.
    "torchx-workspace-docker": "docker registry",
}


def services(files: list[str]) -> list[str]:
    """Return the folders of integration/ whose tests a change of these files runs."""
    found = set()
    for file in files:
        top, _, rest = file.partition("/")
        name = rest.partition("/")[0]
        if top == "packages":
            found.update(FOLDERS.get(name, "").split())
        elif top == "integration":
            found.add(name)
            if "double" in file:
                found.add("doubles")
    return sorted(found.intersection([*SERVICES, "doubles"]))


def git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    base = os.environ.get("GATE_BASE", "")
    if not base:
        until = int(git("log", "-1", "--format=%ct")) - 12 * 3600
        base = git("rev-list", "-1", f"--before={until}", "HEAD")
    files = git("diff", "--name-only", base) if base else git("ls-files")
    found = services(files.splitlines())
    print(
        f"all tests of: {' '.join(found) or '-'} (since {base[:12] or 'the start'})",
        file=sys.stderr,
    )
    print(" ".join(found))


if __name__ == "__main__":
    main()
