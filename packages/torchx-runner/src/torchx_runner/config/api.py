"""Reads and writes the settings in ``.torchxconfig``.

::

    # options of a scheduler
    [kubernetes]
    queue = default

    # arguments of a component
    [component:dist.ddp]
    j = 2x8

    # flags of a sub-command
    [cli:run]
    scheduler = kubernetes

    # trackers of every job, by the name of a plugin or by a factory
    [tracker:fsspec]
    type = fsspec
    config = /data/trackers.conf

    [tracker:mine]
    type = my_package.tracker:create

    # a notifier, and a sink for copies of logs
    [notifier:desktop]
    type = command
    command = notify-send '{name} {state}'

    [log_sink:disk]
    url = file:///data/torchx-logs

    # distributions or plugins that must not load
    [plugins]
    disabled = acme-torchx

    # a named resource
    [resources.big]
    cpu = 8
    gpu = 1
    memMB = 64000

    # values of the profile "big", for torchx --profile big or TORCHX_PROFILE=big
    [profile.big.kubernetes]
    queue = large

Values given in the program or on the command line win over the files. A value of the selected
profile wins over all values outside of profiles, in any file. ``$TORCHXCONFIG`` names the only file
to read; an empty value means no file. Without this variable, each key of ``$HOME/.torchxconfig``
wins over the same key of the file in the working directory. Every function determines ``$HOME`` and
the working directory again, so a ``chdir`` takes effect.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from torchx_runner.config.files import (
    ConfigFile,
    distrust_config,
    escape,
    layers,
    parse_config,
    read_config,
    split_section,
)
from torchx_specs.errors import ConfigError, PluginError, nearest
from torchx_specs.settings import ENV_TORCHXCONFIG

if TYPE_CHECKING:
    from torchx_runner.installed_schedulers import InstalledSchedulers
    from torchx_specs.options.run_options import CfgVal, runopt, runopts

    #: The folders that may contain a configuration file; values in an earlier folder win.
    DEFAULT_CONFIG_DIRS: list[str]

CONFIG_FILE = ".torchxconfig"
CONFIG_PREFIX_DELIM = ":"
#: Separates a scheduler from the host whose commands it uses, as in ``slurm@login1``.
HOST_DELIM = "@"
#: The key of this host in a scheduler's section.
HOST_OPTION = "host"

_NONE = "None"
_PLACEHOLDER = "#FIXME:"
# How many unknown options of a section are named in warnings.
_MAX_WARNINGS = 10


class ConfigFileNotFoundError(ConfigError, FileNotFoundError):
    """``$TORCHXCONFIG`` names a file that does not exist."""

    def __str__(self) -> str:  # OSError.__str__ shows errno and strerror, which are not set
        return "; ".join(self.problems)


class ConfigValue(NamedTuple):
    """One value of a configuration file.

    Attributes:
        section: Name of the section.
        key: The key.
        value: The value, as text.
        path: Path of the file.
        effective: False if another value wins, or if the value's profile is not selected.
        profile: The profile to which the value belongs, or an empty text.
    """

    section: str
    key: str
    value: str
    path: str
    effective: bool
    profile: str = ""


def __getattr__(name: str) -> Any:
    # Programs written for older releases of TorchX read and replace this constant. A value computed
    # at import would be wrong after a chdir.
    if name == "DEFAULT_CONFIG_DIRS":
        try:
            here = [os.getcwd()]
        except FileNotFoundError:  # the directory was deleted; most commands do not need it
            here = []
        return [os.path.expanduser("~"), *here]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def find_configs(dirs: Iterable[str] | None = None) -> list[str]:
    """Return the paths of the readable configuration files; values in an earlier file win.

    A file that another user can change is left out, with a warning, unless ``$TORCHXCONFIG`` names
    it, or ``$TORCHX_TRUSTED_FOLDERS`` its folder.

    Args:
        dirs: Folders to search instead of ``$HOME`` and the working directory; ignored if
            ``$TORCHXCONFIG`` is set.

    Raises:
        ConfigFileNotFoundError: ``$TORCHXCONFIG`` names a file that does not exist.
    """
    given = os.environ.get(ENV_TORCHXCONFIG)
    if given is not None:
        if not given:
            return []
        if not os.path.isfile(given):
            raise ConfigFileNotFoundError(
                f"{ENV_TORCHXCONFIG}={given}: no such file; correct or unset the variable"
            )
        return [given]
    if dirs is None:
        replaced: list[str] | None = globals().get("DEFAULT_CONFIG_DIRS")
        dirs = __getattr__("DEFAULT_CONFIG_DIRS") if replaced is None else replaced
    found: dict[str, None] = {}  # $HOME may be the working directory
    for folder in dirs:
        path = os.path.join(folder, CONFIG_FILE)
        if os.access(path, os.R_OK) and os.path.isfile(path):
            if reason := distrust_config(path, os.stat(path)):
                _warn(reason)
            else:
                found[path] = None
        elif os.path.lexists(path):
            _warn(f"{path} is not a readable file and is ignored")
    return list(found)


@functools.cache  # warn only once, although a command calls this several times
def _warn(message: str) -> None:
    _logger().warning("%s", message)


def read_configs(dirs: Iterable[str] | None = None, profile: str | None = None) -> list[ConfigFile]:
    """Return the content of the files; values of an earlier item win.

    If a profile is selected, the list begins with an item for each file that contains only the
    values of the profile, maybe none. The files follow.

    Args:
        dirs: As for :func:`find_configs`.
        profile: The profile; None means the profile of this process.

    Raises:
        ConfigError: A file is malformed, or the profile is unknown.
    """
    return layers(map(read_config, find_configs(dirs)), profile)


# -- options of schedulers


def apply(
    scheduler: str,
    cfg: dict[str, CfgVal],
    dirs: list[str] | None = None,
    *,
    opts: runopts | None = None,
    profile: str | None = None,
    on_unknown: Callable[[str], object] | None = None,
) -> None:
    """Add a scheduler's options from the configuration files.

    >>> cfg = {"queue": "mine"}
    >>> apply("kubernetes", cfg)  # doctest: +SKIP
    >>> cfg  # doctest: +SKIP
    {'queue': 'mine', 'namespace': 'default'}

    A key that the scheduler does not know is ignored with a warning.

    Args:
        scheduler: Name of the scheduler, and of the section. A host in the name is ignored.
        cfg: The given options, which win; changed in place.
        dirs: As for :func:`find_configs`.
        opts: The scheduler's option definitions; None creates the scheduler to get them.
        profile: The profile; None means the profile of this process.
        on_unknown: Called with a message for each of a file's first ten unknown keys, and with one
            message for the file's other unknown keys; None logs these messages as warnings.

    Raises:
        UnknownSchedulerException: Without ``opts``, no scheduler of that name is installed.
        PluginError: Without ``opts``, the scheduler cannot be created.
        ConfigError: A file is malformed, the profile is unknown, or a value is of the wrong type,
            contradicts another spelling of its key, or is the placeholder that :func:`dump` wrote.
    """
    if opts is None:
        _configurable(scheduler)
    section = scheduler.partition(HOST_DELIM)[0]
    for file in read_configs(dirs, profile):
        if section in file.sections:
            opts = opts if opts is not None else get_run_opts(section)
            _add_options(section, file, cfg, opts, on_unknown)


def on_host(scheduler: str, host: str) -> str:
    """Return a scheduler's name with another host; an empty host means this machine.

    >>> on_host("slurm@login1", "login2")
    'slurm@login2'
    """
    name = scheduler.partition(HOST_DELIM)[0]
    return f"{name}{HOST_DELIM}{host}" if host else name


def take_host(scheduler: str, cfg: Mapping[str, CfgVal]) -> tuple[str, Mapping[str, CfgVal]]:
    """Return a scheduler's name with the host among its options, and the other options."""
    if HOST_OPTION not in cfg:
        return scheduler, cfg
    others = {key: value for key, value in cfg.items() if key != HOST_OPTION}
    return on_host(scheduler, str(cfg[HOST_OPTION] or "")), others


