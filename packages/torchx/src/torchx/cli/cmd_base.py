"""Base classes of argparse sub-commands in plugins for older TorchX releases."""

from __future__ import annotations

import argparse
import logging
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NoReturn

from torchx._forward import forward
from torchx_runner import api
from torchx_runner.api import Runner as Runner
from torchx_specs.model.handles import parse_app_handle as parse_app_handle

if TYPE_CHECKING:
    from torchx_runner.api import get_runner as get_runner

logger = logging.getLogger(__name__)


class SubCommand(ABC):
    """Base class of a sub-command of ``torchx``."""

    @abstractmethod
    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""

    @abstractmethod
    def run(self, args: argparse.Namespace) -> None:
        """Run the command."""


class AppHandleSubCommand(SubCommand):
    """Base class of a sub-command whose argument is the handle of an app."""

    def add_arguments(self, subparser: argparse.ArgumentParser) -> None:
        """Declare the argument ``app_handle``."""
        subparser.add_argument(
            "app_handle",
            type=str,
            help="torchx app handle (e.g. local_cwd://session-name/app-id)",
        )

    def run(self, args: argparse.Namespace) -> None:
        """Run the command with a new runner."""
        parse_app_handle(args.app_handle)
        with api.get_runner() as runner:
            self.run_with_runner(args, runner)

    @abstractmethod
    def run_with_runner(self, args: argparse.Namespace, runner: Runner) -> None:
        """Run the command."""

    @staticmethod
    def exit_missing_app(app_handle: str) -> NoReturn:
        """Log that the app does not exist, and exit with 1."""
        logger.error("app does not exist: %s", app_handle)
        sys.exit(1)


# A patch of `torchx.cli.cmd_base.get_runner` takes effect in every command.
forward(__name__, names={"get_runner": "torchx_runner.api"})
