"""Profiles: sections ``[profile.NAME.SECTION]`` whose values win over those of ``[SECTION]``."""

from __future__ import annotations

import os
from collections.abc import Iterable

from torchx_runner.config.files import ConfigFile
from torchx_specs.errors import ConfigError, nearest

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
