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

#: The distribution that provides each scheduler.
SCHEDULERS = {
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
}
#: The distribution that provides each workspace builder.
WORKSPACES = {"docker": "torchx-workspace-docker"}
#: The distribution that provides each module of built-in components.
COMPONENTS = dict.fromkeys(("dist", "metrics", "serve", "utils"), "torchx-components")
#: The distribution that provides each sub-command of ``torchx`` outside torchx-cli.
COMMANDS = {
    "conformance": "torchx-testing",
    "dashboard": "torchx-dashboard",
    "sweep": "torchx-sweep",
    "tracker": "torchx-tracker",
}
#: The distribution that provides each tracker.
TRACKERS = {name: f"torchx-tracker-{name}" for name in ("fsspec", "mlflow", "wandb")}
#: The distribution that provides each log sink.
LOG_SINKS = dict.fromkeys(("file", "fsspec", ALL), "torchx-log-sinks")
#: The distribution that provides each notifier.
NOTIFIERS = dict.fromkeys(("command", "webhook", ALL), "torchx-notify")

#: The distribution that provides each kind of host.
HOSTS = {"ssh": "torchx-host-ssh"}
#: The distribution that provides the named resources with each pattern of names.
RESOURCES = {"aws_*": "torchx-resources-aws"}
#: The distribution that provides the supervisor of each scheduler's apps.
SUPERVISORS = {"kubernetes": "torchx-k8s-supervisor"}


def _install_hook(
    record: Callable[..., R], distributions: Mapping[str, str]
) -> Callable[[], Iterator[R]]:
    """Return a hook that yields a record for each name, with the command that installs it."""

    @hookimpl(trylast=True)
    def hook() -> Iterator[R]:
        for name, distribution in distributions.items():
            yield record(name, "", install=f"pip install {distribution}")

    return hook


torchx_schedulers = _install_hook(SchedulerPlugin, SCHEDULERS)
torchx_workspaces = _install_hook(WorkspacePlugin, WORKSPACES)
torchx_commands = _install_hook(CommandPlugin, COMMANDS)
torchx_trackers = _install_hook(TrackerPlugin, TRACKERS)
torchx_log_sinks = _install_hook(LogSinkPlugin, LOG_SINKS)
torchx_notifiers = _install_hook(NotifierPlugin, NOTIFIERS)
torchx_hosts = _install_hook(HostPlugin, HOSTS)
torchx_named_resources = _install_hook(ResourcePlugin, RESOURCES)
torchx_supervisors = _install_hook(SupervisorPlugin, SUPERVISORS)


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
