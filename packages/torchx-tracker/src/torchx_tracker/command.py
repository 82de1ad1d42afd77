"""The command ``torchx tracker``, which shows the records of the configured trackers.

``torchx`` imports this module only when this command runs. This package does not depend on click or
the runner; they are installed with ``torchx``. The configured trackers are those in
``.torchxconfig`` or ``TORCHX_TRACKERS``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchx_specs.errors import TorchXError, TrackerError
from torchx_specs.plugins.records import load_object
from torchx_specs.redaction import masked_text
from torchx_tracker.printing import JSON, TABLE, YAML, as_plain, format_tree, table_text, write

if TYPE_CHECKING:
    from torchx_specs.trackers.api import Lineage, TrackerBase

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


def _output_option(function: F) -> F:
    # The options of torchx_cli, on which this package does not depend.
    def format_of(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
        wants_json = ctx.params.pop("as_json", False)
        if wants_json and value not in (None, JSON):
            raise click.UsageError(f"--json and -o {value} contradict each other", ctx)
        return JSON if wants_json else value or TABLE

    function = click.option(
        "-o",
        "--output",
        "output_format",
        type=click.Choice([TABLE, JSON, YAML]),
        callback=format_of,
        help="Print the result in this format.  [default: table]",
    )(function)
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        help="Print the result as JSON (same as -o json).",
    )(function)


def _tracker_option(function: F) -> F:
    return click.option(
        "--tracker",
        "tracker_name",
        metavar="NAME",
        help="Query only this tracker.",
    )(function)


def _run_id(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Return the handle of the submission ``@N``, which is the id of its run, or the value."""
    if not value.startswith("@"):
        return value
    found = load_object("torchx_runner.submissions.journal:numbered_submission", "torchx tracker")(
        value
    )
    return value if found is None else str(found.handle)


def _run_argument(function: F) -> F:
    return click.argument("run_id", metavar="RUN_ID", callback=_run_id)(function)


