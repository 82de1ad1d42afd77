"""Makes an argparse parser for a component's parameters, for clients of older TorchX releases."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torchx._legacy_types import get_argparse_param_type
from torchx_specs.components.docstrings import parse


def _create_args_parser(
    cmpnt_fn: Callable[..., Any],
    cmpnt_defaults: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> argparse.ArgumentParser:
    """Return a parser with an option for each parameter.

    Values of the types ``int``, ``float`` and ``str`` are converted; all others remain texts.
    """
    doc = parse(cmpnt_fn.__doc__)
    parser = argparse.ArgumentParser(
        prog=f"torchx run <run args...> {cmpnt_fn.__name__} ",
        description="\n\n".join(filter(None, (doc.short, doc.long))) or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    given = {**(cmpnt_defaults or {}), **(config or {})}
    for name, param in inspect.signature(cmpnt_fn).parameters.items():
        help_text = doc.params.get(name, " ")
        if param.kind is param.VAR_POSITIONAL:
            parser.add_argument(name, nargs=argparse.REMAINDER, help=help_text)
            continue
        required = param.default is param.empty and name not in given
        flags = [f"-{name}", f"--{name}"] if len(name) == 1 else [f"--{name}"]
        parser.add_argument(
            *flags,
            dest=name,
            type=get_argparse_param_type(param),
            required=required,
            default=given.get(name, None if required else param.default),
            help=f"{help_text} (required)" if required else help_text,
        )
    return parser


def parse_args(
    cmpnt_fn: Callable[..., Any],
    cmpnt_args: list[str],
    cmpnt_defaults: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> argparse.Namespace:
    """Parse a component's arguments into an argparse namespace."""
    parser = _create_args_parser(cmpnt_fn, cmpnt_defaults, config)
    return parser.parse_args(cmpnt_args)