def with_host(scheduler: str, dirs: list[str] | None = None, profile: str | None = None) -> str:
    """Return a scheduler's name with the host in its section, such as ``slurm@login1``.

    Args:
        scheduler: Name of the scheduler; a host in it wins.
        dirs: As for :func:`find_configs`.
        profile: The profile; None means the profile of this process.
    """
    if HOST_DELIM not in scheduler:
        for file in read_configs(dirs, profile):
            if host := file.sections.get(scheduler, {}).get(HOST_OPTION):
                return f"{scheduler}{HOST_DELIM}{host}"
    return scheduler


def load(scheduler: str, f: TextIO, cfg: dict[str, CfgVal]) -> None:
    """Add a scheduler's options from one open file; see :func:`apply`."""
    file = parse_config(f.read(), str(getattr(f, "name", "<configuration>")))
    if scheduler in file.sections:
        _add_options(scheduler, file, cfg, get_run_opts(scheduler))


def get_run_opts(scheduler: str) -> runopts:
    """Return the option definitions of an installed scheduler, which is created and closed.

    Raises:
        UnknownSchedulerException: No scheduler of that name is installed.
        PluginError: The scheduler cannot be created.
    """
    created = _configurable(scheduler)[scheduler]("_")
    try:
        return created.run_opts()
    finally:
        created.close()


