"""Checks this installation: Python, plugins, versions, configuration, and loading a scheduler."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx_cli.main import load_command, usable_manager
from torchx_runner.installed_schedulers import InstalledSchedulers, split_host
from torchx_specs.errors import ConfigError, PluginConflictError, TorchXError
from torchx_specs.plugins.check_results import CheckResult
from torchx_specs.plugins.records import Origin
from torchx_specs.settings import ENV_TORCHX_PLUGINS_DISABLED
from torchx_specs.version import __version__

if TYPE_CHECKING:
    from torchx_specs.options.run_options import CfgVal

#: The oldest and the newest Python version that the tests use.
_OLDEST, _NEWEST = (3, 10), (3, 13)

#: The names of the plugin manager's methods that return a catalog.
KINDS = (
    *("schedulers", "named_resources", "trackers", "commands", "workspaces", "pruners"),
    *("checks", "event_handlers", "log_sinks", "notifiers"),
)
#: A distribution with this entry point comes from this project. Any other distribution that
#: installs the module conflicts with it.
_BRIDGES = "torchx.bridges.plugin"

Cfg = Mapping[str, "CfgVal"]


def check_python(cfg: Cfg, /) -> Iterator[CheckResult]:
    """Report the versions of TorchX and Python, and whether this Python is tested.

    Args:
        cfg: Not used.
    """
    found = sys.version_info[:2]
    shown = f"TorchX {__version__}, Python {platform.python_version()} in {sys.prefix}"
    if _OLDEST <= found <= _NEWEST:
        yield CheckResult("ok", shown)
        return
    oldest, newest = (".".join(map(str, version)) for version in (_OLDEST, _NEWEST))
    yield CheckResult(
        "warning" if found > _NEWEST else "error",
        f"{shown}: TorchX is tested with Python {oldest} to {newest}",
        f"use Python {oldest} to {newest}",
    )


def check_plugins(cfg: Cfg, /) -> Iterator[CheckResult]:
    """Report broken plugins, and names that several plugins register.

    Args:
        cfg: Not used.
    """
    manager = usable_manager()
    catalogs: dict[str, Any] = {kind: getattr(manager, kind)() for kind in KINDS}
    manager.components()
    for problem in manager.problems:
        name = problem.origin.distribution
        remedy = f"upgrade or uninstall {name}, or set {ENV_TORCHX_PLUGINS_DISABLED}={name}"
        yield CheckResult("error", str(problem), remedy)
    for catalog in catalogs.values():
        for name in catalog.conflicts:
            yield CheckResult("error", *catalog.conflict(name))
    enabled = [r for r in manager.registrations if r.enabled]
    yield CheckResult("ok", f"{len(enabled)} plugins are enabled ('torchx plugins' lists them)")


def check_installation(cfg: Cfg, /) -> Iterator[CheckResult]:
    """Report other distributions that install ``torchx``, and unmet requirements.

    Args:
        cfg: Not used.
    """
    problems = [(problem, command) for _, problem, command in conflicts()]
    names = {r.origin.distribution for r in usable_manager().registrations} | {"torchx"}
    problems += [
        (problem, f"pip install '{requirement}'")
        for problem, requirement in unmet_requirements(sorted(filter(None, names)))
    ]
    for problem, command in problems:
        yield CheckResult("error", problem, f"run: {command}")
    if not problems:
        yield CheckResult("ok", "the versions of the installed distributions fit")


def conflicts() -> Iterator[tuple[Origin, str, str]]:
    """Yield each conflicting distribution, with a message and the command that repairs it."""
    others: dict[str, Distribution] = {}
    ours: Distribution | None = None
    for found in distributions():
        if any(ep.value == _BRIDGES for ep in found.entry_points if ep.group == "torchx"):
            ours = ours or found
        # An editable installation does not list its files in RECORD.
        elif "\ntorchx/__init__.py," in f"\n{found.read_text('RECORD') or ''}":
            others.setdefault(found.name, found)
    for name, other in others.items():
        text = f"{name} {other.version}"
        if ours is None:
            what = f"the module 'torchx' is installed by {text}, not by TorchX anew"
            remedy = f"pip uninstall {name}; pip install torchx=={__version__}"
        else:
            spec = importlib.util.find_spec("torchx")
            folder = Path(spec.origin).parent.parent if spec and spec.origin else "nowhere"
            what = (
                f"{text} and {ours.name} {ours.version} both install the module 'torchx', which is"
                f" imported from {folder}"
            )
            # Both distributions also install a script `torchx`: reinstalling torchx-cli restores
            # our script.
            remedy = (
                f"pip uninstall {name}; pip install --force-reinstall --no-deps"
                f" torchx=={ours.version} torchx-cli=={ours.version}"
            )
        yield Origin(name, other.version), what, remedy


def unmet_requirements(distributions: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield a message and the requirement for each unmet requirement of installed distributions.

    Requirements of extras are left out: an extra may not be wanted. A distribution that is not
    installed is left out, too.

    Args:
        distributions: Names of the distributions to check.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    for distribution in distributions:
        try:
            requirements = importlib.metadata.requires(distribution) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for text in requirements:
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
                continue
            wanted = f"{requirement.name}{requirement.specifier}"
            try:
                have = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                yield f"{distribution} needs {wanted}, which is not installed", wanted
                continue
            if not requirement.specifier.contains(have, prereleases=True):
                yield f"{distribution} needs {wanted}, and {have} is installed", wanted


def check_configuration(cfg: Cfg, /) -> Iterator[CheckResult]:
    """Report the problems of the configuration files.

    Args:
        cfg: Not used.
    """
    from torchx_runner.config.api import find_configs, read_configs
    from torchx_runner.config.problems import find_problems

    problems = list(find_problems(_keys_of_command))
    for problem in problems:
        level = "error" if problem.is_error else "warning"
        yield CheckResult(level, problem.message, "correct or remove this line of the file")
    if problems:
        return
    try:
        read_configs()  # the selected profile may be unknown
    except ConfigError as e:
        yield CheckResult("error", str(e), "correct --profile or TORCHX_PROFILE")
        return
    read = ", ".join(find_configs())
    yield CheckResult("ok", f"configuration: {read}" if read else "no configuration file")


def check_scheduler(name: str, has_checks: bool, cfg: Cfg, /) -> Iterator[CheckResult]:
    """Check that a scheduler can be created, without contacting a service.

    Args:
        name: The scheduler.
        has_checks: Whether the scheduler has checks of its own; success is then not reported.
        cfg: Not used.
    """
    try:
        with closing(InstalledSchedulers()[name]("doctor")) as created:
            created.run_opts()
    except (ConfigError, PluginConflictError):
        return  # check_configuration or check_plugins reports the error
    except TorchXError as e:
        yield CheckResult("error", str(e), "reinstall the scheduler's distribution")
    else:
        if not has_checks:
            yield CheckResult("ok", "the scheduler can be loaded; it has no other checks")


def check_host(name: str, cfg: Cfg, /) -> Iterator[CheckResult]:
    """Connect to the host of a scheduler, and query the user's apps there.

    Args:
        name: The scheduler with its host, such as ``slurm@login1``.
        cfg: Not used.
    """
    host = split_host(name)[1]
    try:
        with closing(InstalledSchedulers()[name]("doctor")) as created:
            apps = created.list()
    except TorchXError as e:
        yield CheckResult("error", str(e), f"run 'ssh {host}', and correct its problem first")
    else:
        yield CheckResult("ok", f"{host} answers; 'torchx list -s {name}' shows {len(apps)} apps")


def _keys_of_command(name: str) -> list[str] | None:
    """Return the keys that ``[cli:NAME]`` may have; None if the command is missing or broken."""
    from torchx_cli.arguments.options import Command, option_keys

    catalog = usable_manager().commands()
    if name not in catalog:
        return None
    try:
        command = load_command(catalog[name])
    except TorchXError:
        return None
    extra = command.extra_keys if isinstance(command, Command) else frozenset()
    return sorted(extra.union(option_keys(command)))
