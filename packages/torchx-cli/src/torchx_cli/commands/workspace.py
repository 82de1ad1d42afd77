"""The command group ``torchx workspace``."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import click

from torchx_cli.arguments.options import Command, duration_option, output_option
from torchx_cli.exit_codes import BACKEND_FAILED, GlobalOptions, fail, report_error
from torchx_cli.output.colors import is_terminal
from torchx_cli.output.printing import (
    TABLE,
    Column,
    counted,
    format_bytes,
    rfc3339,
    row_data,
    write,
    write_data,
    write_rows,
)
from torchx_runner.installed_schedulers import plugin_manager
from torchx_specs.errors import RequestError, TorchXError, nearest, one_line
from torchx_specs.plugins.catalog import Catalog
from torchx_specs.plugins.records import PrunerPlugin
from torchx_specs.redaction import masked_text
from torchx_specs.workspace.pruning import Prunable, PruneQuery

logger = logging.getLogger(__name__)


@dataclass
class _Found:
    """Data that a pruner has found, and whether it was removed."""

    pruner: str
    item: Prunable
    removed: bool = False
    problem: str = ""

    @property
    def last_used(self) -> datetime | None:
        """When a job used the data last."""
        used = self.item.last_used
        return None if used is None else datetime.fromtimestamp(int(used), timezone.utc)


def _shown_time(one: _Found) -> str:
    when = one.last_used
    return "unknown" if when is None else f"{when.astimezone():%Y-%m-%d %H:%M}"


_COLUMNS = (
    Column("pruner", lambda one: one.pruner, "PRUNER"),
    Column("name", lambda one: one.item.name, "UNUSED"),
    Column("bytes", lambda one: one.item.size, "SIZE", lambda one: format_bytes(one.item.size)),
    Column("last_used", lambda one: rfc3339(one.last_used), "LAST USED", _shown_time),
    Column("removable", lambda one: one.item.remove is not None),
    Column("removed", lambda one: one.removed),
    Column("reason", lambda one: one.problem or one.item.reason or None),
)


@click.group("workspace")
def command() -> None:
    """Manage images and copies of workspaces."""


@command.command("prune", cls=Command, short_help="Remove unused images, copies and caches.")
@click.option("--dryrun", is_flag=True, help="Show unused data without removing it.")
@click.option(
    "--all",
    "include_newest",
    is_flag=True,
    help="Also remove what makes the next submission faster: the newest image of each workspace,"
    " and caches of any age.",
)
@duration_option(
    "--older-than",
    help="Remove only data that was last used longer ago, such as 7d or 12h.  [default: 1h for"
    " images, 7d for other data]",
)
@click.option(
    "--only",
    "names",
    metavar="PRUNER",
    multiple=True,
    help="Use only this pruner; may be repeated (torchx plugins lists the pruners).",
)
@click.option("-y", "--yes", is_flag=True, help="Remove the data without a question.")
@output_option
def prune(
    dryrun: bool,
    include_newest: bool,
    older_than: float | None,
    names: tuple[str, ...],
    yes: bool,
    output_format: str,
) -> None:
    """Remove images, copies of workspaces, ended local apps and caches that no job uses.

    The installed schedulers and workspace builders find the data on this machine, in its Docker
    Engine, and in the directories of its Slurm jobs. Data of running and queued jobs, base images,
    and images in registries stay. Without --yes, the command asks before it removes anything.

    The exit code is 3 if data could not be removed, or if a pruner of --only failed.
    """
    asks = not dryrun and not yes
    if asks and output_format != TABLE:
        raise RequestError(
            f"torchx workspace prune -o {output_format} does not show the data before it asks; pass"
            " --yes to remove without a question, or --dryrun to remove nothing"
        )
    if asks and not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        raise RequestError(
            "torchx workspace prune asks before it removes anything, and this is not a terminal;"
            " pass --yes to remove without a question, or --dryrun to remove nothing"
        )
    query = PruneQuery(older_than, include_newest)
    found, problems = _find(names, query)
    removable = [one for one in found if one.item.remove is not None]
    if output_format == TABLE:
        _write_found(found)
    total = _total(removable)
    if asks and removable:
        question = f"Remove {counted(len(removable), 'item')} ({total})?"
        if not click.confirm(question, err=True):
            removable = []
    if not dryrun:
        for one in removable:
            _remove(one, output_format == TABLE)
    removed = [one for one in found if one.removed]
    if output_format == TABLE:
        if dryrun:
            write(f"would remove {counted(len(removable), 'item')} ({total})")
        else:
            write(f"removed {counted(len(removed), 'item')} ({_total(removed)})")
    else:
        write_data(
            {
                "dryrun": dryrun,
                "items": [row_data(_COLUMNS, one) for one in found],
                "removed_bytes": sum(one.item.size or 0 for one in removed),
                "problems": problems,
            },
            output_format,
        )
    if any(one.problem for one in found) or (names and problems):
        fail(BACKEND_FAILED)


def _find(names: Sequence[str], query: PruneQuery) -> tuple[list[_Found], list[dict[str, str]]]:
    """Return the data that the pruners find, and the messages of the pruners that failed.

    Raises:
        RequestError: One of the names is not the name of a pruner.
    """
    catalog: Catalog[PrunerPlugin] = plugin_manager().pruners()
    known = sorted(catalog.names())
    for name in names:
        if name not in known:
            raise RequestError(
                f"--only: there is no pruner '{name}';{nearest(name, known)} pruners:"
                f" {', '.join(known)}"
            )
    found: list[_Found] = []
    problems: list[dict[str, str]] = []
    for name in dict.fromkeys(names or known):
        try:
            pruner = catalog[name].load()
            found += [_Found(name, item) for item in pruner(query)]
        except Exception as e:  # report the error, and continue with the other pruners
            kind = "" if isinstance(e, TorchXError) else f"{type(e).__name__}: "
            message = masked_text(f"{kind}{one_line(e)}")
            logger.warning("%s: not checked: %s", name, message)
            problems.append({"pruner": name, "message": message})
    return found, problems


def _remove(found: _Found, show: bool) -> None:
    remove = found.item.remove
    if remove is None:
        return
    try:
        remove()
    except Exception as e:  # report the error, and remove the other items
        found.problem = masked_text(one_line(e))
        report_error(e, click.get_current_context().ensure_object(GlobalOptions))
        return
    found.removed = True
    if show:
        write(f"removed {found.item.name} ({format_bytes(found.item.size)})")


def _write_found(found: Sequence[_Found]) -> None:
    unused = [one for one in found if one.item.remove is not None]
    if unused:
        write_rows(_COLUMNS, unused, TABLE)
    for one in found:
        if one.item.remove is None:
            write(f"kept {one.item.name}: {one.item.reason}")


def _total(found: Sequence[_Found]) -> str:
    sizes = [one.item.size for one in found]
    total = format_bytes(sum(size or 0 for size in sizes))
    return f"at least {total}" if None in sizes else total