def _configurable(*names: str) -> InstalledSchedulers:
    """Return the schedulers that may have a section; raise an error if one of ``names`` is none."""
    from torchx_runner.installed_schedulers import ConfigurableSchedulers, unknown_scheduler

    installed = ConfigurableSchedulers()
    for name in names:
        if name not in installed:
            raise unknown_scheduler(name, installed)
    return installed


class SectionOptions(NamedTuple):
    """The content of a scheduler's section.

    Attributes:
        values: The values of the known options.
        unknown: A message for each of the first ten unknown keys, and one for the others.
        errors: The errors of values that are of the wrong type, differ between two spellings of
            their key, or are still the placeholder that :func:`dump` wrote.
    """

    values: dict[str, CfgVal]
    unknown: list[str]
    errors: list[ConfigError]


def read_options(
    section: str, file: ConfigFile, opts: runopts, given: Iterable[str] = ()
) -> SectionOptions:
    """Return a scheduler's options from one item of :func:`read_configs`.

    Args:
        section: Name of the scheduler, and of its section in the item.
        file: The item: a file, or the values of a file for a profile.
        opts: The scheduler's option definitions.
        given: The options that are given elsewhere, which are left out.
    """
    where = f"{file.path}: [{file.prefix}{section}]"
    taken = {opts.canonical_key(key) or key for key in given}
    spellings: dict[str, str] = {}
    found = SectionOptions({}, [], [])
    unknown: list[str] = []
    for name, text in file.sections[section].items():
        key = opts.canonical_key(name)
        if key is None:
            if name not in file.defaults and name != HOST_OPTION:
                unknown.append(name)
        elif key not in taken:
            other = spellings.setdefault(key, name)
            try:
                if file.sections[section][other] != text:
                    raise ConfigError(
                        f"{where} {name}: conflicts with '{other}', another spelling of the same"
                        " option"
                    )
                found.values[key] = _convert(f"{where} {name}", text, opts.get(key))
            except ConfigError as e:
                found.errors.append(e)
    known = [key for key, _ in opts]
    for name in unknown[:_MAX_WARNINGS]:
        text = f"{where} {name}: unknown option, ignored;{nearest(name, known)}"
        found.unknown.append(text.rstrip(";"))
    if len(unknown) > _MAX_WARNINGS:
        rest = len(unknown) - _MAX_WARNINGS
        found.unknown.append(f"{where} has {rest} more unknown options")
    return found


