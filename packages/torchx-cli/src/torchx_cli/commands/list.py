"""The command ``torchx list``."""

from __future__ import annotations

from fnmatch import fnmatchcase

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.options import cfg_option, output_option, scheduler_option
from torchx_cli.arguments.scheduler_choice import choose_scheduler, read_cfg
from torchx_cli.output.printing import TABLE, state_name, write_data, write_table
from torchx_cli.runner_context import open_runner
from torchx_specs.errors import RequestError, nearest
from torchx_specs.model.status import AppState


def _states(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> frozenset[str]:
    names = [name.strip().upper() for value in values for name in value.split(",") if name.strip()]
    known = [state.name for state in AppState]
    for name in names:
        if name not in known:
            raise RequestError(
                f"--state: unknown state '{name}';{nearest(name, known)} states: {', '.join(known)}"
            )
    return frozenset(names)


@click.command("list", cls=Command)
@scheduler_option
@cfg_option
@click.option(
    "--state",
    "states",
    metavar="STATE,...",
    multiple=True,
    callback=_states,
    help="List only apps in one of these states.",
)
@click.option(
    "--name", metavar="PATTERN", help="List only apps whose name matches, such as 'train-*'."
)
@click.option("-n", "--limit", type=click.IntRange(min=0), metavar="N", help="List at most N apps.")
@output_option
def command(
    scheduler: str | None,
    scheduler_args: tuple[str, ...],
    states: frozenset[str],
    name: str | None,
    limit: int | None,
    output_format: str,
) -> None:
    """List the apps of a scheduler."""
    with open_runner() as runner:
        chosen = choose_scheduler(scheduler)
        cfg = read_cfg(runner, chosen, scheduler_args)
        apps = runner.list(chosen, cfg or None)
    if states:
        apps = [app for app in apps if state_name(app.state) in states]
    if name is not None:
        apps = [app for app in apps if fnmatchcase(app.name or app.app_id, name)]
    apps = apps[:limit]
    if output_format == TABLE:
        rows = [[app.app_handle, app.name, state_name(app.state)] for app in apps]
        write_table(["APP HANDLE", "APP NAME", "APP STATUS"], rows)
    else:
        data = [
            {
                "handle": app.app_handle,
                "app_id": app.app_id,
                "name": app.name,
                "state": state_name(app.state),
            }
            for app in apps
        ]
        write_data(data, output_format)
