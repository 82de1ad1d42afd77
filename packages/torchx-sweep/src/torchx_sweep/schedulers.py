"""Several schedulers of one sweep: parse their names, check them, and split their options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from torchx_specs.errors import RequestError
from torchx_specs.formats import serialize
from torchx_specs.text_values import split_pairs
from torchx_sweep.limits import usage

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.model.app import AppDef
    from torchx_specs.options.run_options import CfgVal

#: These schedulers run apps on this machine, and start an app when it is submitted.
ON_THIS_MACHINE = frozenset({"local_cwd", "local_docker"})
#: Schedulers of clusters that can withdraw apps, for error messages.
WITHDRAWING = ("slurm", "lsf", "sge", "kubernetes")


def scheduler_names(given: str | Sequence[str]) -> list[str]:
    """Return the names of schedulers in a sequence, or in a text in which commas separate them.

    >>> scheduler_names("slurm, local_cwd"), scheduler_names(["slurm"])
    (['slurm', 'local_cwd'], ['slurm'])

    Raises:
        RequestError: There are no names, or a name is empty or given twice.
    """
    names = [name.strip() for name in (given.split(",") if isinstance(given, str) else given)]
    if not names or not all(names) or len(set(names)) < len(names):
        raise RequestError(
            f"the schedulers are {', '.join(map(repr, names)) or 'missing'}; give different names,"
            " separated by commas"
        )
    return names


def check_schedulers(runner: Runner, options: Mapping[str, Mapping[str, CfgVal]]) -> None:
    """Raise RequestError unless elements can be moved between schedulers.

    Args:
        runner: Creates the schedulers.
        options: The options of each scheduler, by the scheduler's name.
    """
    for name, cfg in options.items():
        if name in ON_THIS_MACHINE:
            continue
        what = f"elements of a sweep on several schedulers ({', '.join(options)})"
        if not runner.features(name).withdrawal:
            raise RequestError(
                f"{what} cannot be withdrawn from the queue of {name} for certain; use {name}"
                " alone, or a scheduler that can:"
                f" {', '.join((*WITHDRAWING, *sorted(ON_THIS_MACHINE)))}"
            )
        problem = runner.scheduler(name).withdrawal_problem(cfg)
        if problem is not None:
            raise RequestError(f"{what} must be withdrawn from the queue of {name}, but {problem}")


def split_options(
    runner: Runner, names: Sequence[str], cfg: Mapping[str, CfgVal]
) -> dict[str, dict[str, CfgVal]]:
    """Return the options of each scheduler, by its name; ``local_cwd`` also gets ``detach``.

    Args:
        runner: Creates the schedulers.
        names: The names of the schedulers.
        cfg: Either options, or a mapping from the name of each scheduler to its options. In the
            first form, each scheduler gets the options that it defines.

    Raises:
        RequestError: None of the schedulers defines one of the options.
    """
    options: dict[str, dict[str, Any]] = {name: {} for name in names}
    if cfg and all(key in options and isinstance(value, Mapping) for key, value in cfg.items()):
        options.update({name: dict(cast("Any", value)) for name, value in cfg.items()})
        cfg = {}
    for key, value in cfg.items():
        for name in _owners(runner, names, key):
            options[name][key] = value
    if "local_cwd" in options:
        # Without this option, the apps would end when the driver ends.
        options["local_cwd"]["detach"] = True
    return options


def check_gpus(names: Sequence[str], apps: Iterable[AppDef]) -> None:
    """Raise RequestError if an element with GPUs may run on this machine."""
    if ON_THIS_MACHINE.intersection(names) and any(usage(app).gpus for app in apps):
        raise RequestError(
            f"elements that need GPUs cannot share this machine's GPUs in a sweep on several"
            f" schedulers ({', '.join(names)}); leave out {' and '.join(sorted(ON_THIS_MACHINE))}"
        )


def apps_to_json(apps: Mapping[str, AppDef]) -> str:
    """Return the apps of one element as JSON, the content of the database's column ``app``.

    Args:
        apps: The app for each scheduler, by the scheduler's name.
    """
    return json.dumps({name: serialize.to_json(app) for name, app in apps.items()})


def literals_of(
    runner: Runner, names: Sequence[str], literals: Iterable[str]
) -> dict[str, list[str]]:
    """Return the values of ``-cfg`` for each scheduler: only the options that it defines.

    Args:
        runner: Creates the schedulers.
        names: The names of the schedulers.
        literals: The values of ``-cfg``, each ``key=value,...``.

    Raises:
        RequestError: A value is malformed, or none of the schedulers defines one of the options.
    """
    found: dict[str, list[str]] = {name: [] for name in names}
    for literal in literals:
        try:
            pairs = split_pairs(literal)
        except ValueError as e:
            raise RequestError(f"-cfg: {e}") from None
        for key, value in pairs:
            for name in _owners(runner, names, key):
                found[name].append(f"{key}={value}")
    return found


def _owners(runner: Runner, names: Sequence[str], key: str) -> list[str]:
    owners = [n for n in names if runner.scheduler_run_opts(n).canonical_key(key) is not None]
    if not owners:
        raise RequestError(f"none of the schedulers {', '.join(names)} has an option '{key}'")
    return owners
