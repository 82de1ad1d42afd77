"""Named resources in ``.torchxconfig``: a section ``[resources.NAME]`` for each.

::

    [resources.big]
    cpu = 8
    gpu = 1
    memMB = 64000
    capabilities = node.kubernetes.io/instance-type=p5.48xlarge
    devices = vpc.amazonaws.com/efa=4

A missing key has the default of ``torchx_specs.resource()``. The resource overrides a plugin's
resource of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from torchx_specs.errors import ConfigError, nearest
from torchx_specs.hookspecs import ResourcePlugin, hookimpl
from torchx_specs.plugins.records import Origin

if TYPE_CHECKING:
    from torchx_runner.config.files import ConfigFile
    from torchx_specs import Resource

#: The text before the name of a resource.
PREFIX = "resources."


class ConfiguredResources:
    """A plugin that yields the named resources of the configuration files."""

    @hookimpl(tryfirst=True)
    def torchx_named_resources(self) -> Iterator[ResourcePlugin]:
        """Yield a record for each section; the section is read when the resource is used."""
        from torchx_runner.config.api import read_configs

        sections = (section for file in read_configs() for section in file.sections)
        for name in dict.fromkeys(s.removeprefix(PREFIX) for s in sections if s.startswith(PREFIX)):
            if name:
                yield ResourcePlugin(name, partial(configured_resource, name), origin=_ORIGIN)


CONFIGURED_RESOURCES = ConfiguredResources()
_ORIGIN = Origin(plugin=".torchxconfig")


def configured_resource(name: str) -> Resource:
    """Return a new resource with the values of the section ``[resources.NAME]``.

    Raises:
        ConfigError: A key is unknown, or a value is invalid; the message has the file and the line.
    """
    from torchx_runner.config.api import read_configs
    from torchx_specs import resource

    section = f"{PREFIX}{name}"
    values: dict[str, Any] = {}
    for file in read_configs():
        for key, text in file.sections.get(section, {}).items():
            if key in values or (key not in _PARSERS and key in file.defaults):
                continue
            values[key] = _parse(file, section, key, text)
    made = resource()
    for key, value in values.items():
        setattr(made, key, value)
    return made


def check_section(file: ConfigFile, section: str) -> Iterator[str]:
    """Yield the problems of the section of a resource, one line each."""
    for key, text in file.sections[section].items():
        if key in _PARSERS or key not in file.defaults:
            try:
                _parse(file, section, key, text)
            except ConfigError as e:
                yield str(e)


def _parse(file: ConfigFile, section: str, key: str, text: str) -> Any:
    if key not in _PARSERS:
        hint = nearest(key, _PARSERS) or f" keys: {', '.join(_PARSERS)}"
        raise ConfigError(f"{_where(file, section, key)}: unknown key;{hint}")
    try:
        return _PARSERS[key](text)
    except ValueError as e:
        raise ConfigError(f"{_where(file, section, key)}: {e}") from None


def _where(file: ConfigFile, section: str, key: str) -> str:
    """Return the file, the line, the section and the key of a value, for an error message."""
    from torchx_runner.config.line_numbers import key_lines
    from torchx_specs.formats.documents import read_text_file

    section = f"{file.prefix}{section}"
    line = key_lines(read_text_file(file.path)).get((section, key))
    return f"{file.path}{'' if line is None else f':{line}'}: [{section}] {key}"


def _whole_number(text: str, minimum: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = minimum - 1
    if number < minimum:
        raise ValueError(f"'{text}' is not a whole number of at least {minimum}")
    return number


def _pairs(text: str) -> dict[str, str]:
    from torchx_specs.text_values import split_pairs

    return dict(split_pairs(",".join(filter(None, text.splitlines()))))


def _capabilities(text: str) -> dict[str, Any]:
    return {key: _typed(value) for key, value in _pairs(text).items()}


def _typed(text: str) -> int | bool | str:
    """Convert a text such as ``8`` or ``true`` to a number or boolean; return other text as is."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return text


def _devices(text: str) -> dict[str, int]:
    return {name: _whole_number(count, 0) for name, count in _pairs(text).items()}


_PARSERS: dict[str, Callable[[str], Any]] = {
    "cpu": partial(_whole_number, minimum=1),
    "gpu": partial(_whole_number, minimum=0),
    "memMB": partial(_whole_number, minimum=1),
    "capabilities": _capabilities,
    "devices": _devices,
    "tags": _pairs,
}