def _add_options(
    section: str,
    file: ConfigFile,
    cfg: dict[str, CfgVal],
    opts: runopts,
    on_unknown: Callable[[str], object] | None = None,
) -> None:
    values, unknown, errors = read_options(section, file, opts, cfg)
    for message in unknown:
        (on_unknown or _logger().warning)(message)
    for error in errors:
        raise error
    cfg.update(values)


def _convert(where: str, text: str, opt: runopt | None) -> CfgVal:
    if text.startswith(_PLACEHOLDER):
        raise ConfigError(
            f"{where}: still has the placeholder '{text}'; give a value, or remove the key"
        )
    if text == _NONE or opt is None:
        return None
    try:
        return opt.cast_to_type(text)
    except ValueError as e:
        raise ConfigError(f"{where}: {e}") from None


# -- other sections


def load_sections(
    prefix: str, dirs: list[str] | None = None, *, profile: str | None = None
) -> dict[str, dict[str, str]]:
    """Return ``{name: {key: value}}`` of all sections ``[prefix:name]``, merged from the files.

    The first ``:`` separates prefix and name: ``[component:./train.py:trainer]`` has the name
    ``./train.py:trainer``.

    Args:
        prefix: The prefix.
        dirs: As for :func:`find_configs`.
        profile: The profile; None means the profile of this process.
    """
    merged: dict[str, dict[str, str]] = {}
    for file in read_configs(dirs, profile):
        for section, values in file.sections.items():
            section_prefix, delimiter, name = section.partition(CONFIG_PREFIX_DELIM)
            if delimiter and name and section_prefix == prefix:
                into = merged.setdefault(name, {})
                into.update({**values, **into})
    return merged


# The older shape of two kinds: one section whose keys are the names, and the key of the values now.
_OLDER_TABLES = {"tracker": ("torchx:tracker", "type"), "log_sink": ("log_sinks", "url")}


def plugin_sections(
    kind: str, dirs: list[str] | None = None, *, profile: str | None = None
) -> dict[str, dict[str, str]]:
    """Return the sections ``[KIND:NAME]`` by name, including the older shapes of such sections.

    The older shapes are ``NAME = FACTORY`` in ``[torchx:tracker]``, ``NAME = URL`` in
    ``[log_sinks]``, and ``[notifiers:NAME]``. Their names come first, in the order of the files. A
    value in ``[KIND:NAME]`` wins over the same value in an older shape.

    Args:
        kind: ``tracker``, ``notifier`` or ``log_sink``.
        dirs: As for :func:`find_configs`.
        profile: The profile; None means the profile of this process.
    """
    if kind in _OLDER_TABLES:
        table, key = _OLDER_TABLES[kind]
        older: dict[str, dict[str, str]] = {}
        for file in read_configs(dirs, profile):
            for name, value in file.sections.get(table, {}).items():
                if kind == "tracker" and ":" not in value:  # such a value has no meaning
                    value = name
                older.setdefault(name.strip(), {key: value.strip()})
    else:
        older = load_sections(f"{kind}s", dirs, profile=profile)
    newer = load_sections(kind, dirs, profile=profile)
    return {name: {**older.get(name, {}), **newer.get(name, {})} for name in {**older, **newer}}


def get_configs(prefix: str, name: str, dirs: list[str] | None = None) -> dict[str, str]:
    """Return the values of the section ``[prefix:name]``, merged from the files."""
    return load_sections(prefix, dirs).get(name, {})


def get_config(prefix: str, name: str, key: str, dirs: list[str] | None = None) -> str | None:
    """Return one value of the section ``[prefix:name]``, or None."""
    return get_configs(prefix, name, dirs).get(key)