@click.group("tracker", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show the records of trackers.

    Queries every tracker in .torchxconfig or TORCHX_TRACKERS.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.group("list", invoke_without_command=True)
@click.pass_context
def list_(ctx: click.Context) -> None:
    """List runs, or the records of one run."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _list_runs(parent_run_id: str | None, tracker_name: str | None, output_format: str) -> None:
    """List the runs."""
    filters = {} if parent_run_id is None else {"parent_run_id": parent_run_id}
    found = _query(tracker_name, lambda tracker: sorted(tracker.run_ids(**filters)))
    if output_format == TABLE:
        ids = dict.fromkeys(run_id for ids in found.values() for run_id in ids)
        _print(table_text(["JOB ID"], [[run_id] for run_id in ids]), found.exit_code)
    else:
        _print(as_plain({"trackers": found}, output_format), found.exit_code)


for _name in ("jobs", "runs"):
    list_.command(_name)(
        click.option(
            "--parent-run-id", metavar="RUN_ID", help="Show only runs made from this run."
        )(_tracker_option(_output_option(_list_runs)))
    )


@list_.command("metadata")
@_run_argument
@_tracker_option
@_output_option
def list_metadata(run_id: str, tracker_name: str | None, output_format: str) -> None:
    """Show the metadata of a run."""
    found = _query(tracker_name, lambda tracker: dict(tracker.metadata(run_id)))
    _note_if_empty(found, f"run '{run_id}' has no metadata")
    if output_format == TABLE:
        rows = _distinct(
            [key, str(value)] for pairs in found.values() for key, value in pairs.items()
        )
        _print(table_text(["ID", "VALUE"], rows), found.exit_code)
    else:
        _print(as_plain({"run_id": run_id, "trackers": found}, output_format), found.exit_code)


@list_.command("artifacts")
@click.option("--artifact", "name", metavar="NAME", help="Show only the artifact with this name.")
@_run_argument
@_tracker_option
@_output_option
def list_artifacts(
    run_id: str, name: str | None, tracker_name: str | None, output_format: str
) -> None:
    """Show the artifacts of a run."""
    found = _query(
        tracker_name,
        lambda tracker: [
            {"name": a.name, "path": a.path, "metadata": dict(a.metadata) if a.metadata else None}
            for a in tracker.artifacts(run_id).values()
            if name is None or a.name == name
        ],
    )
    missing = "no artifacts" if name is None else f"no artifact '{name}'"
    _note_if_empty(found, f"run '{run_id}' has {missing}")
    if output_format == TABLE:
        rows = _distinct(
            [str(a["name"]), str(a["path"]), str(a["metadata"] or "")]
            for artifacts in found.values()
            for a in artifacts
        )
        _print(table_text(["ARTIFACT", "PATH", "METADATA"], rows), found.exit_code)
    else:
        _print(as_plain({"run_id": run_id, "trackers": found}, output_format), found.exit_code)


def _show_lineage(run_id: str, tracker_name: str | None, output_format: str) -> None:
    """Show the ancestors and descendants of a run as a tree."""
    found = _query(tracker_name, lambda tracker: tracker.lineage(run_id))
    empty = {name: lineage.sources or lineage.descendants for name, lineage in found.items()}
    _note_if_empty(empty, f"run '{run_id}' has no sources and no descendants")
    if output_format == TABLE:
        links = [link for lineage in found.values() for link in _links(lineage)]
        _print(format_tree(run_id, links), found.exit_code)
    else:
        plain = {name: _lineage_data(lineage) for name, lineage in found.items()}
        _print(as_plain({"run_id": run_id, "trackers": plain}, output_format), found.exit_code)


for _group in (command, list_):
    _group.command("lineage")(_run_argument(_tracker_option(_output_option(_show_lineage))))


class _Results(dict[str, R]):
    """The results by tracker name, with an exit code that is not 0 if a tracker failed."""

    exit_code = 0


def _query(tracker_name: str | None, query: Callable[[TrackerBase], R]) -> _Results[R]:
    """Query each tracker; report failures and return the other results.

    If there are no other results, exit with the exit code of the last failure.
    """
    from torchx_specs.trackers.api import TrackerBackendError
    from torchx_tracker.trackers import build_tracker

    results: _Results[R] = _Results()
    for name, config in _configured(tracker_name).items():
        try:
            results[name] = query(build_tracker(name, config))
        except TorchXError as e:
            results.exit_code = e.exit_code
            _note(f"error: tracker '{name}': {e}")
        except Exception as e:
            results.exit_code = TrackerBackendError.exit_code
            _note(f"error: tracker '{name}': {type(e).__name__}: {e}")
    if not results:
        raise click.exceptions.Exit(results.exit_code)
    return results


def _configured(tracker_name: str | None) -> dict[str, str | None]:
    # This package does not depend on the runner, so load the function by its name.
    configs: dict[str, str | None] = load_object(
        "torchx_runner.default_tracker:readable_trackers", "torchx tracker"
    )()
    if not configs:
        raise TrackerError(
            "no trackers are configured; add one to .torchxconfig, for example with the lines"
            " [tracker:fsspec], type=fsspec, config=/path/to/tracker.conf"
        )
    if tracker_name is None:
        return configs
    if tracker_name not in configs:
        raise TrackerError(
            f"tracker '{tracker_name}' is not configured; configured trackers: {', '.join(configs)}"
        )
    return {tracker_name: configs[tracker_name]}


def _links(lineage: Lineage) -> list[Any]:
    """Return the links of a lineage; if it has none, link each run directly to the queried run."""
    from torchx_specs.trackers.api import LineageLink

    if lineage.links:
        return list(lineage.links)
    up = [LineageLink(lineage.run_id, s.source_run_id, s.artifact_name) for s in lineage.sources]
    return up + [LineageLink(run_id, lineage.run_id) for run_id in lineage.descendants]


def _lineage_data(lineage: Lineage) -> dict[str, Any]:
    return {
        "sources": [
            {"run_id": source.source_run_id, "artifact": source.artifact_name}
            for source in lineage.sources
        ],
        "descendants": lineage.descendants,
        "links": [
            {"run_id": link.run_id, "source": link.source_run_id, "artifact": link.artifact_name}
            for link in _links(lineage)
        ],
    }


def _distinct(rows: Iterable[list[str]]) -> list[list[str]]:
    """Return each row once, because several trackers may have the same records."""
    return [list(row) for row in dict.fromkeys(map(tuple, rows))]


def _note_if_empty(found: dict[str, Any], text: str) -> None:
    if not any(found.values()):
        _note(text)


def _note(text: str) -> None:
    click.echo(f"torchx: {masked_text(' '.join(text.split()))}", err=True)


def _print(text: str, exit_code: int) -> None:
    write(text)
    if exit_code:
        sys.stdout.flush()
        raise click.exceptions.Exit(exit_code)
