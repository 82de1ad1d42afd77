"""Components for training at Acme: ``acme.train.script``."""

import torchx_specs as specs


def script(
    *args: str,
    file: str,
    project: str,
    replicas: int = 1,
    h: str = "acme.small",
    max_retries: int = 0,
) -> specs.AppDef:
    """Train with a Python file on Acme's machines, and record the run.

    Args:
        args: Arguments of the file.
        file: Path of the file, which the machines can read.
        project: The project that pays for the job.
        replicas: Number of replicas.
        h: The machine of each replica.
        max_retries: How often a failed job starts again.
    """
    role = specs.Role(
        name="trainer",
        image="",
        entrypoint="python3",
        args=["-u", file, *args],
        env={"ACME_PROJECT": project, "ACME_REPLICA": specs.macros.replica_id},
        num_replicas=replicas,
        max_retries=max_retries,
        resource=specs.resource(h=h),
    )
    return specs.AppDef("train", roles=[role], metadata={"project": project})
