"""Actions of argparse for sub-commands in plugins for older TorchX releases."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from torchx_runner.config.api import get_cli_defaults


class ArgOnceAction(argparse.Action):
    """An option that may be given only once."""

    _seen: dict[int, set[str]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen = {}

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Store the value; exit with 1 if the option was given before."""
        seen = self._seen.setdefault(id(namespace), set())
        if self.dest in seen:
            print(f"{option_string} is specified more than once", file=sys.stderr)
            sys.exit(1)
        seen.add(self.dest)
        setattr(namespace, self.dest, values)


class torchxconfig(ArgOnceAction):  # noqa: N801 - a documented name
    """An option whose default is in ``.torchxconfig``, section ``[cli:<subcmd>]``."""

    def __init__(
        self,
        subcmd: str,
        dest: str,
        option_strings: Sequence[str],
        required: bool = False,
        default: Any = None,
        **kwargs: Any,
    ) -> None:
        configured = get_cli_defaults(subcmd).get(dest)
        if configured is not None:
            default, required = configured, False
        super().__init__(
            dest=dest, option_strings=option_strings, default=default, required=required, **kwargs
        )


class torchxconfig_run(torchxconfig):  # noqa: N801 - a documented name
    """An option of ``torchx run``; its default is in ``.torchxconfig``, section ``[cli:run]``."""

    def __init__(self, dest: str, option_strings: Sequence[str], **kwargs: Any) -> None:
        super().__init__("run", dest, option_strings, **kwargs)


class torchxconfig_list(torchxconfig):  # noqa: N801 - a documented name
    """An option of ``torchx list``; its default is in ``.torchxconfig``, section ``[cli:list]``."""

    def __init__(self, dest: str, option_strings: Sequence[str], **kwargs: Any) -> None:
        super().__init__("list", dest, option_strings, **kwargs)
