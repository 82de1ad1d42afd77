"""The help text of a component, for ``torchx run COMPONENT --help``."""

from __future__ import annotations

import enum
import textwrap
from collections.abc import Callable
from typing import Any

from torchx_specs.components.signature import ComponentParameter, ComponentSignature, read_signature

_WIDTH = 88
_COLUMN = 26


def component_help(fn: Callable[..., Any], prog: str | None = None) -> str:
    """Return the help text of a component: description, and parameters with types and defaults.

    ``prog`` is the component's name in the usage line (default: the name of ``fn``).
    """
    signature = read_signature(fn)
    doc = signature.doc
    lines = [_usage(prog or signature.name, signature)]
    for text in (doc.short, doc.long):
        if text:
            lines += ["", *text.split("\n")]
    if signature.parameters:
        lines += ["", "options:"]
        for parameter in signature.parameters:
            text = doc.params.get(parameter.name, "")
            lines += _entry(_options(parameter), _about(parameter, text))
    if signature.varargs is not None:
        varargs = signature.varargs
        lines += ["", "arguments after the options (or after '--'):"]
        about = _sentence(doc.params.get(varargs.name, ""), f"(each: {varargs.type_name})")
        lines += _entry(f"{varargs.name} ...", about)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _usage(prog: str, signature: ComponentSignature) -> str:
    parts = [f"usage: {prog}"]
    parts += [f"--{p.name} {_metavar(p)}" for p in signature.parameters if p.is_required]
    if any(not p.is_required for p in signature.parameters):
        parts.append("[--option VALUE ...]")
    if signature.varargs is not None:
        parts.append(f"[--] [{signature.varargs.name} ...]")
    return " ".join(parts)


def _metavar(parameter: ComponentParameter) -> str:
    return parameter.type_name.replace(" ", "")


def _options(parameter: ComponentParameter) -> str:
    value = "" if parameter.is_flag else f" {_metavar(parameter)}"
    return ", ".join((*parameter.options, *parameter.negations)) + value


def _about(parameter: ComponentParameter, text: str) -> str:
    if parameter.converter is None:
        note = "from Python only"
    elif parameter.is_required:
        note = "required"
    else:
        default = parameter.default
        note = f"default: {default.name if isinstance(default, enum.Enum) else default}"
    return _sentence(text, f"({note})")


def _sentence(*parts: str) -> str:
    return " ".join(" ".join(part.split()) for part in parts if part)


def _entry(options: str, about: str) -> list[str]:
    wrapped = textwrap.wrap(about, _WIDTH - _COLUMN, break_long_words=False) or [""]
    head = f"  {options}"
    if len(head) + 2 > _COLUMN:
        return [head, *(" " * _COLUMN + line for line in wrapped)]
    return [head.ljust(_COLUMN) + wrapped[0], *(" " * _COLUMN + line for line in wrapped[1:])]
