"""Registers the pruner of caches, and install commands for known plugins of other distributions.

An error message shows the install command of a missing plugin. An installed plugin takes precedence
over the record with its install command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from torchx_specs.hookspecs import (
    CommandPlugin,
    HostPlugin,
    LogSinkPlugin,
    NotifierPlugin,
    PrunerPlugin,
    ResourcePlugin,
    SchedulerPlugin,
    SupervisorPlugin,
    TrackerPlugin,
    WorkspacePlugin,
    hookimpl,
)
from torchx_specs.plugins.records import ALL

R = TypeVar("R")

#: The distribution that provides each module of built-in components.
COMPONENTS = dict.fromkeys(("dist", "metrics", "serve", "utils"), "torchx-components")


def _install_hook(
    record: Callable[..., R], distributions: Mapping[str, str]
) -> Callable[[], Iterator[R]]:
    """Return a hook that yields a record for each name, with the command that installs it.

    Args:
        record: The class of the records.
        distributions: The distribution that provides the plugin with each name.
    """

    @hookimpl(trylast=True)
    def hook() -> Iterator[R]:
        for name, distribution in distributions.items():
            yield record(name, "", install=f"pip install {distribution}")

    return hook


torchx_schedulers = _install_hook(
    SchedulerPlugin,
    {
        "local_cwd": "torchx-sched-local",
        "local_docker": "torchx-sched-docker",
        "slurm": "torchx-sched-slurm",
        "lsf": "torchx-sched-lsf",
        "htcondor": "torchx-sched-htcondor",
        "sge": "torchx-sched-sge",
        "kubernetes": "torchx-sched-k8s",
        "kubernetes_mcad": "torchx-sched-mcad",
        "aws_batch": "torchx-sched-aws",
        "aws_sagemaker": "torchx-sched-aws",
    },
)
torchx_workspaces = _install_hook(WorkspacePlugin, {"docker": "torchx-workspace-docker"})
torchx_commands = _install_hook(
    CommandPlugin,
    {
        "conformance": "torchx-testing",
        "dashboard": "torchx-dashboard",
        "sweep": "torchx-sweep",
        "tracker": "torchx-tracker",
    },
)
torchx_trackers = _install_hook(
    TrackerPlugin, {name: f"torchx-tracker-{name}" for name in ("fsspec", "mlflow", "wandb")}
)
torchx_log_sinks = _install_hook(
    LogSinkPlugin, dict.fromkeys(("file", "fsspec", ALL), "torchx-log-sinks")
)
torchx_notifiers = _install_hook(
    NotifierPlugin, dict.fromkeys(("command", "webhook", ALL), "torchx-notify")
)
torchx_hosts = _install_hook(HostPlugin, {"ssh": "torchx-host-ssh"})
# The key is the pattern of the resources' names.
torchx_named_resources = _install_hook(ResourcePlugin, {"aws_*": "torchx-resources-aws"})
torchx_supervisors = _install_hook(SupervisorPlugin, {"kubernetes": "torchx-k8s-supervisor"})


@hookimpl
def torchx_pruners() -> Iterator[PrunerPlugin]:
    """Yield the pruners of ``$TORCHX_HOME/cache`` and of workspaces of batch systems."""
    yield PrunerPlugin(
        "caches",
        "torchx_kit.workspace.pruning:unused_caches",
        summary="Digests of files, and results of earlier builds",
    )
    yield PrunerPlugin(
        "host-workspaces",
        "torchx_kit.workspace.host_pruning:unused_trees",
        summary="Copies of workspaces of schedulers such as slurm and slurm@login1",
    )
