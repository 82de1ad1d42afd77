"""Parse the arguments after a component's name into values for its parameters.

argparse is not used: everything after ``--`` or the first positional argument must reach the
component unchanged, a bad argument must raise an exception, and importing argparse is slow.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torchx_specs.components.signature import ComponentParameter, ComponentSignature
from torchx_specs.errors import ComponentArgumentError, ComponentTypeError, TorchXError, nearest
from torchx_specs.redaction import MASK, is_secret


class ComponentHelpRequested(TorchXError):
    """``--help`` was among the arguments. The message is the help of the component.

    ``torchx run`` passes the attribute ``component`` to :func:`component_help`, because its help
    has a different usage line.
    """

    exit_code = 0

    def __init__(self, component: Callable[..., Any]) -> None:
        from torchx_specs.components.help import component_help

        super().__init__(component_help(component))
        self.component = component


class _Option(NamedTuple):
    parameter: ComponentParameter
    negated: bool = False


def _option_table(signature: ComponentSignature) -> dict[str, _Option]:
    """Map the option strings of a component, in the form of :func:`option_key`, to options."""
    table = {f"--{parameter.name}": _Option(parameter) for parameter in signature.parameters}
    for parameter in signature.parameters:
        for text in parameter.options:
            owner = table.setdefault(option_key(text), _Option(parameter)).parameter
            if owner.name != parameter.name:
                raise ComponentTypeError(
                    f"{signature.name}: parameters '{owner.name}' and '{parameter.name}'"
                    f" both have the option {text}"
                )
    negated = {
        f"--no_{key[2:]}": _Option(option.parameter, negated=True)
        for key, option in table.items()
        if key.startswith("--") and option.parameter.is_flag
    }
    return {**negated, **table}


def option_key(option: str) -> str:
    """Return ``--job-name`` as ``--job_name``; an option with a single ``-`` stays."""
    return f"--{option[2:].replace('-', '_')}" if option.startswith("--") else option


class _UnknownOption(ValueError):
    """No option has the name of an argument."""


def _find(table: Mapping[str, _Option], argument: str) -> tuple[_Option, str | None] | None:
    """Return the option that an argument names, and the value after ``=`` or ``-x``, if any.

    Return None if the argument is ``--help``, or an abbreviation that matches only ``--help``.
    """
    name, equal, value = argument.partition("=")
    attached = value if equal else None
    key = option_key(name)
    if key in table:
        return table[key], attached
    matches: list[str] = []
    if not argument.startswith("--"):
        # `-name x` is a typing error for `--name x`, and does not mean `-n ame`.
        short = table.get(argument[:2])
        if short and not short.parameter.is_flag and option_key(f"-{name}") not in table:
            return short, argument[2:]
    elif key == "--":
        raise ValueError(f"'{name}' is not an option")
    else:
        # `--no-NAME` can be abbreviated only after `--no-`, so that `--n` does not match every
        # negated flag.
        negations = key.startswith("--no_")
        matches = [k for k in table if k.startswith(key) and (negations or not table[k].negated)]
        if "--help".startswith(key):
            if key == "--help" or not matches:
                return None
            matches.append("--help")
    meant = {(table[k].parameter.name, table[k].negated) if k in table else k for k in matches}
    if len(meant) == 1:
        return table[matches[0]], attached
    if matches:
        raise ValueError(f"{name} could be any of {', '.join(sorted(matches))}")
    if len(name) == 2:
        hint = " did you mean '--help'?" if name == "-h" else ""
    else:
        known = [k for k in table if k.startswith("--") and not table[k].negated]
        hint = nearest(f"--{name.lstrip('-')}", [*known, "--help"])
    raise _UnknownOption(f"unknown option {name};{hint}".rstrip(";"))


def parse_arguments(
    signature: ComponentSignature,
    arguments: Sequence[str],
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Any]]:
    """Return the value of every parameter, and the values of ``*args``.

    :func:`.materialize_appdef` documents the order of the sources and the errors.
    """
    values, extra, problems = _parse(signature, arguments)
    at_fault = {name for _, name in problems}
    missing: list[str] = []
    for parameter in signature.parameters:
        name = where = parameter.name
        if name in values or name in at_fault:
            continue
        try:
            if name in config:
                values[name] = parameter.read(config[name], typed=True)
            elif name in defaults:
                where = f"{name} (a configured default)"
                values[name] = parameter.read(
                    defaults[name], typed=not isinstance(defaults[name], str)
                )
            elif not parameter.is_required:
                values[name] = parameter.default
            elif parameter.converter is None:
                raise ValueError(parameter.unsupported)
            else:
                missing.append(name)
        except ValueError as e:
            problems.append((f"{where}: {e}", name))
    varargs: list[Any] = []
    if signature.varargs is not None:
        try:
            varargs = _read_varargs(signature.varargs, extra, config, defaults)
        except ValueError as e:
            problems.append((f"*{signature.varargs.name}: {e}", signature.varargs.name))
    if missing:
        names = ", ".join(f"--{name}" for name in missing)
        noun = "argument" if len(missing) == 1 else "arguments"
        problems.append((f"missing required {noun}: {names}", missing[0]))
    if problems:
        raise _error(
            f"{signature.name}: " + "; ".join(text for text, _ in problems),
            problems[0][1] if len(problems) == 1 and len(missing) < 2 else None,
        )
    return values, varargs


def _parse(
    signature: ComponentSignature, arguments: Sequence[str]
) -> tuple[dict[str, Any], list[str] | None, list[tuple[str, str | None]]]:
    """Return the options' values, the arguments for ``*args``, and (message, parameter) pairs."""
    table = _option_table(signature)
    given: dict[str, tuple[Any, str]] = {}
    problems: list[tuple[str, str | None]] = []
    rest = list(arguments)
    varargs: list[str] | None = None
    while rest:
        argument = rest.pop(0)
        if argument == "--" and signature.varargs is None:
            continue  # without *args, ignore the `--` of `torchx run COMPONENT -- --option`
        if argument == "--" or not _looks_like_option(argument):
            varargs = rest if argument == "--" else [argument, *rest]
            break
        try:
            found = _find(table, argument)
            if found is None:
                raise ComponentHelpRequested(signature.component)
            option, value = found
            text = _value_of(option, argument, value, rest)
        except ValueError as e:
            is_unknown = isinstance(e, _UnknownOption) and signature.varargs is not None
            more = "; arguments of the program go after '--'" if is_unknown else ""
            raise _error(f"{signature.name}: {e}{more}") from None
        shown = argument.partition("=")[0] if value is not None and "=" in argument else argument
        try:
            _store(given, option, shown, text)
        except ValueError as e:
            reason = f"{shown}: {e}"
            if text and value is None and option.parameter.is_flag and signature.varargs:
                reason += f" (write '--' before arguments for *{signature.varargs.name})"
            problems.append((reason, option.parameter.name))
    if signature.varargs is None and varargs:
        hint = nearest(varargs[0], (f"--{name}" for name in signature.names))
        reason = f"takes options only, not the argument '{varargs[0]}'"
        raise _error(f"{signature.name} {reason};{hint}".rstrip(";"))
    return {name: value for name, (value, _) in given.items()}, varargs, problems


