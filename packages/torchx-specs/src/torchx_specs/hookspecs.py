"""The hooks: everything that a plugin can add to TorchX.

A plugin is a module with some of these functions, each marked by ``@hookimpl``. Its distribution
names the module in the entry-point group ``torchx``::

    # pyproject.toml
    [project.entry-points.torchx]
    acme = "acme_torchx.plugin"

These rules hold for every hook:

- **When.** The manager calls a hook when a record of the hook is first needed, and keeps the hook's
  records. A process calls each hook of a plugin at most once, except after another plugin is
  registered or blocked.
- **Records.** A hook yields frozen records (:mod:`torchx_specs.plugins.records`). A record names
  its factory as ``"module:attribute"``, so that listing the records imports nothing else. The
  factory is imported and called when its object is first needed. The factories' signatures are
  protocols in :mod:`torchx_specs.plugins.factories`.
- **Order.** Plugins are called in the alphabetical order of their distributions and entry points;
  hooks marked ``@hookimpl(tryfirst=True)`` come first and hooks marked ``trylast=True`` last.
- **Names.** If two plugins yield the same name, using the name is an error that names both
  distributions. To override another plugin's record, mark the hook ``tryfirst=True``.
- **Exceptions.** A plugin that fails to import or raises in a hook is reported once as a warning,
  and by ``torchx plugins``. Records that the hook yielded before the exception stay valid. An
  exception of a factory affects only the record of that factory.
"""

# Nothing calls these functions: pluggy reads only their names and parameters.
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterable

from torchx_specs.plugins.check_results import CheckResult as CheckResult
from torchx_specs.plugins.markers import HOOKS as HOOKS
from torchx_specs.plugins.markers import hookimpl as hookimpl
from torchx_specs.plugins.markers import hookspec as hookspec
from torchx_specs.plugins.records import CheckPlugin as CheckPlugin
from torchx_specs.plugins.records import CommandPlugin as CommandPlugin
from torchx_specs.plugins.records import ComponentPlugin as ComponentPlugin
from torchx_specs.plugins.records import EventHandlerPlugin as EventHandlerPlugin
from torchx_specs.plugins.records import HostPlugin as HostPlugin
from torchx_specs.plugins.records import LogSinkPlugin as LogSinkPlugin
from torchx_specs.plugins.records import NotifierPlugin as NotifierPlugin
from torchx_specs.plugins.records import OptionsOnlySchedulerPlugin as OptionsOnlySchedulerPlugin
from torchx_specs.plugins.records import PrunerPlugin as PrunerPlugin
from torchx_specs.plugins.records import ResourcePlugin as ResourcePlugin
from torchx_specs.plugins.records import SchedulerPlugin as SchedulerPlugin
from torchx_specs.plugins.records import SupervisorPlugin as SupervisorPlugin
from torchx_specs.plugins.records import TrackerPlugin as TrackerPlugin
from torchx_specs.plugins.records import WorkspacePlugin as WorkspacePlugin


@hookspec(SchedulerPlugin)
def torchx_schedulers() -> Iterable[SchedulerPlugin]:
    """Yield schedulers, by the name that ``torchx run -s`` takes.

    TorchX calls this hook when a scheduler is looked up, or schedulers are listed. A runner calls
    the factory, a :class:`~torchx_specs.plugins.factories.SchedulerFactory`, once for each
    scheduler that it uses. A factory must not contact its service. Yield an
    :class:`~torchx_specs.plugins.records.OptionsOnlySchedulerPlugin` for a scheduler that only has
    a section in ``.torchxconfig``::

        from torchx_specs.hookspecs import SchedulerPlugin, hookimpl

        @hookimpl
        def torchx_schedulers():
            yield SchedulerPlugin(
                "acme", "acme_torchx.scheduler:create_scheduler", summary="Acme's batch system"
            )
    """


