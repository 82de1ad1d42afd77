"""The command ``torchx configure``."""

from __future__ import annotations

import io
import logging
import os

import click

from torchx_cli.arguments.command import Command
from torchx_cli.arguments.scheduler_choice import choose_scheduler
from torchx_cli.completion.values import complete_schedulers
from torchx_cli.config_merge import merge, replace_file
from torchx_cli.output.printing import write
from torchx_runner.config import api as config
from torchx_runner.installed_schedulers import split_host
from torchx_specs.errors import ConfigError

logger = logging.getLogger(__name__)


@click.command("configure", cls=Command)
@click.option(
    "-s",
    "--schedulers",
    metavar="NAME,...",
    shell_complete=complete_schedulers,
    help="Write the options of these schedulers only.  [default: all installed]",
)
@click.option(
    "-a", "--all", "with_defaults", is_flag=True, help="Write also the options that have a default."
)
@click.option(
    "--print", "to_stdout", is_flag=True, help="Print the configuration to standard output instead."
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def command(schedulers: str | None, with_defaults: bool, to_stdout: bool, force: bool) -> None:
    """Write ./.torchxconfig with the options of the installed schedulers.

    Missing sections and keys are added to an existing file; the rest stays unchanged, unless
    --force replaces the file.
    """
    names = None
    if schedulers is not None:
        wanted = [name.strip() for name in schedulers.split(",") if name.strip()]
        names = [split_host(choose_scheduler(name))[0] for name in dict.fromkeys(wanted)]
    buffer = io.StringIO()
    config.dump(buffer, names, required_only=not with_defaults)
    text = buffer.getvalue()
    if to_stdout:
        write(text)
        return
    path = os.path.join(os.curdir, config.CONFIG_FILE)
    existing = None if force else _read(path)
    if existing is None:
        replace_file(path, text)
        logger.info("wrote %s", path)
        return
    merged, added = merge(existing, text, path)
    if added:
        replace_file(path, merged)
        logger.info("added to %s: %s", path, ", ".join(added))
    else:
        logger.info("%s is complete; nothing changed (--force replaces it)", path)


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as fp:
            return fp.read()
    except FileNotFoundError:
        return None
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror or e}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text; nothing changed") from None
