"""The command ``torchx plugins``."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Any

import click

from torchx_cli.arguments.options import Group, output_option
from torchx_cli.doctor.own_checks import KINDS, conflicts
from torchx_cli.output.printing import write, write_result
from torchx_kit.text.tables import format_table
from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.named_resources_generic import NAMED_RESOURCES
from torchx_specs.plugins.catalog import Catalog
from torchx_specs.plugins.manager import PluginManager
from torchx_specs.redaction import masked_text
from torchx_specs.version import __version__

#: The table names at most this many resources of one distribution.
_MAX_NAMES = 6
#: The kinds of ``torchx plugins new``; their details are in ``scaffold/create.py``.
NEW_KINDS = ("scheduler", "tracker", "component", "resource", "command", "workspace")


@click.group("plugins", cls=Group, invoke_without_command=True)
@output_option
@click.pass_context
def command(ctx: click.Context, output_format: str) -> None:
    """List installed plugins, their overrides and conflicts, and their problems.

    The exit code is 2 if there are conflicts or problems. `torchx plugins new` creates a plugin.
    """
    if ctx.invoked_subcommand is not None:
        return
    manager = plugin_manager()
    data = plugins_data(manager)
    write_result(data, _as_text(data), output_format)
    if data["conflicts"] or data["problems"]:
        ctx.exit(2)


@command.command("new", short_help="Create the distribution of a new plugin.")
@click.argument("distribution", metavar="NAME")
@click.option(
    "--kind", type=click.Choice(NEW_KINDS), required=True, help="Select the kind of the plugin."
)
@click.option(
    "--as",
    "name",
    metavar="PLUGIN",
    help="Set the name that users of the plugin give.  [default: NAME without 'torchx']",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    help="Create the folder NAME in this directory.  [default: the working directory]",
)
def new(distribution: str, kind: str, name: str | None, directory: Path) -> None:
    """Create the distribution of a new plugin, with its tests, in the folder NAME.

    NAME is the distribution's name, such as acme-torchx. The new plugin works, and its tests pass.
    """
    from torchx_cli.scaffold.create import create_plugin

    folder, plugin = create_plugin(distribution, kind, name, directory, plugin_manager())
    write(f"created {folder} with the {kind} '{plugin}'")
    write(f"install and test it: cd {folder} && pip install -e . --group dev && pytest")


def plugins_data(manager: PluginManager) -> dict[str, Any]:
    """Return the plugins, their records, overrides, conflicts and problems as plain data."""
    catalogs: dict[str, Catalog[Any]] = {kind: getattr(manager, kind)() for kind in KINDS}
    given = {
        kind: [_record(catalog[name]) for name in sorted(catalog)]
        for kind, catalog in catalogs.items()
    }
    given["components"] = [
        {"name": c.group or "(no prefix)", "summary": c.module, **c.origin._asdict()}
        for c in manager.components()
    ]
    return {
        "distributions": [
            {**r.origin._asdict(), "module": r.target, "enabled": r.enabled}
            for r in manager.registrations
        ],
        **given,
        "overrides": [
            {"kind": kind, "name": name, "by": str(catalog[name].origin), "hidden": hidden}
            for kind, catalog in catalogs.items()
            for name, hidden in _hidden(kind, catalog).items()
        ],
        "conflicts": [
            {"kind": kind, "name": name, "claimed_by": _texts(claims)}
            for kind, catalog in catalogs.items()
            for name, claims in catalog.conflicts.items()
        ],
        "problems": [
            *(
                {**p.origin._asdict(), "stage": p.stage, "message": masked_text(p.message)}
                for p in manager.problems
            ),
            *(
                {
                    **origin._asdict(),
                    "stage": "install",
                    "message": f"{problem}; run: {command}",
                }
                for origin, problem, command in conflicts()
            ),
        ],
    }


def _hidden(kind: str, catalog: Catalog[Any]) -> dict[str, list[str]]:
    """Return the origins of the records that each record of a catalog hides."""
    hidden = {name: _texts(records) for name, records in catalog.overridden.items()}
    if kind == "named_resources":
        generic = f"torchx_specs {__version__}"
        for name in NAMED_RESOURCES.keys() & catalog.keys():
            hidden.setdefault(name, []).append(generic)
    return {name: hidden[name] for name in sorted(hidden) if name in catalog}


def _record(record: Any) -> dict[str, Any]:
    return {"name": record.name, "summary": record.summary_text(), **record.origin._asdict()}


def _texts(records: list[Any]) -> list[str]:
    return [str(record.origin) for record in records]


def _as_text(data: dict[str, Any]) -> str:
    records = [(kind, *_table(kind, data[kind])) for kind in (*KINDS, "components")]
    sections = [
        (
            "distributions",
            ["DISTRIBUTION", "VERSION", "PLUGIN", "MODULE", "STATE"],
            [
                [d["distribution"], d["version"], d["plugin"], d["module"],
                 "enabled" if d["enabled"] else "disabled"]
                for d in data["distributions"]
            ],
        ),
        *records,
        (
            "overrides",
            ["KIND", "NAME", "GIVEN BY", "INSTEAD OF"],
            [[o["kind"], o["name"], o["by"], ", ".join(o["hidden"])] for o in data["overrides"]],
        ),
        (
            "conflicts",
            ["KIND", "NAME", "CLAIMED BY"],
            [[c["kind"], c["name"], ", ".join(c["claimed_by"])] for c in data["conflicts"]],
        ),
        (
            "problems",
            ["PLUGIN", "STAGE", "MESSAGE"],
            [[_from(p), p["stage"], p["message"]] for p in data["problems"]],
        ),
    ]  # fmt: skip
    shown = [
        f"{title.replace('_', ' ')}:\n\n{indent(format_table(headers, rows), '  ')}\n"
        for title, headers, rows in sections
        if rows
    ]
    if not (data["conflicts"] or data["problems"]):
        shown.append("no problems\n")
    return "\n".join(shown)


def _table(kind: str, rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the headers and the rows of the table of one kind of plugin."""
    if kind == "named_resources":
        return _resources(rows)
    return ["NAME", "FROM", "SUMMARY"], [[r["name"], _from(r), r["summary"]] for r in rows]


def _from(row: dict[str, Any]) -> str:
    return f"{row['distribution']} {row['version']}".strip() or str(row["plugin"])


def _resources(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return the headers and the rows of the table of named resources.

    Each distribution has one row, because a distribution may have hundreds of resources.
    """
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
