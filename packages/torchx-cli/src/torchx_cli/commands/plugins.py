"""The command ``torchx plugins``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import output_option
from torchx_cli.foreign_torchx import conflicts
from torchx_cli.output.printing import TABLE, write, write_data
from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.formats.text_table import format_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchx_specs.plugins.catalog import Catalog
    from torchx_specs.plugins.manager import PluginManager
    from torchx_specs.plugins.records import Origin

#: The table names at most this many resources of one distribution.
_MAX_NAMES = 6

_KINDS = (
    *("schedulers", "named_resources", "trackers", "commands", "workspaces", "pruners"),
    "event_handlers",
)


@click.command("plugins", cls=Command)
@output_option
def command(output_format: str) -> None:
    """List installed plugins, their overrides and conflicts, and their problems.

    The exit code is 0 even if there are problems.
    """
    manager = plugin_manager()
    data = plugins_data(manager)
    if output_format == TABLE:
        write(_as_text(data))
    else:
        write_data(data, output_format)


def plugins_data(manager: PluginManager) -> dict[str, Any]:
    """Return the plugins, their records, overrides, conflicts and problems as plain data."""
    catalogs: dict[str, Catalog[Any]] = {kind: getattr(manager, kind)() for kind in _KINDS}
    given = {kind: [_record(r) for r in _usable(catalog)] for kind, catalog in catalogs.items()}
    given["components"] = [
        {"name": c.group or "(no prefix)", "summary": c.module, **_origin(c.origin)}
        for c in manager.components()
    ]
    return {
        "distributions": [
            {**_origin(r.origin), "module": r.target, "enabled": r.enabled}
            for r in manager.registrations
        ],
        **given,
        "overrides": [
            {
                "kind": kind,
                "name": name,
                "by": str(catalog[name].origin),
                "hidden": _texts(hidden),
            }
            for kind, catalog in catalogs.items()
            for name, hidden in catalog.overridden.items()
            if name not in catalog.conflicts
        ],
        "conflicts": [
            {"kind": kind, "name": name, "claimed_by": _texts(claims)}
            for kind, catalog in catalogs.items()
            for name, claims in catalog.conflicts.items()
        ],
        "problems": [
            *(
                {**_origin(p.origin), "stage": p.stage, "message": p.message}
                for p in manager.problems
            ),
            *_installation_problems(),
        ],
    }


def _installation_problems() -> Iterator[dict[str, Any]]:
    for owner, message in conflicts():
        yield {
            "distribution": owner.name,
            "version": owner.version,
            "plugin": "",
            "stage": "install",
            "message": message,
        }


def _usable(catalog: Catalog[Any]) -> list[Any]:
    return [catalog[name] for name in sorted(catalog) if name not in catalog.conflicts]


def _record(record: Any) -> dict[str, Any]:
    return {"name": record.name, "summary": record.summary_text(), **_origin(record.origin)}


def _origin(origin: Origin) -> dict[str, str]:
    return {
        "distribution": origin.distribution,
        "version": origin.version,
        "plugin": origin.plugin,
    }


def _texts(records: list[Any]) -> list[str]:
    return [str(record.origin) for record in records]


def _as_text(data: dict[str, Any]) -> str:
    sections = [
        (
            "distributions",
            ["DISTRIBUTION", "VERSION", "PLUGIN", "MODULE", "STATE"],
            [
                [d["distribution"], d["version"], d["plugin"], d["module"],
                 "enabled" if d["enabled"] else "disabled"]
                for d in data["distributions"]
            ],
        )
    ]  # fmt: skip
    for kind in (*_KINDS, "components"):
        if kind == "named_resources":
            sections.append(("named resources", *_resources(data[kind])))
            continue
        rows = [[r["name"], _from(r), r["summary"]] for r in data[kind]]
        sections.append((kind.replace("_", " "), ["NAME", "FROM", "SUMMARY"], rows))
    sections.append(
        (
            "overrides",
            ["KIND", "NAME", "GIVEN BY", "INSTEAD OF"],
            [[o["kind"], o["name"], o["by"], ", ".join(o["hidden"])] for o in data["overrides"]],
        )
    )
    sections.append(
        (
            "conflicts",
            ["KIND", "NAME", "CLAIMED BY"],
            [[c["kind"], c["name"], ", ".join(c["claimed_by"])] for c in data["conflicts"]],
        )
    )
    sections.append(
        (
            "problems",
            ["PLUGIN", "STAGE", "MESSAGE"],
            [[_from(p), p["stage"], p["message"]] for p in data["problems"]],
        )
    )
    shown = [
        f"{title}:\n\n{_indented(format_table(headers, rows))}\n"
        for title, headers, rows in sections
        if rows
    ]
    if not data["problems"]:
        shown.append("no problems\n")
    return "\n".join(shown)


def _from(row: dict[str, Any]) -> str:
    return f"{row['distribution']} {row['version']}".strip() or str(row["plugin"])


def _resources(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the headers, and one row for each distribution, which may have hundreds of names."""
    names: dict[str, list[str]] = {}
    for row in rows:
        names.setdefault(_from(row), []).append(row["name"])
    table = []
    for origin, given in sorted(names.items()):
        text = ", ".join(given)
        if len(given) > _MAX_NAMES:
            text = ", ".join(given[: _MAX_NAMES // 2]) + ", … (all: torchx plugins -o json)"
        table.append([origin, str(len(given)), text])
    return ["FROM", "COUNT", "NAMES"], table


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
