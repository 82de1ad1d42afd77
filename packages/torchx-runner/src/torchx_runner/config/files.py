"""Reads ``.torchxconfig`` files: INI files whose values are text.

``%%`` is read as ``%``. ``%(name)s`` is read as the value of the key ``name`` in the same section
or in ``[DEFAULT]``, if this key exists. Any other ``%`` is read unchanged.

The sections ``[profile.NAME.SECTION]`` are a profile, whose values win over those of ``[SECTION]``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import NamedTuple

from torchx_specs.errors import ConfigError, nearest
from torchx_specs.settings import ENV_TORCHXCONFIG

_REFERENCE = re.compile(r"%%|%\(([^)\n]+)\)s")
_MAX_NESTING = 10  # a value may refer to itself


class ConfigFile(NamedTuple):
    """The content of one file.

    Attributes:
        path: The path of the file.
        sections: The values by section and key; each section includes the values of ``[DEFAULT]``.
        defaults: The values of ``[DEFAULT]``.
        own: The keys that each section sets itself.
        prefix: Prefix that the sections have in the file but not in ``sections``, such as
            ``profile.big.``.
    """

    path: str
    sections: dict[str, dict[str, str]]
    defaults: dict[str, str]
    own: dict[str, frozenset[str]] = {}
    prefix: str = ""


_cache: dict[str, tuple[tuple[int, ...], ConfigFile]] = {}


def distrust_config(path: str, status: os.stat_result) -> str:
    """Return why a configuration file is not used, with the remedy; empty if it is.

    The commands and options in a file of another user could do anything. The user may have named
    the file, or trust its folder.
    """
    from torchx_kit.trust import ENV_TRUSTED_FOLDERS, distrust_path

    reason = distrust_path(path, status)
    if not reason or path == os.environ.get(ENV_TORCHXCONFIG):
        return ""
    return (
        f"{path} is not used: {reason}; if you trust it, name it in {ENV_TORCHXCONFIG}, or its"
        f" folder in {ENV_TRUSTED_FOLDERS}"
    )


def _signature(status: os.stat_result) -> tuple[int, ...]:
    mode, uid, gid = status.st_mode, status.st_uid, status.st_gid
    return (status.st_mtime_ns, status.st_size, status.st_ino, mode, uid, gid)


def read_config(path: str) -> ConfigFile:
    """Return the content of a file, which is cached until the file changes.

    Raises:
        ConfigError: The file cannot be read or is malformed, or another user can change it.
    """
    try:
        signature = _signature(os.stat(path))
        cached = _cache.get(path)
        if cached is None or cached[0] != signature:
            with open(path, "rb") as fp:
                status = os.fstat(fp.fileno())
                if reason := distrust_config(path, status):  # replaced since find_configs()
                    raise ConfigError(reason)
                cached = (_signature(status), parse_config(fp.read(), path))
            _cache[path] = cached
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror or e}") from None
    return cached[1]


def parse_config(data: bytes | str, path: str) -> ConfigFile:
    """Return the content of a file.

    Args:
        data: The text or bytes of the file.
        path: The path, for error messages.

    Raises:
        ConfigError: The data is not UTF-8 or not INI. The message contains the line or the section
            and key.
    """
    import configparser

    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    try:
        parser.read_string(_decode(data, path), path)
    except configparser.Error as e:
        raise ConfigError(_describe(e, path)) from None
    sections = {name: _expand_all(dict(parser.items(name))) for name in parser.sections()}
    defaults = _expand_all(dict(parser.defaults()))
    for key in defaults:  # options() would return these keys for every section
        parser.remove_option(parser.default_section, key)
    own = {name: frozenset(parser.options(name)) for name in sections}
    return ConfigFile(path, sections, defaults, own)


def _expand_all(raw: dict[str, str]) -> dict[str, str]:
    return {key: _expand(value, raw) for key, value in raw.items()}


def escape(value: str) -> str:
    """Return the text to write to a file, so that reading the file returns ``value``."""
    if _expand(value, {}) != value:
        value = value.replace("%", "%%")
    return value.replace("\n", "\n\t")


def _decode(data: bytes | str, path: str) -> str:
    if isinstance(data, str):
        return data.removeprefix("\ufeff")  # the byte order mark, which utf-8-sig removes
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text") from None


def _expand(value: str, values: dict[str, str], nesting: int = 0) -> str:
    """Return a value with its references replaced."""
    if "%" not in value or nesting > _MAX_NESTING:
        return value

    def replacement(found: re.Match[str]) -> str:
        name = found[1]
        if name is None:
            return "%"
        return _expand(values[name], values, nesting + 1) if name in values else found[0]

    return _REFERENCE.sub(replacement, value)


def _describe(error: Exception, path: str) -> str:
    """Return the message of a configparser error as one line."""
    import configparser

    if isinstance(error, configparser.MissingSectionHeaderError):
        got = error.line.strip()
        if got.startswith("["):
            return f"{path}:{error.lineno}: a [section] ends with a bracket, got: {got}"
        return f"{path}:{error.lineno}: expected a [section] before the first key, got: {got}"
    if isinstance(error, configparser.DuplicateOptionError):
        return f"{path}:{error.lineno}: key '{error.option}' is given twice in [{error.section}]"
    if isinstance(error, configparser.DuplicateSectionError):
        return f"{path}:{error.lineno}: section [{error.section}] is given twice"
    if isinstance(error, configparser.ParsingError) and error.errors:
        line, raw = error.errors[0]  # raw is text since Python 3.13, repr() before
        text = raw.strip().strip("'\"").removesuffix("\\n")
        return f"{path}:{line}: expected key = value, got: {text}"
    return f"{path}: {' '.join(str(error).split())}"


#: Name of the variable that selects a profile.
ENV_TORCHX_PROFILE = "TORCHX_PROFILE"

_PREFIX = "profile."

_selected: str | None = None


def select_profile(name: str | None) -> None:
    """Use a profile in this process from now on, instead of ``$TORCHX_PROFILE``.

    Args:
        name: The profile; an empty text means no profile, and None means ``$TORCHX_PROFILE``.
    """
    global _selected
    _selected = name


def selected_profile() -> str:
    """Return the profile that this process uses, or an empty text."""
    return os.environ.get(ENV_TORCHX_PROFILE, "") if _selected is None else _selected


def split_section(section: str) -> tuple[str, str]:
    """Return the profile and the section that a section's name contains.

    >>> split_section("profile.big.component:dist.ddp")
    ('big', 'component:dist.ddp')
    >>> split_section("slurm")
    ('', 'slurm')
    """
    if section.startswith(_PREFIX):
        profile, dot, inner = section.removeprefix(_PREFIX).partition(".")
        if profile and dot and inner:
            return profile, inner
    return "", section


def profile_names(files: Iterable[ConfigFile]) -> list[str]:
    """Return the profiles of these files, sorted."""
    found = {split_section(section)[0] for file in files for section in file.sections}
    return sorted(found - {""})


def profile_layer(file: ConfigFile, profile: str) -> ConfigFile:
    """Return the values that a file sets for a profile, by section.

    Values of ``[DEFAULT]`` are left out: a default must not win over a value in ``[SECTION]``.

    Args:
        file: The file.
        profile: The profile.
    """
    prefix = f"{_PREFIX}{profile}."
    sections = {
        section.removeprefix(prefix): {
            key: values[key] for key in values if key in file.own[section]
        }
        for section, values in file.sections.items()
        if section.startswith(prefix)
    }
    return ConfigFile(file.path, sections, {}, prefix=prefix)


def layers(files: Iterable[ConfigFile], profile: str | None) -> list[ConfigFile]:
    """Return the values of a profile in each file, and then the files; earlier items win.

    Without a profile, the result has only the files.

    Args:
        files: The files; values of an earlier file win.
        profile: The profile; empty means none, and None means the profile of this process.

    Raises:
        ConfigError: No file has a section of the profile.
    """
    files = list(files)
    profile = selected_profile() if profile is None else profile
    if not profile:
        return files
    known = profile_names(files)
    if profile not in known:
        have = f"profiles: {', '.join(known)}" if known else "no file has a section [profile.…]"
        read = f" (files read: {', '.join(file.path for file in files) or 'none'})"
        raise ConfigError(f"unknown profile '{profile}';{nearest(profile, known)} {have}{read}")
    return [*(profile_layer(file, profile) for file in files), *files]
