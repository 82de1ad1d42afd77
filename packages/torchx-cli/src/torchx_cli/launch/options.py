"""The options of ``torchx run`` and ``torchx sweep`` that say what to run, and where."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from torchx_cli.arguments.options import (
    cfg_option,
    is_given,
    options_as,
    scheduler_option,
    single_value_option,
)
from torchx_cli.arguments.scheduler_choice import choose_scheduler, read_cfg, take_host
from torchx_cli.completion.values import complete_directories
from torchx_cli.launch.targets import SIZE, Form, Target, read_target
from torchx_kit.times import parse_limit
from torchx_kit.workspace.working_directory import WorkingDirectory
from torchx_specs.errors import RequestError
from torchx_specs.workspace.spec import Workspace

if TYPE_CHECKING:
    from torchx_runner import Runner
    from torchx_specs.options.run_options import CfgVal

F = TypeVar("F", bound=Callable[..., Any])

_CLOCK = r"(\d+):(\d\d)(?::(\d\d))?"

#: The options that set an option of the scheduler, with metavar and help, by the option's name.
SCHEDULER_OPTIONS = {
    "time": ("TIME", "End the job after this time: 30m, 2h, 1d, or hours:minutes."),
    "requeue": (
        None,
        (
            "Start the app again after a preemption, a node failure, a time limit, or exit code 75"
            " of a replica, without counting this as a failure."
        ),
    ),
    "resume_dir": (
        "DIR",
        (
            "Pass this folder to all attempts as TORCHX_RESUME_DIR, for checkpoints; implies"
            " --requeue."
        ),
    ),
    "max_node_failures": (
        "N",
        "With --requeue, do not start again after more node failures.  [default: 3]",
    ),
    "max_total_time": ("TIME", "With --requeue, end all attempts together after this time."),
    "requeue_exit_codes": ("CODES", "With --requeue, start again after these codes, too: 3,4."),
}


class LaunchOptions(NamedTuple):
    """The values of :func:`launch_options`.

    Attributes:
        scheduler: Name of the scheduler; None if none is given.
        scheduler_args: The values of ``-cfg``.
        ignore_unknown_cfg: Whether to drop options that the scheduler does not have.
        workspace: The directory to upload; None if none is given.
        name: The name of the app; None keeps the component's.
        env: Variables that are set in every role.
        setup: Lines of shell that run before the program.
        options: The given options of :data:`SCHEDULER_OPTIONS`.
        size: The options for scripts and commands, by the parameter that they set.
        given: The parameters in ``size`` that the command line sets, and not ``.torchxconfig``.
    """

    scheduler: str | None
    scheduler_args: tuple[str, ...]
    ignore_unknown_cfg: bool
    workspace: str | None
    name: str | None
    env: dict[str, str]
    setup: tuple[str, ...]
    options: dict[str, CfgVal]
    size: dict[str, str]
    given: tuple[str, ...]

    def target(self, form: Form, argv: Sequence[str]) -> Target:
        """Return the component that runs a target, and its arguments; see :func:`read_target`."""
        uploaded = os.getcwd() if self.workspace is None else self.workspace
        return read_target(form, argv, self.size, uploaded or None, self.given)

    def workspace_of(self, component: str) -> Workspace | str | None:
        """Return the workspace: by default the working directory, or None for an app document."""
        from torchx_cli.output.app_data import is_document

        if self.workspace is not None:
            return Workspace.from_str(self.workspace)
        return None if is_document(component) else WorkingDirectory.now()

    def read_scheduler(self, runner: Runner) -> tuple[str, dict[str, CfgVal]]:
        """Return the name of the scheduler and its options.

        Raises:
            RequestError: The scheduler or an option is not valid.
        """
        chosen, literals = take_host(choose_scheduler(self.scheduler), self.scheduler_args)
        cfg = read_cfg(runner, chosen, literals, ignore_unknown=self.ignore_unknown_cfg)
        if self.setup:
            _check_option(runner, chosen, "setup")
            before = cfg.get("setup")
            cfg["setup"] = [*(before if isinstance(before, list) else []), *self.setup]
        for name, value in self.options.items():
            _check_option(runner, chosen, name)
            cfg[name] = value
        return chosen, cfg


# The fields that are the values of one option each.
_SINGLE = LaunchOptions._fields[: LaunchOptions._fields.index("options")]


def _take_launch(values: dict[str, Any]) -> LaunchOptions:
    size = {name: values.pop(name) for name in SIZE}
    options = {name: values.pop(name) for name in SCHEDULER_OPTIONS}
    ctx = click.get_current_context()
    return LaunchOptions(
        **{name: values.pop(name) for name in _SINGLE},
        options={k: v for k, v in options.items() if v is not None and v is not False},
        size={name: value for name, value in size.items() if value is not None},
        given=tuple(name for name in size if is_given(ctx, name)),
    )


def launch_options(function: F) -> F:
    """Add the options; the command receives the keyword ``launch``, :class:`LaunchOptions`."""
    return options_as("launch", _options(), _take_launch)(function)


def _options() -> Iterable[Callable[[F], F]]:
    yield scheduler_option(
        "Use this scheduler.  [default: as in .torchxconfig, else local_cwd, else the only one that"
        " is installed]"
    )
    yield cfg_option
    yield click.option(
        "--ignore-unknown-cfg",
        is_flag=True,
        help="Drop options in -cfg that the scheduler does not have, with a warning.",
    )
    yield single_value_option(
        "--workspace",
        "--buck-target",
        metavar="WORKSPACE",
        shell_complete=complete_directories,
        help="Upload this directory into the job; '' uploads nothing."
        "  [default: the working directory]",
    )
    yield single_value_option("--name", metavar="NAME", help="Give the app this name.")
    yield click.option(
        "--env",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_variables,
        help="Set a variable in every role; may be repeated.",
    )
    yield click.option(
        "--setup",
        metavar="LINE",
        multiple=True,
        help="Run this line of shell before the program, such as 'module load cuda'; may be"
        " repeated. For schedulers with the option setup.",
    )
    for name, (metavar, help_text) in SCHEDULER_OPTIONS.items():
        help_text += f" For schedulers with the option {name}."
        if metavar is None:
            yield click.option(f"--{name}", is_flag=True, help=help_text)
            continue
        yield single_value_option(
            f"--{name}",
            metavar=metavar,
            help=help_text,
            type=click.IntRange(min=0) if metavar == "N" else None,
            callback=_CALLBACKS.get(metavar),
            shell_complete=complete_directories if metavar == "DIR" else None,
        )
    for parameter, (option, metavar, help_text) in SIZE.items():
        yield single_value_option(option, parameter, metavar=metavar, help=help_text)


def write_options(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write a command's options to its help; those for scripts and commands in a section."""
    options = [param for param in command.get_params(ctx) if isinstance(param, click.Option)]
    for title, is_size in (("Options", False), ("Options for scripts and commands", True)):
        shown = [option for option in options if (option.name in SIZE) is is_size]
        with formatter.section(title):
            formatter.write_dl(filter(None, (option.get_help_record(ctx) for option in shown)))


