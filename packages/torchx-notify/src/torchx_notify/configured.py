"""Opens the notifiers of the sections ``[notifier:NAME]`` of ``.torchxconfig``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from torchx_specs.errors import PluginError, RequestError, TorchXError, nearest, one_line
from torchx_specs.plugins.manager import get_manager
from torchx_specs.plugins.records import ALL

_SECTION = "notifier"


class NamedNotifier(NamedTuple):
    """A notifier, with its name in the configuration.

    Attributes:
        name: NAME of the section ``[notifier:NAME]``.
        notify: Sends data about an ended job.
    """

    name: str
    notify: Callable[[Mapping[str, Any]], None]


def open_notifiers(
    names: Iterable[str], sections: Mapping[str, Mapping[str, str]]
) -> list[NamedNotifier]:
    """Return the notifiers of some sections.

    The values of a section may be secrets, so no message contains them. The plugin is responsible
    for its own messages.

    Args:
        names: The names of the notifiers.
        sections: All sections, by the name of the notifier.

    Raises:
        RequestError: A section is missing, has an unknown type, or is refused by its plugin.
        PluginError: A plugin fails.
    """
    return [NamedNotifier(name, _open(name, sections)) for name in names]


def _open(
    name: str, sections: Mapping[str, Mapping[str, str]]
) -> Callable[[Mapping[str, Any]], None]:
    section = sections.get(name)
    if section is None:
        have = f" notifiers: {', '.join(sections)}" if sections else ""
        raise RequestError(
            f"--notify {name}: .torchxconfig has no section [{_SECTION}:{name}];"
            f"{nearest(name, sections)}{have}".rstrip(";")
        )
    kind = section.get("type", name).strip()
    plugins = get_manager().notifiers()
    record = None if kind == ALL else plugins.find(kind)
    if record is None:
        command = plugins.installable.get(kind)
        types = ", ".join(known for known in plugins.names() if known != ALL)
        hint = f"; run: {command}" if command else f"; types: {types}"
        raise RequestError(f"[{_SECTION}:{name}] type: there is no notifier '{kind}'{hint}")
    notify: Callable[[Mapping[str, Any]], None]
    try:
        notify = record.load()(dict(section))
    except PluginError:
        raise
    except TorchXError as e:
        raise RequestError(f"[{_SECTION}:{name}]: {e}") from e
    except Exception as e:
        raise PluginError(
            f"notifier '{kind}' of {record.origin} failed for [{_SECTION}:{name}]:"
            f" {type(e).__name__}: {one_line(e)}"
        ) from e
    return notify
