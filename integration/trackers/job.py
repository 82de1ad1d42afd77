"""A component with two roles that report to trackers, and the program that its replicas run."""

from __future__ import annotations

import os
import sys

from torchx_specs import AppDef, BindMount, Resource, Role, macros

HERE = os.path.abspath(__file__)
RESOURCE = Resource(cpu=1, gpu=0, memMB=256)


def experiment(
    out: str,
    replicas: int = 2,
    image: str = "",
    python: str = sys.executable,
    paths: list[str] | None = None,
    mounts: list[str] | None = None,
) -> AppDef:
    """Train and evaluate, and record both.

    Args:
        out: The folder for the results.
        replicas: The number of replicas of the trainer.
        image: The image of the replicas.
        python: The Python interpreter in the image.
        paths: Folders for the module search path.
        mounts: Folders of this machine to mount in containers.
    """

    def role(name: str, number: int) -> Role:
        return Role(
            name=name,
            image=image or os.path.dirname(HERE),
            entrypoint=python,
            args=[HERE, name, macros.replica_id, out],
            env={"PYTHONPATH": os.pathsep.join(paths)} if paths else {},
            num_replicas=number,
            resource=RESOURCE,
            mounts=[BindMount(path, path) for path in mounts or []],
        )

    return AppDef(name="experiment", roles=[role("trainer", replicas), role("evaluator", 1)])


def main(role: str, replica: str, out: str) -> None:
    """Record metadata, an artifact and a source in the job's run; each replica calls this."""
    from torchx_tracker import app_run_from_env

    run = app_run_from_env()
    run.add_metadata(**{f"{role}.{replica}.done": True, f"{role}.note": "é $HOME ${app_id}"})
    path = os.path.join(out, f"{role}-{replica}.txt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(role)
    run.add_artifact(f"{role}/{replica}", path, {"role": role})
    run.add_source("dataset/1", "train")
    print("recorded as", run.job_id())


if __name__ == "__main__":
    main(*sys.argv[1:])
