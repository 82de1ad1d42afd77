"""Makes an argparse parser for a component's parameters, for clients of older TorchX releases."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchx._legacy_types import get_argparse_param_type
from torchx_specs.components import materialize
from torchx_specs.components.docstrings import parse
from torchx_specs.components.parser import ComponentHelpRequested
from torchx_specs.errors import ComponentArgumentError
from torchx_specs.model.app import AppDef


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
    """Parse a component's arguments into an argparse namespace.

    If the command line has no arguments for ``*args``, use those in ``config`` or
    ``cmpnt_defaults``. In the text of a default, blanks separate the arguments.
    """
    parsed = _create_args_parser(cmpnt_fn, cmpnt_defaults, config).parse_args(cmpnt_args)
    for name, param in inspect.signature(cmpnt_fn).parameters.items():
        if param.kind is param.VAR_POSITIONAL and not getattr(parsed, name):
            default = (cmpnt_defaults or {}).get(name, "").split()
            setattr(parsed, name, (config or {}).get(name, default))
    return parsed


class ComponentUsageError(ComponentArgumentError, SystemExit):
    """Arguments are wrong or missing. If nobody catches the error, the process exits with 2."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message, parameter)
        self.code = 2


def materialize_appdef(
    cmpnt_fn: Callable[..., AppDef],
    cmpnt_args: Sequence[str],
    cmpnt_defaults: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> AppDef:
    """Call a component; see :func:`torchx_specs.materialize_appdef`.

    If the arguments are wrong, print argparse's usage text to stderr. If ``--help`` is among
    the arguments, print the help and exit with 0.

    Raises:
        ComponentUsageError: Arguments are unknown, missing or of the wrong type.
    """
    try:
        return materialize.materialize_appdef(cmpnt_fn, cmpnt_args, cmpnt_defaults, config)
    except ComponentHelpRequested as e:
        print(e, end="")
        raise SystemExit(0) from None
    except ComponentArgumentError as e:
        parser = _create_args_parser(cmpnt_fn, cmpnt_defaults, config)
        parser.print_usage(sys.stderr)
        print(f"{parser.prog}: error: {e}", file=sys.stderr)
        raise ComponentUsageError(str(e), e.parameter) from None
