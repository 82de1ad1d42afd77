"""Selects the checks of schedulers, and the options with which they run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from torchx_cli.doctor.own_checks import check_host, check_scheduler
from torchx_cli.doctor.run_checks import INSTALLATION, subject_of
from torchx_runner.config import api as config
from torchx_runner.config.api import HOST_DELIM
from torchx_runner.installed_schedulers import InstalledSchedulers
from torchx_specs.errors import ConfigError, TorchXError
from torchx_specs.plugins.records import CheckPlugin

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal
    from torchx_specs.plugins.manager import PluginManager


def checks_of(
    manager: PluginManager, schedulers: list[str], given: str | None = None
) -> list[CheckPlugin]:
    """Return the checks of this installation, of the schedulers, and of others if none is given.

    Args:
        manager: Has the checks and the schedulers.
        schedulers: The schedulers to check.
        given: The scheduler that the user has chosen, or None.
    """
    catalog = manager.checks()
    all_schedulers = manager.schedulers().names()
    records = [catalog[name] for name in catalog]
    chosen = [record for record in records if subject_of(record) == INSTALLATION]
    for name in schedulers:
        if HOST_DELIM in (hosted := _with_host(name)):
            # The scheduler's own checks are those of a cluster of this machine.
            chosen.append(CheckPlugin(f"{name}:host", partial(check_host, hosted)))
            continue
        own = [record for record in records if subject_of(record) == name]
        loads = CheckPlugin(f"{name}:scheduler", partial(check_scheduler, name, bool(own)))
        chosen += [loads, *own]
    if given is None:
        known = {INSTALLATION, *all_schedulers}
        chosen += [record for record in records if subject_of(record) not in known]
    return chosen


def _with_host(name: str) -> str:
    try:
        return config.with_host(name)
    except ConfigError:  # check_configuration reports the error
        return name


def configured_options(subject: str) -> Mapping[str, CfgVal]:
    """Return the options that ``.torchxconfig`` sets for a scheduler; none for another subject."""
    cfg: dict[str, CfgVal] = {}
    try:
        if subject in InstalledSchedulers():
            config.apply(subject, cfg, on_unknown=lambda message: None)
    except TorchXError:  # the checks of the configuration and the scheduler report this error
        cfg.clear()
    return cfg
