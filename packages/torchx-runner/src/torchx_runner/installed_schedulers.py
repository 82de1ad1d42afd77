"""The plugin manager and the installed schedulers, for the runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import PluginError, TorchXError, UnknownSchedulerException
from torchx_specs.plugins.manager import PluginManager, get_manager

if TYPE_CHECKING:
    from torchx_specs.plugins.catalog import Catalog
    from torchx_specs.plugins.records import SchedulerPlugin
    from torchx_specs.schedulers import Scheduler

#: Creates a scheduler: ``factory(session_name, **scheduler_params)``.
SchedulerFactory = Callable[..., "Scheduler[Any]"]

_configured: PluginManager | None = None


def plugin_manager() -> PluginManager:
    """Return the plugin manager of this process, as the configuration files define it.

    The plugins in ``[plugins] disabled`` are blocked, and the named resources are added.

    Raises:
        ConfigError: A configuration file is malformed.
    """
    global _configured
    manager = get_manager()
    if manager is not _configured:  # threads may do this at the same time, and twice
        from torchx_runner.config.api import find_configs, get_disabled_plugins

        manager.block(get_disabled_plugins())
        if find_configs():
            from torchx_runner.config.resources import CONFIGURED_RESOURCES

            manager.register(CONFIGURED_RESOURCES, ".torchxconfig")
        _configured = manager
    return manager


def unknown_scheduler(name: str, known: Mapping[str, Any]) -> UnknownSchedulerException:
    """Return the error for an unknown scheduler.

    Args:
        name: The name that was given.
        known: The schedulers by name. If these are the installed ones, the error contains the
            command that installs the missing scheduler.
    """
    installable = known._records().installable if isinstance(known, InstalledSchedulers) else {}
    return UnknownSchedulerException(name, known, installable.get(name, ""))


def split_host(name: str) -> tuple[str, str]:
    """Return the scheduler and the host in a name; the host of this machine is empty.

    >>> split_host("slurm@user@login1")
    ('slurm', 'user@login1')
    """
    scheduler, _, host = name.partition("@")
    return scheduler, host


class InstalledSchedulers(Mapping[str, SchedulerFactory]):
    """The factories of the installed schedulers, by name; a lookup imports the scheduler.

    A name may have a host, as in ``slurm@login1``. The scheduler then uses the commands and files
    of this host.

    A lookup raises :class:`~torchx_specs.errors.PluginError` if two plugins claim the name, or if
    the scheduler cannot be imported.
    """

    def _records(self) -> Catalog[SchedulerPlugin]:
        return plugin_manager().schedulers()

    def __getitem__(self, name: str) -> SchedulerFactory:
        base, host = split_host(name)
        record = self._records()[base]
        factory = record.load()

        def create(session_name: str, **params: object) -> Scheduler[Any]:
            if host:
                from torchx_kit.hosts.lookup import find_host

                params["host"] = find_host(host)
            try:
                created: Scheduler[Any] | None = factory(session_name, **params)
            except TorchXError:
                raise
            except Exception as e:
                raise PluginError(
                    f"scheduler '{name}' of {record.origin} cannot be created:"
                    f" {type(e).__name__}: {e}"
                ) from e
            if created is None:
                raise PluginError(
                    f"scheduler '{name}' of {record.origin}: its factory returned None"
                )
            if host:
                from torchx_specs.schedulers.older import features_of

                features_of(created).require("hosts", base)
            return created

        return create

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and split_host(name)[0] in self._records().names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._records().names())

    def __len__(self) -> int:
        return len(self._records().names())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self)})"


class ConfigurableSchedulers(InstalledSchedulers):
    """The schedulers that may have a section in ``.torchxconfig``, even if they cannot run apps."""

    def _records(self) -> Catalog[SchedulerPlugin]:
        return plugin_manager().configurable_schedulers()