def get_cli_defaults(command: str, dirs: list[str] | None = None) -> dict[str, str]:
    """Return the section ``[cli:COMMAND]``: defaults of flags, by long name without dashes."""
    return get_configs("cli", command, dirs)


def get_disabled_plugins(dirs: list[str] | None = None) -> list[str]:
    """Return the distributions and plugins in ``[plugins] disabled`` of all files."""
    names: list[str] = []
    for file in read_configs(dirs):
        text = file.sections.get("plugins", {}).get("disabled", "")
        if text:
            from torchx_specs.text_values import split_list

            names += split_list(text.replace("\n", ","))
    return [name for name in names if name]


def list_values(dirs: list[str] | None = None) -> list[ConfigValue]:
    """Return every value of every file; ``effective`` marks the values that win.

    A value comes before the values that it overrides. The values of profiles that are not selected
    come last.
    """
    values: list[ConfigValue] = []
    others: list[ConfigValue] = []
    seen: set[tuple[str, str]] = set()
    for file in read_configs(dirs):
        for name, items in file.sections.items():
            selected = split_section(f"{file.prefix}x")[0]
            profile, section = (selected, name) if file.prefix else split_section(name)
            if profile and not file.prefix:
                others += [
                    ConfigValue(section, key, items[key], file.path, False, profile)
                    for key in items
                    if key in file.own[name]
                ]
                continue
            for key, value in items.items():
                wins = (section, key) not in seen
                values.append(ConfigValue(section, key, value, file.path, wins, profile))
        seen.update((value.section, value.key) for value in values)
    active = {value.profile for value in values}
    return values + [value for value in others if value.profile not in active]


# -- writing a file of options


def dump(f: TextIO, schedulers: list[str] | None = None, required_only: bool = False) -> None:
    """Write the options of schedulers as a configuration file.

    A required option gets a placeholder, any other option its default.

    Args:
        f: The open file; nothing is written if a scheduler is unknown.
        schedulers: The schedulers; None means all installed ones. A scheduler that cannot be loaded
            is skipped with a warning.
        required_only: Whether to leave out options that are not required.

    Raises:
        UnknownSchedulerException: No scheduler of that name is installed.
    """
    installed = _configurable(*(schedulers or ()))
    for name in installed if schedulers is None else schedulers:
        try:
            opts = get_run_opts(name)
        except PluginError as e:
            _logger().warning("%s; its section is left out", e)
            continue
        lines = [f"[{name}]"]
        for key, opt in opts:
            if opt.is_required:
                lines.append(f"{key} = {_fixme_placeholder(opt)}")
            elif not required_only:
                lines.append(f"{key} = {_to_text(opt.default)}")
        f.write("\n".join(lines) + "\n\n")


def _to_text(value: CfgVal) -> str:
    if isinstance(value, list):
        text = ";".join(value) or _NONE
    elif isinstance(value, Mapping):
        text = ";".join(f"{k}:{v}" for k, v in value.items()) or _NONE
    else:
        text = str(value)
    return escape(text)


def _fixme_placeholder(opt: runopt, max_len: int = 60) -> str:
    type_name = getattr(opt.opt_type, "__name__", str(opt.opt_type))
    text = f"{_PLACEHOLDER}({type_name}) {' '.join(opt.help.split())}"
    return text if len(text) <= max_len else text[:max_len] + "..."


def _logger() -> Any:
    import logging

    return logging.getLogger(__name__)


def get_configured_trackers(*, profile: str | None = None) -> dict[str, str | None]:
    """Return the trackers and their configurations, from the environment and ``.torchxconfig``.

    The configuration of a tracker may be None. See
    :func:`torchx_runner.tracker_configs.resolve_configs` for the precedence.

    Args:
        profile: The profile; None means the profile of this process.

    Raises:
        ConfigError: A configuration file is malformed, the profile is unknown, or two sections
            configure the same tracker differently.
    """
    from torchx_runner.tracker_configs import resolve_configs

    return resolve_configs(plugin_sections("tracker", profile=profile))