def _value_of(option: _Option, argument: str, attached: str | None, rest: list[str]) -> str | None:
    """Return the text of an option's value; None for a flag without a value.

    A value that follows the option as the next argument is removed from ``rest``.
    """
    if option.negated and attached is not None:
        raise ValueError(f"{argument}: a negated flag takes no value")
    if option.negated or attached is not None:
        return attached
    if rest and rest[0] != "--" and not _looks_like_option(rest[0]):
        return rest.pop(0)
    if option.parameter.is_flag:
        return None
    hint = ""
    if rest and rest[0] != "--":
        hint = f"; if '{rest[0]}' is the value, write {argument}={shlex.quote(rest[0])}"
    raise ValueError(f"{argument} needs a value{hint}")


def _store(
    given: dict[str, tuple[Any, str]], option: _Option, shown: str, text: str | None
) -> None:
    parameter = option.parameter
    value = not option.negated if text is None else parameter.read(text)
    if parameter.name in given and parameter.converter is not None:
        earlier, earlier_shown = given[parameter.name]
        if parameter.converter.is_repeatable:
            value = parameter.converter.join(earlier, value)
        elif earlier != value:
            also = f" (by {earlier_shown})" if earlier_shown != shown else ""
            hidden = is_secret(parameter.name)
            first, second = (MASK if hidden else repr(v) for v in (earlier, value))
            raise ValueError(f"given twice: {first}{also} and {second}")
    given[parameter.name] = (value, shown)


def _error(message: str, parameter: str | None = None) -> ComponentArgumentError:
    # An error message is one line, but may quote arguments with line breaks.
    return ComponentArgumentError("\\n".join(message.splitlines()), parameter)


def _read_varargs(
    parameter: ComponentParameter,
    arguments: list[str] | None,
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> list[Any]:
    source = config if parameter.name in config else defaults
    given = source.get(parameter.name) if arguments is None else arguments
    is_text = arguments is not None or isinstance(given, str)
    if given is None:
        return []
    if isinstance(given, str):
        given = shlex.split(given)
    elif not isinstance(given, (list, tuple)):
        raise ValueError(f"expected a list, got {given!r} ({type(given).__name__})")
    return [parameter.read(value, typed=not is_text) for value in given]


def _looks_like_option(argument: str) -> bool:
    """Return True if an argument begins with ``-`` and is not ``-`` or a negative number."""
    if len(argument) < 2 or argument[0] != "-":
        return False
    digits = argument[2:] if argument[1] == "." else argument[1:]
    return not digits[:1].isdigit() and argument.lower() not in ("-inf", "-nan")
