"""Parses a component's arguments with argparse, for clients of older TorchX releases.

In these releases, invalid arguments and ``--help`` make argparse print a text and end the
process.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchx._legacy_linter import TorchXArgumentHelpFormatter
from torchx.util.types import get_argparse_param_type
from torchx_specs.components import materialize
from torchx_specs.components.parser import ComponentHelpRequested
from torchx_specs.components.signature import signature_of
from torchx_specs.errors import ComponentArgumentError

if TYPE_CHECKING:
    from torchx_specs.components.materialize import ComponentArgs
    from torchx_specs.model.app import AppDef


def _create_args_parser(
    cmpnt_fn: Callable[..., Any],
    cmpnt_defaults: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> argparse.ArgumentParser:
    """Return a parser with an option for each parameter; ``*args`` takes the remaining arguments.

    Values of the types ``int``, ``float`` and ``str`` are converted; all other values remain text.
    """
    doc = signature_of(cmpnt_fn).doc
    parser = argparse.ArgumentParser(
        prog=f"torchx run <run args...> {cmpnt_fn.__name__} ",
        description="\n".join(filter(None, (doc.short, doc.long))) or None,
        formatter_class=TorchXArgumentHelpFormatter,
        add_help=False,  # `-h` may be a parameter
    )
    parser.add_argument("--help", action="help", help="show this help message and exit")
    given = {**(cmpnt_defaults or {}), **(config or {})}
    for name, param in inspect.signature(cmpnt_fn).parameters.items():
        help_text = doc.params.get(name, " ").replace("%", "%%")
        kind = get_argparse_param_type(param)
        if param.kind is param.VAR_POSITIONAL:
            help_text += " (required)"
            parser.add_argument(name, nargs=argparse.REMAINDER, type=kind, help=help_text)
            continue
        required = param.default is param.empty and name not in given
        flags = [f"-{name}", f"--{name}"] if len(name) == 1 else [f"--{name}"]
        parser.add_argument(
            *flags,
            dest=name,
            type=kind,
            required=required,
            default=argparse.SUPPRESS if required else given.get(name, param.default),
            help=f"{help_text} (required)" if required else help_text,
        )
    return parser


def parse_args(
    cmpnt_fn: Callable[..., Any],
    cmpnt_args: list[str],
    cmpnt_defaults: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
) -> argparse.Namespace:
    """Parse a component's arguments into an argparse namespace.

    If ``cmpnt_args`` contains no value for ``*args``, the values come from ``config`` or, if
    ``config`` has none, from the space-separated text in ``cmpnt_defaults``.
    """
    parser = _create_args_parser(cmpnt_fn, cmpnt_defaults, config)
    args = parser.parse_args(cmpnt_args)
    for name, param in inspect.signature(cmpnt_fn).parameters.items():
        if param.kind is param.VAR_POSITIONAL and not getattr(args, name):
            default = (cmpnt_defaults or {}).get(name, "").split()
            setattr(args, name, (config or {}).get(name, default))
    return args


def component_args_from_str(
    cmpnt_fn: Callable[..., Any],
    cmpnt_args: Sequence[str],
    cmpnt_args_defaults: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> ComponentArgs:
    """Parse a component's arguments, as :func:`materialize.component_args_from_str` does.

    Raises:
        ComponentUsageError: Arguments are unknown, missing or of the wrong type.
        SystemExit: The arguments request help, which is printed.
    """
    with _exit_as_argparse(cmpnt_fn, cmpnt_args_defaults, config):
        return materialize.component_args_from_str(
            cmpnt_fn, cmpnt_args, cmpnt_args_defaults, config
        )


def materialize_appdef(
    cmpnt_fn: Callable[..., AppDef],
    cmpnt_args: Sequence[str],
    cmpnt_defaults: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> AppDef:
    """Call a component with arguments, as :func:`materialize.materialize_appdef` does.

    Raises:
        ComponentUsageError: Arguments are unknown, missing or of the wrong type.
        SystemExit: The arguments request help, which is printed.
    """
    with _exit_as_argparse(cmpnt_fn, cmpnt_defaults, config):
        return materialize.materialize_appdef(cmpnt_fn, cmpnt_args, cmpnt_defaults, config)


class ComponentUsageError(ComponentArgumentError, SystemExit):
    """Arguments are unknown, missing or of the wrong type; if not caught, the exit code is 2."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message, parameter)
        self.code = 2


@contextmanager
def _exit_as_argparse(
    cmpnt_fn: Callable[..., Any],
    cmpnt_defaults: Mapping[str, Any] | None,
    config: Mapping[str, Any] | None,
) -> Iterator[None]:
    """Return a context that handles help requests and invalid arguments as argparse does.

    A help request prints the help and ends the process. An invalid argument prints the usage.

    Raises:
        ComponentUsageError: An argument is invalid.
        SystemExit: The arguments request help.
    """
    try:
        yield
    except ComponentHelpRequested:
        parser = _create_args_parser(cmpnt_fn, cmpnt_defaults, config)
        parser.print_help()
        parser.exit()
    except ComponentArgumentError as e:
        parser = _create_args_parser(cmpnt_fn, cmpnt_defaults, config)
        parser.print_usage(sys.stderr)
        print(f"{parser.prog}: error: {e}", file=sys.stderr)
        raise ComponentUsageError(str(e), e.parameter) from None
