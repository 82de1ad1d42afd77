"""Finds the problems of all configuration files; other code stops at the first problem."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from torchx_runner.config import api as config
from torchx_runner.config.files import (
    ConfigFile,
    profile_layer,
    profile_names,
    read_config,
    split_section,
)
from torchx_runner.config.resources import PREFIX, check_section
from torchx_specs.errors import ConfigError, TorchXError, nearest
from torchx_specs.plugins.manager import get_manager

if TYPE_CHECKING:
    from torchx_specs.options.run_options import runopts

# The sections that are not those of a scheduler, by their first word.
_FORMS = {
    **{
        prefix: f"{prefix}:NAME"
        for prefix in ("cli", "component", "log_sink", "notifier", "tracker")
    },
    "plugins": "plugins",
    "torchx": "torchx:tracker",
    "profile": "profile.NAME.SECTION",
    "resources": "resources.NAME",
}
_KNOWN = {*_FORMS.values(), "log_sinks", "notifiers:NAME"}  # the last two are older shapes


class ConfigProblem(NamedTuple):
    """A problem of a configuration file.

    Attributes:
        message: The problem, with the file, the section and the key.
        is_error: Whether a command that needs the value fails; otherwise the value is ignored.
    """

    message: str
    is_error: bool


def find_problems(
    commands: Callable[[str], Iterable[str] | None], dirs: list[str] | None = None
) -> Iterator[ConfigProblem]:
    """Yield the problems of all files and profiles.

    Args:
        commands: Returns the keys that the section ``[cli:NAME]`` may have, or None if there is no
            command of that name.
        dirs: As for :func:`torchx_runner.config.api.find_configs`.
    """
    try:
        paths = config.find_configs(dirs)
    except ConfigError as e:
        yield ConfigProblem(str(e), True)
        return
    # ConfigurableSchedulers would raise the error of a malformed file.
    schedulers = get_manager().configurable_schedulers().names()
    opts_of = functools.cache(_run_opts)
    for path in paths:
        try:
            file = read_config(path)
        except ConfigError as e:
            yield ConfigProblem(str(e), True)
            continue
        sections = {s: v for s, v in file.sections.items() if not split_section(s)[0]}
        plain = file._replace(sections=sections)
        for layer in (plain, *(profile_layer(file, name) for name in profile_names([file]))):
            yield from _problems_of(layer, schedulers, opts_of, commands)


def _problems_of(
    file: ConfigFile,
    schedulers: list[str],
    opts_of: Callable[[str], runopts | None],
    commands: Callable[[str], Iterable[str] | None],
) -> Iterator[ConfigProblem]:
    for section, values in file.sections.items():
        where = f"{file.path}: [{file.prefix}{section}]"
        prefix, _, name = section.partition(config.CONFIG_PREFIX_DELIM)
        if section.startswith(PREFIX):
            for message in check_section(file, section):
                yield ConfigProblem(message, True)
        elif section in schedulers:
            opts = opts_of(section)
            if opts is not None:
                _, unknown, errors = config.read_options(section, file, opts)
                yield from (ConfigProblem(str(error), True) for error in errors)
                yield from (ConfigProblem(message, False) for message in unknown)
        elif prefix == "cli" and name:
            known = commands(name)
            if known is None:
                yield ConfigProblem(f"{where}: there is no command '{name}'", False)
                continue
            for key in values:
                if key not in file.defaults and key.replace("-", "_") not in known:
                    hint = nearest(key, known)
                    text = f"{where} {key}: torchx {name} has no such option;{hint}".rstrip(";")
                    yield ConfigProblem(text, False)
        elif section == "log_sinks":
            if not any(value.strip() for value in values.values()):
                yield ConfigProblem(f"{where}: no sink; add one: keep = file:///data/logs", False)
        elif section not in _KNOWN and not (name and f"{prefix}:NAME" in _KNOWN):
            forms = {**dict.fromkeys(schedulers, ""), **_FORMS}
            # Without a similar name, the section may belong to a plugin.
            for close in difflib.get_close_matches(re.split("[:.]", section)[0], forms, 1):
                kind = "section" if close in _FORMS else "scheduler"
                hint = f"did you mean '{forms[close] or close}'?"
                yield ConfigProblem(f"{where}: there is no {kind} of this name; {hint}", False)


def _run_opts(scheduler: str) -> runopts | None:
    try:
        return config.get_run_opts(scheduler)
    except TorchXError:  # the checks of the scheduler report the error
        return None
