"""Submits an app when another one has ended: ``torchx run --after``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from torchx_cli.arguments.handles import resolve_handle
from torchx_cli.runner_context import existing
from torchx_specs.errors import RequestError
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_cli.launch.options import LaunchOptions
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal

OUTCOMES = ("ok", "any", "failed")
# The command whose background process waits for the end of apps and sweeps.
_WAITER = "sweep"


class After(NamedTuple):
    """What an app waits for.

    Attributes:
        handle: The handle of an app or a sweep.
        outcome: The required outcome, one of :data:`OUTCOMES`.
    """

    handle: str
    outcome: str

    def is_met(self, state: AppState | None) -> bool:
        """Return True if this final state is the required outcome; None: the app is gone."""
        return self.outcome == "any" or (state == AppState.SUCCEEDED) == (self.outcome == "ok")

    def __str__(self) -> str:
        return f"{self.handle}:{self.outcome}"


def read_after(text: str) -> After:
    """Return the handle and the required outcome of ``HANDLE[:ok|any|failed]``.

    >>> tuple(read_after("slurm://torchx/12:any")), tuple(read_after("slurm://torchx/12"))
    (('slurm://torchx/12', 'any'), ('slurm://torchx/12', 'ok'))

    Args:
        text: The text; a short name such as ``@1`` is replaced with the handle of the app.

    Raises:
        RequestError: The text is malformed, or several apps have the short name.
        UnknownAppException: No app has the short name.
    """
    handle, colon, outcome = text.rpartition(":")
    if not colon or outcome not in OUTCOMES:
        handle, outcome = text, "ok"
    return After(resolve_handle(handle), outcome)


def held_cfg(
    runner: Runner, after: After, scheduler: str, cfg: Mapping[str, CfgVal]
) -> Mapping[str, CfgVal] | None:
    """Return options with which the scheduler holds an app until another one has ended.

    The options are unchanged if the other app has ended as required. The result is None if the
    scheduler cannot wait for it.

    Args:
        runner: The runner.
        after: What the app waits for.
        scheduler: Name of the app's scheduler.
        cfg: The options of the scheduler.

    Raises:
        UnknownAppException: The other app does not exist.
        RequestError: The other app has ended with another outcome.
    """
    other, _, app_id = parse_app_handle(after.handle)
    if other == _WAITER:
        return None
    status = existing(runner.status(after.handle), after.handle)
    if is_terminal(status.state):
        if after.is_met(status.state):
            return cfg
        raise RequestError(
            f"--after {after}: this app is {status.state.name}, so that the new app would never"
            f" start; --after {after.handle}:any starts it after any end"
        )
    if other == scheduler and runner.features(scheduler).dependencies:
        return runner.scheduler(scheduler).with_dependency(cfg, app_id, after.outcome)
    return None


def submit_later(
    ctx: click.Context, launch: LaunchOptions, argv: Sequence[str], after: After
) -> None:
    """Start a background process that submits the app, as a sweep of one element.

    Args:
        ctx: The context of ``torchx run``.
        launch: The options that say what to run, and where.
        argv: The target and its arguments.
        after: What the app waits for.

    Raises:
        RequestError: The command ``torchx sweep`` is not installed.
    """
    command: click.Command | None = ctx.find_root().command
    for name in (_WAITER, "run"):
        command = command.get_command(ctx, name) if isinstance(command, click.Group) else None
    if command is None:
        raise RequestError(
            "--after needs a background process that waits, which torchx-sweep has; run: pip"
            " install torchx-sweep"
        )
    target, *arguments = argv
    ctx.invoke(
        command,
        **launch.values(),
        wait=ctx.params["wait"],
        output_format=ctx.params["output_format"],
        after=str(after),
        target=target,
        arguments=tuple(arguments),
    )
