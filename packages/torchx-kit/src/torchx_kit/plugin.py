"""The pruner of caches, and the commands that install known schedulers and workspace builders.

Only error messages use the commands; an installed plugin takes precedence.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchx_specs.hookspecs import PrunerPlugin, SchedulerPlugin, WorkspacePlugin, hookimpl

#: The distribution that provides each scheduler.
SCHEDULERS = {
    "local_cwd": "torchx-sched-local",
    "local_docker": "torchx-sched-docker",
    "slurm": "torchx-sched-slurm",
    "lsf": "torchx-sched-lsf",
    "kubernetes": "torchx-sched-k8s",
    "kubernetes_mcad": "torchx-sched-k8s",
    "aws_batch": "torchx-sched-aws",
    "aws_sagemaker": "torchx-sched-aws",
}
#: The distribution that provides each workspace builder.
WORKSPACES = {"docker": "torchx-workspace-docker"}


@hookimpl(trylast=True)
def torchx_schedulers() -> Iterator[SchedulerPlugin]:
    """Yield a record for each known scheduler, with the command that installs it."""
    for name, distribution in SCHEDULERS.items():
        yield SchedulerPlugin(name, "", install=f"pip install {distribution}")


@hookimpl(trylast=True)
def torchx_workspaces() -> Iterator[WorkspacePlugin]:
    """Yield a record for each known workspace builder, with the command that installs it."""
    for name, distribution in WORKSPACES.items():
        yield WorkspacePlugin(name, "", install=f"pip install {distribution}")


@hookimpl
def torchx_pruners() -> Iterator[PrunerPlugin]:
    """Yield the pruner of ``$TORCHX_HOME/cache``."""
    yield PrunerPlugin(
        "caches",
        "torchx_kit.workspace.pruning:unused_caches",
        summary="Digests of files, and results of earlier builds",
    )
