"""Submits an app when another one has ended: ``torchx run --after``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from torchx_cli.arguments.handles import resolve_handle
from torchx_cli.runner_context import existing
from torchx_specs.errors import RequestError
from torchx_specs.model.handles import parse_app_handle
from torchx_specs.model.status import AppState, is_terminal

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal

logger = logging.getLogger(__name__)

OUTCOMES = ("ok", "any", "failed")
# The command whose background process waits for the end of apps and sweeps.
_WAITER = "sweep"
#: Options of ``torchx run`` that need the handle of the app, by parameter.
_NOT_LATER = {"log": "--log", "parent_run_id": "--parent_run_id", "notify": "--notify"}


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
    ctx: click.Context, runner: Runner, after: After, scheduler: str, cfg: dict[str, CfgVal]
) -> dict[str, CfgVal] | None:
    """Return options with which the scheduler holds an app until another one has ended.

    The options are unchanged if the other app has ended as required, and in a dry run of an app for
    which a background process would wait. The result is None if a background process must wait.

    Args:
        ctx: The context of ``torchx run``.
        runner: The runner.
        after: What the app waits for.
        scheduler: Name of the app's scheduler.
        cfg: The options of the scheduler.

    Raises:
        UnknownAppException: The other app does not exist.
        RequestError: The other app has ended with another outcome.
    """
    other, _, app_id = parse_app_handle(after.handle)
    if other != _WAITER:
        status = existing(runner.status(after.handle), after.handle)
        if is_terminal(status.state):
            if after.is_met(status.state):
                return cfg
            raise RequestError(
                f"--after {after}: this app is {status.state.name}, so that the new app would never"
                f" start; --after {after.handle}:any starts it after any end"
            )
        if other == scheduler and runner.features(scheduler).dependencies:
            held = runner.scheduler(scheduler).with_dependency(cfg, app_id, after.outcome)
            if held is not None:
                return dict(held)
    if not ctx.params["dryrun"]:
        return None
    logger.info("a background process would wait for %s", after)
    return cfg


def submit_later(ctx: click.Context, argv: Sequence[str], after: After) -> None:
    """Start a background process that submits the app, as a sweep of one element.

    Args:
        ctx: The context of ``torchx run``.
        argv: The target and its arguments.
        after: What the app waits for.

    Raises:
        UsageError: An option needs the handle of the app.
        RequestError: The command ``torchx sweep`` is not installed.
    """
    for name, option in _NOT_LATER.items():
        is_given = ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
        if is_given and ctx.params[name]:
            raise click.UsageError(
                f"{option}: not with --after here, where a background process submits the app when"
                f" the other one has ended; 'torchx sweep' shows what it does",
                ctx,
            )
    command: click.Command | None = ctx.find_root().command
    for name in (_WAITER, "run"):
        command = command.get_command(ctx, name) if isinstance(command, click.Group) else None
    if command is None:
        raise RequestError(
            "--after needs a background process that waits, which torchx-sweep has; run: pip"
            " install torchx-sweep"
        )
    # Both commands have the options of `launch_options`, among others.
    shared = {param.name for param in command.params}
    values = {name: value for name, value in ctx.params.items() if name in shared}
    target, *arguments = argv
    values.update(after=str(after), target=target, arguments=tuple(arguments))
    ctx.invoke(command, **values)
