"""``torchx tracker``: what the configured trackers have recorded.

Imported only when it is called: by ``torchx``, which brings click and the runner, whose
configuration names the trackers. Nothing else in this distribution needs either.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from torchx_specs.errors import TorchXError, TrackerError
from torchx_tracker.printing import JSON, TABLE, YAML, as_plain, format_table, format_tree, write

if TYPE_CHECKING:
    from torchx_specs.trackers.api import Lineage, TrackerBase

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


def _output_option(function: F) -> F:
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice([TABLE, JSON, YAML]),
        default=TABLE,
        help="The form of what is printed on standard output.  [default: table]",
    )(function)


def _tracker_option(function: F) -> F:
    return click.option(
        "--tracker",
        "chosen",
        metavar="NAME",
        help="Ask only this one of the configured trackers.",
    )(function)


def _run_argument(function: F) -> F:
    return click.argument("run_id", metavar="RUN_ID")(function)


@click.group("tracker", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Shows what trackers have recorded of runs.

    All trackers are asked that .torchxconfig or TORCHX_TRACKERS names.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@command.group("list", invoke_without_command=True)
@click.pass_context
def list_(ctx: click.Context) -> None:
    """Lists runs, or what is recorded of one."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def _list_runs(parent_run_id: str | None, chosen: str | None, form: str) -> None:
    """Lists the runs."""
    filters = {} if parent_run_id is None else {"parent_run_id": parent_run_id}
    found = _ask(chosen, lambda tracker: sorted(tracker.run_ids(**filters)))
    if form == TABLE:
        ids = dict.fromkeys(run_id for ids in found.values() for run_id in ids)
        _print(format_table(["JOB ID"], [[run_id] for run_id in ids]), found.exit_code)
    else:
        _print(as_plain({"trackers": found}, form), found.exit_code)


for _name in ("jobs", "runs"):
    list_.command(_name)(
        click.option(
            "--parent-run-id", metavar="RUN_ID", help="Only runs that were made from this one."
        )(_tracker_option(_output_option(_list_runs)))
    )


@list_.command("metadata")
@_run_argument
@_tracker_option
@_output_option
def list_metadata(run_id: str, chosen: str | None, form: str) -> None:
    """Shows the metadata of a run."""
    found = _ask(chosen, lambda tracker: dict(tracker.metadata(run_id)))
    _note_if_empty(found, f"no metadata is recorded of run '{run_id}'")
    if form == TABLE:
        rows = _distinct(
            [key, str(value)] for pairs in found.values() for key, value in pairs.items()
        )
        _print(format_table(["ID", "VALUE"], rows), found.exit_code)
    else:
        _print(as_plain({"run_id": run_id, "trackers": found}, form), found.exit_code)


@list_.command("artifacts")
@click.option("--artifact", "name", metavar="NAME", help="Only the artifact of this name.")
@_run_argument
@_tracker_option
@_output_option
def list_artifacts(run_id: str, name: str | None, chosen: str | None, form: str) -> None:
    """Shows the artifacts of a run."""
    found = _ask(
        chosen,
        lambda tracker: [
            {"name": a.name, "path": a.path, "metadata": dict(a.metadata) if a.metadata else None}
            for a in tracker.artifacts(run_id).values()
            if name is None or a.name == name
        ],
    )
    what = "no artifacts are" if name is None else f"no artifact '{name}' is"
    _note_if_empty(found, f"{what} recorded of run '{run_id}'")
    if form == TABLE:
        rows = _distinct(
            [str(a["name"]), str(a["path"]), str(a["metadata"] or "")]
            for artifacts in found.values()
            for a in artifacts
        )
        _print(format_table(["ARTIFACT", "PATH", "METADATA"], rows), found.exit_code)
    else:
        _print(as_plain({"run_id": run_id, "trackers": found}, form), found.exit_code)


def _show_lineage(run_id: str, chosen: str | None, form: str) -> None:
    """Shows what a run was made from, and what was made from it, as a tree."""
    found = _ask(chosen, lambda tracker: tracker.lineage(run_id))
    empty = {name: lineage.sources or lineage.descendants for name, lineage in found.items()}
    _note_if_empty(empty, f"run '{run_id}' has neither sources nor descendants")
    if form == TABLE:
        _print(format_tree(_merged(run_id, list(found.values()))), found.exit_code)
    else:
        plain = {name: _lineage_data(lineage) for name, lineage in found.items()}
        _print(as_plain({"run_id": run_id, "trackers": plain}, form), found.exit_code)


for _group in (command, list_):
    _group.command("lineage")(_run_argument(_tracker_option(_output_option(_show_lineage))))


# -- the trackers -----------------------------------------------------------------------------


class _Answers(dict[str, R]):
    """What each tracker answered, by its name, and the exit code that says whether one did not."""

    exit_code = 0


def _ask(chosen: str | None, question: Callable[[TrackerBase], R]) -> _Answers[R]:
    """Asks each tracker; one that fails is told of, and another still answers."""
    from torchx_specs.trackers.api import TrackerBackendError
    from torchx_specs.trackers.lookup import build_tracker

    answers: _Answers[R] = _Answers()
    for name, config in _configured(chosen).items():
        try:
            answers[name] = question(build_tracker(name, config))
        except TorchXError as e:
            answers.exit_code = e.exit_code
            _say(f"error: tracker '{name}': {e}")
        except Exception as e:
            answers.exit_code = TrackerBackendError.exit_code
            _say(f"error: tracker '{name}': {type(e).__name__}: {e}")
    if not answers:
        raise click.exceptions.Exit(answers.exit_code)
    return answers


def _configured(chosen: str | None) -> dict[str, str | None]:
    from torchx_specs.plugins.records import load_object

    # The runner stands on the same floor, and its configuration comes with the command that this
    # one is a part of.
    configs: dict[str, str | None] = load_object(
        "torchx_runner.config.trackers:get_configured_trackers", "torchx tracker"
    )()
    if not configs:
        raise TrackerError(
            "no trackers are configured: name one in .torchxconfig, e.g. the lines"
            " [torchx:tracker], fsspec=, [tracker:fsspec], config=/path/to/tracker.conf"
        )
    if chosen is None:
        return configs
    if chosen not in configs:
        raise TrackerError(
            f"tracker '{chosen}' is not configured; configured trackers: {', '.join(configs)}"
        )
    return {chosen: configs[chosen]}


# -- lineage ----------------------------------------------------------------------------------


def _merged(run_id: str, lineages: list[Lineage]) -> Lineage:
    from torchx_specs.trackers.lineage import lineage_from_links

    return lineage_from_links(run_id, [link for one in lineages for link in _links_of(one)])


def _links_of(lineage: Lineage) -> list[Any]:
    """The steps of a lineage; a tracker that gives none has each run linked directly."""
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
            for link in _links_of(lineage)
        ],
    }


# -- words ------------------------------------------------------------------------------------


def _distinct(rows: Iterable[list[str]]) -> list[list[str]]:
    """Rows, each once: two trackers that record the same say the same."""
    return [list(row) for row in dict.fromkeys(map(tuple, rows))]


def _note_if_empty(found: dict[str, Any], text: str) -> None:
    if not any(found.values()):
        _say(text)


def _say(text: str) -> None:
    click.echo(f"torchx: {' '.join(text.split())}", err=True)


def _print(text: str, exit_code: int) -> None:
    write(text)
    if exit_code:
        sys.stdout.flush()
        raise click.exceptions.Exit(exit_code)