@hookspec(ResourcePlugin)
def torchx_named_resources() -> Iterable[ResourcePlugin]:
    """Yield named resources, by the name that ``resource(h=...)`` takes.

    TorchX calls this hook when a resource is looked up by a name, or resources are listed. Each
    look-up calls the factory, a :class:`~torchx_specs.plugins.factories.ResourceFactory`. A
    plugin's resource overrides a generic one of the same name::

        from torchx_specs import Resource
        from torchx_specs.hookspecs import ResourcePlugin, hookimpl

        def gpu_x2() -> Resource:
            return Resource(cpu=16, gpu=2, memMB=122_000)

        @hookimpl
        def torchx_named_resources():
            yield ResourcePlugin("gpu_x2", gpu_x2)
    """


@hookspec(ComponentPlugin)
def torchx_components() -> Iterable[ComponentPlugin]:
    """Yield modules whose functions are components.

    TorchX calls this hook when a component is looked up by its name, or components are listed.
    There is no factory: the finder imports the module, and only those sub-modules that a name
    refers to. The function ``ddp`` in ``acme_torchx/components/train.py`` becomes the component
    ``acme.train.ddp``. Several plugins may use one group::

        from torchx_specs.hookspecs import ComponentPlugin, hookimpl

        @hookimpl
        def torchx_components():
            yield ComponentPlugin("acme", "acme_torchx.components")
    """


@hookspec(TrackerPlugin)
def torchx_trackers() -> Iterable[TrackerPlugin]:
    """Yield trackers, by the name in ``type`` of a section ``[tracker:NAME]``.

    TorchX calls this hook in the launcher, when an app with trackers is submitted, and in a job,
    when the job first uses its trackers. A job calls the factory, a
    :class:`~torchx_specs.plugins.factories.TrackerFactory`, once for each configured tracker::

        from torchx_specs.hookspecs import TrackerPlugin, hookimpl

        @hookimpl
        def torchx_trackers():
            yield TrackerPlugin("acme", "acme_torchx.tracker:create")
    """


@hookspec(CommandPlugin)
def torchx_commands() -> Iterable[CommandPlugin]:
    """Yield sub-commands of ``torchx``.

    TorchX calls this hook at each start of the command, so the plugin's module must import quickly.
    Each record names a factory: a :class:`click.Command`, or a function that returns one
    (:class:`~torchx_specs.plugins.factories.CommandFactory`). TorchX imports the factory when the
    command runs, or when the command's help is shown::

        from torchx_specs.hookspecs import CommandPlugin, hookimpl

        @hookimpl
        def torchx_commands():
            yield CommandPlugin(
                "quota", "acme_torchx.quota:command", summary="Show how much quota is left."
            )
    """


@hookspec(WorkspacePlugin)
def torchx_workspaces() -> Iterable[WorkspacePlugin]:
    """Yield workspace builders, by the name that the option ``workspace_type`` takes.

    TorchX calls this hook when the options of a scheduler with workspaces are needed. A scheduler
    calls the factory, a :class:`~torchx_specs.plugins.factories.WorkspaceFactory`, once. A builder
    that cannot be loaded is reported and left out::

        from torchx_specs.hookspecs import WorkspacePlugin, hookimpl

        @hookimpl
        def torchx_workspaces():
            yield WorkspacePlugin("nfs", "acme_torchx.nfs:NfsBuilder")
    """


@hookspec(PrunerPlugin)
def torchx_pruners() -> Iterable[PrunerPlugin]:
    """Yield functions that find unused data, by the name that ``--only`` takes.

    TorchX calls this hook for ``torchx workspace prune``. The command calls each factory, a
    :class:`~torchx_specs.plugins.factories.PrunerFactory`, once, and removes the data only after
    the user has confirmed it. An exception of one factory does not affect the others::

        from torchx_specs.hookspecs import PrunerPlugin, hookimpl

        @hookimpl
        def torchx_pruners():
            yield PrunerPlugin("nfs-copies", "acme_torchx.nfs:unused_copies")
    """


