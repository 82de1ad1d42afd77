"""The option ``--notify``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def notify_option(help_text: str) -> Callable[[F], F]:
    """Return a decorator that adds ``--notify``; the command receives a tuple of names."""
    return click.option(
        "--notify",
        metavar="NAME,...",
        multiple=True,
        callback=_split_names,
        help=help_text,
    )


def _split_names(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    names = (name.strip() for value in values for name in value.split(","))
    return tuple(dict.fromkeys(name for name in names if name))
