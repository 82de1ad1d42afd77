"""A component with two roles, and the program of its replicas, which record data in trackers."""

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
    """Run trainers and an evaluator that record their results.

    Args:
        out: The folder of the artifacts.
        replicas: The number of trainers.
        image: The image of both roles.
        python: The Python interpreter in the image.
        paths: Folders that are added to ``PYTHONPATH``.
        mounts: Folders of this machine to mount in a container.
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
    """Record metadata, an artifact and a source of this replica."""
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