def _variables(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> Mapping[str, str]:
    variables = {}
    for number, text in enumerate(values, 1):
        key, equals, value = text.partition("=")
        if not key or not equals:
            # The message does not contain the text, whose value may be a secret.
            raise click.UsageError(f"--env number {number} is not of the form KEY=VALUE", ctx)
        variables[key] = value
    return variables


def _time_limit(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a time limit with a unit, which means the same to all schedulers."""
    clock = re.fullmatch(_CLOCK, value or "")
    if clock:
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return f"{(hours * 60 + minutes) * 60 + seconds}s"
    if value is not None and parse_limit(value) is None:
        raise click.UsageError(
            f"--{param.name} {value}: not a time with a unit; write 90s, 30m, 2h, 1d or"
            " hours:minutes",
            ctx,
        )
    return value


def _codes(ctx: click.Context, param: click.Parameter, value: str | None) -> list[str] | None:
    return None if value is None else value.split(",")


_CALLBACKS = {"TIME": _time_limit, "CODES": _codes}


def _check_option(runner: Runner, scheduler: str, name: str) -> None:
    """Raise an error unless a scheduler has the option that a command-line option sets."""
    if runner.scheduler_run_opts(scheduler).get(name) is None:
        raise RequestError(
            f"--{name}: scheduler {scheduler} has no option '{name}' (torchx runopts {scheduler}"
            " lists its options)"
        )
