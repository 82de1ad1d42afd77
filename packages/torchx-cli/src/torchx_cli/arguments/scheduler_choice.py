"""Chooses the scheduler of a command, and reads the scheduler's options from flags and files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from torchx_runner.config import api as config
from torchx_runner.installed_schedulers import (
    InstalledSchedulers,
    plugin_manager,
    unknown_scheduler,
)
from torchx_specs.errors import RequestError
from torchx_specs.redaction import masked_value
from torchx_specs.text_values import split_list, unquoted_positions

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal

#: The scheduler that is used if none is given.
DEFAULT_SCHEDULER = "local_cwd"
# The start of `key+=value`.
_ADDED = re.compile(r"\s*(\w+)\+=")


def choose_scheduler(name: str | None) -> str:
    """Return the installed scheduler to use: the given one, else ``local_cwd``, else the only one.

    If the section of the scheduler in ``.torchxconfig`` has a host, the name has it, too:
    ``slurm@login1``.

    Args:
        name: The name on the command line or in the configuration; None or empty if there is none.

    Raises:
        RequestError: The given scheduler is not installed. Or none is given, ``local_cwd`` is not
            installed, and the number of installed schedulers is not one.
    """
    installed = InstalledSchedulers()
    if name:
        if name not in installed:
            raise unknown_scheduler(name, installed)
        return config.with_host(name)
    names = sorted(installed)
    if DEFAULT_SCHEDULER in names:
        return DEFAULT_SCHEDULER
    if len(names) == 1:
        return config.with_host(names[0])
    if not names:
        hint = plugin_manager().schedulers().install_hint(DEFAULT_SCHEDULER)
        raise RequestError(f"no scheduler is installed{hint}")
    raise RequestError(f"which scheduler? give -s with one of: {', '.join(names)}")


def all_schedulers() -> list[str]:
    """Return the installed schedulers, with their hosts in ``.torchxconfig``."""
    return [config.with_host(name) for name in InstalledSchedulers()]


def used_schedulers() -> set[str]:
    """Return the schedulers that this user uses, with their hosts.

    They are those of the newest submissions, those with a section in ``.torchxconfig``, and that
    of ``[cli:run]``.

    Raises:
        ConfigError: A configuration file cannot be read.
    """
    from torchx_runner.submissions.journal import RECENT, submissions

    installed = InstalledSchedulers()
    used = {found.runs_on or found.scheduler for found in submissions(RECENT)}
    named = {value.section for value in config.list_values() if value.effective}
    named.add(config.get_cli_defaults("run").get("scheduler", ""))
    used |= {config.with_host(name) for name in named if name in installed}
    return {name for name in used if name in installed}


def take_host(scheduler: str, literals: Iterable[str]) -> tuple[str, list[str]]:
    """Return a scheduler's name with the host in values of ``-cfg``, and the values without it.

    >>> take_host("slurm", ["partition=gpu,host=login1"])
    ('slurm@login1', ['partition=gpu'])
    """
    rest = []
    for literal in literals:
        ends = [i for i in unquoted_positions(literal, "=,;") if literal[i] != "="]
        for start, end in itertools.pairwise([-1, *ends, len(literal)]):
            key, _, value = literal[start + 1 : end].partition("=")
            if key.strip() == config.HOST_OPTION:
                scheduler = config.on_host(scheduler, "".join(split_list(value)))
                literal = literal[: max(start, 0)] + literal[end + (start < 0) :]
                break
        rest += [literal] if literal else []
    return scheduler, rest


def read_cfg(
    runner: Runner, scheduler: str, literals: Iterable[str], *, ignore_unknown: bool = False
) -> dict[str, CfgVal]:
    """Return a scheduler's options; a ``-cfg`` value wins over a value in ``.torchxconfig``.

    Args:
        runner: The runner.
        scheduler: Name of the scheduler.
        literals: The values of ``-cfg``, each ``key=value,...`` or ``key+=value``.
        ignore_unknown: Drop unknown options with a warning instead of refusing them.

    Raises:
        RequestError: See :func:`parse_cfg`; or the configuration files have an error.
    """
    return parse_cfg(
        runner,
        scheduler,
        literals,
        lambda cfg: config.apply(scheduler, cfg),
        ignore_unknown=ignore_unknown,
    )


def parse_cfg(
    runner: Runner,
    scheduler: str,
    literals: Iterable[str],
    complete: Callable[[dict[str, CfgVal]], object],
    *,
    ignore_unknown: bool = False,
) -> dict[str, CfgVal]:
    """Return the options in the values of ``-cfg``, completed by others.

    ``key+=value`` adds to a list or a dictionary: to the value of a file, or to the default.

    Args:
        runner: The runner.
        scheduler: Name of the scheduler.
        literals: The values of ``-cfg``, each ``key=value,...`` or ``key+=value``.
        complete: Called with the options; adds those that they lack.
        ignore_unknown: Drop unknown options with a warning instead of refusing them.

    Raises:
        RequestError: An option is malformed, unknown, of the wrong type, or given with two values.
    """
    options = runner.scheduler_run_opts(scheduler)

    cfg: dict[str, CfgVal] = {}
    added: list[tuple[str, CfgVal]] = []
    for text in itertools.chain.from_iterable(map(_split_before_added, literals)):
        match = _ADDED.match(text)
        pairs = f"{match[1]}={text[match.end() :]}" if match else text
        given = options.cfg_from_str(pairs, ignore_unknown=ignore_unknown)
        if match and (key := options.canonical_key(match[1])):
            added.append((key, given.pop(key)))
        for key, value in given.items():
            if key in cfg and cfg[key] != value:
                first, second = masked_value(key, cfg[key]), masked_value(key, value)
                raise RequestError(f"-cfg {key} is given twice, as {first} and as {second}")
            cfg[key] = value
    complete(cfg)
    for key, value in added:
        option = options.get(key)
        default = None if option is None else option.default
        cfg[key] = _joined(key, cfg.get(key, default), value)
    return cfg


def _split_before_added(literal: str) -> list[str]:
    """Split ``a=1,b+=2`` before each ``key+=``."""
    separators = unquoted_positions(literal, ",;")
    cuts = [i for i in separators if _ADDED.match(literal, i + 1)]
    starts = [0, *(i + 1 for i in cuts)]
    return [literal[start:end] for start, end in zip(starts, [*cuts, len(literal)], strict=True)]


def _joined(key: str, before: CfgVal, added: CfgVal) -> CfgVal:
    if isinstance(added, list) and (before is None or isinstance(before, list)):
        return [*(before or []), *added]
    if isinstance(added, dict) and (before is None or isinstance(before, dict)):
        return {**(before or {}), **added}
    raise RequestError(f"-cfg {key}+=: the option '{key}' is no list; write {key}=")
