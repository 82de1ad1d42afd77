"""The command ``torchx runopts``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from torchx_cli.arguments.options import Command, output_option
from torchx_cli.arguments.scheduler_choice import choose_scheduler
from torchx_cli.completion.values import complete_schedulers
from torchx_cli.output.colors import paint
from torchx_cli.output.printing import write_result
from torchx_cli.runner_context import open_runner
from torchx_specs.errors import TorchXError

if TYPE_CHECKING:
    from torchx_specs.options.run_options import runopts


@click.command("runopts", cls=Command)
@output_option
@click.argument("scheduler", required=False, shell_complete=complete_schedulers)
def command(scheduler: str | None, output_format: str) -> None:
    """Show the options of SCHEDULER, or of all schedulers.

    Set them by 'torchx run -cfg', or in the scheduler's section of .torchxconfig.
    """
    found: dict[str, runopts | TorchXError] = {}
    with open_runner() as runner:
        if scheduler is not None:
            name = choose_scheduler(scheduler)
            found[name] = runner.scheduler_run_opts(name)
        else:
            for name in runner.scheduler_backends():
                try:
                    found[name] = runner.scheduler_run_opts(name)
                except TorchXError as e:  # show the other schedulers
                    found[name] = e
    data = {name: _as_data(opts) for name, opts in found.items()}
    text = "".join(_as_text(name, opts) for name, opts in found.items())
    write_result(data, text, output_format)


def _as_text(name: str, opts: runopts | TorchXError) -> str:
    shown = f" <{opts}>" if isinstance(opts, TorchXError) else f"\n{opts!r}"
    return f"{paint(name, 'GREEN', sys.stdout)}:{shown}\n\n"


def _as_data(opts: runopts | TorchXError) -> Any:
    if isinstance(opts, TorchXError):
        return {"error": str(opts)}
    return [
        {
            "name": name,
            "type": getattr(opt.opt_type, "__name__", str(opt.opt_type)),
            "required": opt.is_required,
            "default": opt.default,
            "help": opt.help,
        }
        for name, opt in opts
    ]