@hookspec(CheckPlugin)
def torchx_checks() -> Iterable[CheckPlugin]:
    """Yield checks of this machine and of a service.

    TorchX calls this hook for ``torchx doctor``, which calls all factories at the same time. A
    factory is a :class:`~torchx_specs.plugins.factories.CheckFactory`. The command reports a
    factory that raises an exception or takes too long::

        from torchx_specs.hookspecs import CheckPlugin, hookimpl

        @hookimpl
        def torchx_checks():
            yield CheckPlugin("acme:quota", "acme_torchx.checks:quota")
    """


@hookspec(EventHandlerPlugin)
def torchx_event_handlers() -> Iterable[EventHandlerPlugin]:
    """Yield destinations of the runner's events, by name.

    TorchX calls this hook at the first event of a runner. The runner calls the factory, an
    :class:`~torchx_specs.plugins.factories.EventHandlerFactory`, once for each destination that is
    used. Each log record that reaches the handler has one event as JSON in its message. The runner
    sends its events to the handler named ``null``::

        import logging
        from torchx_specs.hookspecs import EventHandlerPlugin, hookimpl

        @hookimpl
        def torchx_event_handlers():
            yield EventHandlerPlugin("null", logging.StreamHandler)
    """


@hookspec(LogSinkPlugin)
def torchx_log_sinks() -> Iterable[LogSinkPlugin]:
    """Yield places for copies of logs, by the scheme of their URLs in ``[log_sink:NAME]``.

    TorchX calls this hook when a command saves a log or shows the copy of a log. A factory returns
    a :class:`~torchx_specs.plugins.factories.LogSink` for a URL, and must not contact its service.
    The sink ``fsspec`` gets the URLs whose scheme no plugin yields. The record named ``*``, which
    ``torchx-log-sinks`` yields, saves logs in all sinks and reads the copies::

        from torchx_specs.hookspecs import LogSinkPlugin, hookimpl

        @hookimpl
        def torchx_log_sinks():
            yield LogSinkPlugin("acme", "acme_torchx.sink:AcmeSink")
    """


@hookspec(NotifierPlugin)
def torchx_notifiers() -> Iterable[NotifierPlugin]:
    """Yield notifiers of ended jobs, by the ``type`` in their section ``[notifier:NAME]``.

    For ``--notify``, a :class:`~torchx_specs.plugins.factories.NotifierFactory` checks the section
    before the job is submitted. The factory must not contact its service. The record named ``*``,
    which ``torchx-notify`` yields, sends the notifications by all notifiers::

        from torchx_specs.hookspecs import NotifierPlugin, hookimpl

        @hookimpl
        def torchx_notifiers():
            yield NotifierPlugin("pager", "acme_torchx.pager:create")
    """


@hookspec(SupervisorPlugin)
def torchx_supervisors() -> Iterable[SupervisorPlugin]:
    """Yield supervisors of whole apps, by the name of the scheduler that uses them.

    A supervisor is a program that ends or restarts a whole app where the service has no such
    controller. A scheduler with supervisors calls the factory, a
    :class:`~torchx_specs.plugins.factories.SupervisorFactory`, once, when an app needs one. The
    scheduler defines the class of the result::

        from torchx_specs.hookspecs import SupervisorPlugin, hookimpl

        @hookimpl
        def torchx_supervisors():
            yield SupervisorPlugin("kubernetes", "acme_torchx.supervisor:AcmeSupervisor")
    """


@hookspec(HostPlugin)
def torchx_hosts() -> Iterable[HostPlugin]:
    """Yield ways to reach the machines of a cluster, by the name before the colon of a host.

    TorchX calls this hook when a scheduler has to use another machine than this one, such as a
    login node. The host ``login1`` is the same as ``ssh:login1``. The factory, a
    :class:`~torchx_specs.plugins.factories.HostFactory`, is called once for each host, and must not
    connect to it. It returns a ``torchx_kit.hosts.api.Host``::

        from torchx_specs.hookspecs import HostPlugin, hookimpl

        @hookimpl
        def torchx_hosts():
            yield HostPlugin("bastion", "acme_torchx.bastion:create_host")
    """
