"""Registers the pruner of caches, and install commands for known plugins of other distributions.

An error message shows the install command of a missing plugin. An installed plugin takes precedence
over the record with its install command.
"""

from __future__ import annotations

from collections.abc import Iterator

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


@hookimpl(trylast=True)
def torchx_commands() -> Iterator[CommandPlugin]:
    """Yield a record for each known command, with the command line that installs it."""
    for name, distribution in COMMANDS.items():
        yield CommandPlugin(name, "", install=f"pip install {distribution}")


@hookimpl(trylast=True)
def torchx_trackers() -> Iterator[TrackerPlugin]:
    """Yield a record for each known tracker, with the command that installs it."""
    for name, distribution in TRACKERS.items():
        yield TrackerPlugin(name, "", install=f"pip install {distribution}")


@hookimpl(trylast=True)
def torchx_log_sinks() -> Iterator[LogSinkPlugin]:
    """Yield a record for each known log sink, with the command that installs it."""
    for name, distribution in LOG_SINKS.items():
        yield LogSinkPlugin(name, "", install=f"pip install {distribution}")


@hookimpl(trylast=True)
def torchx_notifiers() -> Iterator[NotifierPlugin]:
    """Yield a record for each known notifier, with the command that installs it."""
    for name, distribution in NOTIFIERS.items():
        yield NotifierPlugin(name, "", install=f"pip install {distribution}")


@hookimpl(trylast=True)
def torchx_hosts() -> Iterator[HostPlugin]:
    """Yield a record for each known kind of host, with the command that installs it."""
    for name, distribution in HOSTS.items():
        yield HostPlugin(name, "", install=f"pip install {distribution}")


@hookimpl(trylast=True)
def torchx_named_resources() -> Iterator[ResourcePlugin]:
    """Yield a record for each pattern of names, with the command that installs the resources."""
    for pattern, distribution in RESOURCES.items():
        yield ResourcePlugin(pattern, "", install=f"pip install {distribution}")


@hookimpl(trylast=True)
def torchx_supervisors() -> Iterator[SupervisorPlugin]:
    """Yield a record for each known supervisor, with the command that installs it."""
    for name, distribution in SUPERVISORS.items():
        yield SupervisorPlugin(name, "", install=f"pip install {distribution}")


@hookimpl
def torchx_pruners() -> Iterator[PrunerPlugin]:
    """Yield the pruners of ``$TORCHX_HOME/cache`` and of workspaces on other machines."""
    yield PrunerPlugin(
        "caches",
        "torchx_kit.workspace.pruning:unused_caches",
        summary="Digests of files, and results of earlier builds",
    )
    yield PrunerPlugin(
        "host-workspaces",
        "torchx_kit.workspace.host_pruning:unused_trees",
        summary="Copies of workspaces on the machines of schedulers such as slurm@login1",
    )
