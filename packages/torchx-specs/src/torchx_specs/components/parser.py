"""Parse the arguments after a component's name into values for its parameters.

argparse is not used: everything after ``--`` or the first positional argument must reach the
component unchanged, a bad argument must raise an exception, and importing argparse is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torchx_specs.components.converters import SUPPORTED_TYPES, Converter
from torchx_specs.components.signature import ComponentParameter, ComponentSignature
from torchx_specs.errors import ComponentArgumentError, ComponentTypeError, TorchXError, nearest
from torchx_specs.redaction import MASK, is_secret


class ComponentHelpRequested(TorchXError):
    """``--help`` was among the arguments. The command prints ``text`` and exits with 0.

    Args:
        text: The component's help, with the name of the function in the usage line.
        component: The component, for a call of :func:`component_help` with another name.
    """

    exit_code = 0

    def __init__(self, text: str, component: Callable[..., Any]) -> None:
        super().__init__(text)
        self.text = text
        self.component = component


class HelpWanted(Exception):
    """``--help`` was among the arguments; the caller raises ComponentHelpRequested instead."""


class _Option(NamedTuple):
    parameter: ComponentParameter
    negated: bool = False

    @property
    def is_flag(self) -> bool:
        converter = self.parameter.converter
        return converter is not None and converter.is_flag


class Options:
    """The option strings of a component.

    Raises:
        ComponentTypeError: Two parameters have the same option string.
    """

    def __init__(self, signature: ComponentSignature) -> None:
        self._component = signature.name
        self._long = {parameter.name: _Option(parameter) for parameter in signature.parameters}
        self._negated: dict[str, _Option] = {}
        self._short: dict[str, _Option] = {}
        for parameter in signature.parameters:
            long_names = [parameter.name]
            for alias in parameter.aliases:
                if alias.startswith("--"):
                    long_names.append(_folded(alias))
                    self._add(self._long, _folded(alias), alias, parameter)
                else:
                    self._add(self._short, alias, alias, parameter)
            if len(parameter.name) == 1:
                self._add(self._short, f"-{parameter.name}", f"-{parameter.name}", parameter)
            if self._long[parameter.name].is_flag:
                for name in long_names:
                    if f"no_{name}" not in self._long:
                        self._negated[f"no_{name}"] = _Option(parameter, negated=True)

    def _add(
        self, table: dict[str, _Option], key: str, option: str, parameter: ComponentParameter
    ) -> None:
        owner = table.setdefault(key, _Option(parameter)).parameter
        if owner.name != parameter.name:
            raise ComponentTypeError(
                f"{self._component}: parameters '{owner.name}' and '{parameter.name}'"
                f" both have the option {option}"
            )

    def find(self, argument: str) -> tuple[_Option, str | None]:
        """Return the option that an argument names, and the value after ``=`` or ``-x``, if any.

        Raises:
            ValueError: The option is unknown, or an abbreviation of several options.
            HelpWanted: The argument is ``--help``, or an abbreviation of only ``--help``.
        """
        name, equal, value = argument.partition("=")
        if argument.startswith("--"):
            return self._find_long(name), value if equal else None
        if name in self._short:
            return self._short[name], value if equal else None
        # `-name x` is a typing error for `--name x`, and does not mean `-n ame`.
        if argument[:2] in self._short and _folded(name) not in self._long:
            option = self._short[argument[:2]]
            if not option.is_flag:
                return option, argument[2:]
        raise self._unknown(name)

    def _find_long(self, option: str) -> _Option:
        name = _folded(option)
        exact = self._long.get(name) or self._negated.get(name)
        if exact:
            return exact
        if not name:
            raise ValueError(f"'{option}' is not an option")
        # `--no-NAME` can be abbreviated only after `--no-`, so that `--n` does not match every
        # negated flag.
        tables = [self._long, self._negated] if name.startswith("no_") else [self._long]
        matches = {key: table[key] for table in tables for key in table if key.startswith(name)}
        is_help = "help".startswith(name)
        if is_help and (name == "help" or not matches):
            raise HelpWanted
        if len({(o.parameter.name, o.negated) for o in matches.values()}) == 1 and not is_help:
            return next(iter(matches.values()))
        if matches:
            names = sorted(f"--{key}" for key in (*matches, *(["help"] if is_help else [])))
            raise ValueError(f"{option} could be any of {', '.join(names)}")
        raise self._unknown(option)

    def _unknown(self, option: str) -> ValueError:
        if len(option) == 2:
            hint = " did you mean '--help'?" if option == "-h" else ""
        else:
            known = [f"--{name}" for name in (*self._long, "help")]
            hint = nearest(f"--{option.lstrip('-')}", known)
        return ValueError(f"unknown option {option};{hint}".rstrip(";"))


class ParsedArguments(NamedTuple):
    """The arguments of a command line.

    Attributes:
        values: Maps names of parameters to the given values.
        varargs: Arguments for ``*args``; None if there were none.
        problems: Pairs of an error message and the name of the parameter with the error.
    """

    values: dict[str, Any]
    varargs: list[str] | None
    problems: list[tuple[str, str | None]]


def parse_arguments(signature: ComponentSignature, arguments: Sequence[str]) -> ParsedArguments:
    """Parse the arguments after a component's name; invalid values become ``problems``.

    Raises:
        ComponentArgumentError: An argument is not an option of the component, is an ambiguous
            abbreviation, lacks its value, or gives a value to a negated flag.
        ComponentTypeError: Two parameters have the same option string.
        HelpWanted: ``--help`` was among the options.
    """
    options = Options(signature)
    given: dict[str, tuple[Any, str]] = {}
    problems: list[tuple[str, str | None]] = []
    rest = list(arguments)
    varargs: list[str] | None = None
    while rest:
        argument = rest.pop(0)
        if argument == "--" and signature.varargs is None:
            continue  # without *args, `--` has no meaning: `torchx run COMPONENT -- --option`
        if argument == "--" or not _looks_like_option(argument):
            varargs = rest if argument == "--" else [argument, *rest]
            break
        try:
            option, value = options.find(argument)
            text = _value_of(option, argument, value, rest)
        except ValueError as e:
            raise _error(f"{signature.name}: {e}") from None
        shown = argument.partition("=")[0] if value is not None and "=" in argument else argument
        try:
            _store(given, option, shown, text)
        except ValueError as e:
            reason = f"{shown}: {e}"
            if text and value is None and option.is_flag and signature.varargs is not None:
                reason += f" (write '--' before arguments for *{signature.varargs.name})"
            problems.append((reason, option.parameter.name))
    if signature.varargs is None and varargs:
        hint = nearest(varargs[0], (f"--{name}" for name in signature.names))
        reason = f"takes options only, not the argument '{varargs[0]}'"
        raise _error(f"{signature.name} {reason}" + (f";{hint}" if hint else ""))
    values = {name: value for name, (value, _) in given.items()}
    return ParsedArguments(values, varargs, problems)


def _value_of(option: _Option, argument: str, attached: str | None, rest: list[str]) -> str | None:
    """Return the text of an option's value; None for a flag without a value.

    Args:
        option: The option.
        argument: The option as it was given.
        attached: The value in the same argument (``--name=value``), or None.
        rest: The arguments after the option. This function removes the value from the list.
    """
    if option.negated:
        if attached is not None:
            raise ValueError(f"{argument}: a negated flag takes no value")
        return None
    if attached is not None:
        return attached
    if rest and rest[0] != "--" and not _looks_like_option(rest[0]):
        return rest.pop(0)
    if option.is_flag:
        return None
    if rest and rest[0] != "--":
        import shlex

        raise ValueError(
            f"{argument} needs a value; if '{rest[0]}' is the value, write"
            f" {argument}={shlex.quote(rest[0])}"
        )
    raise ValueError(f"{argument} needs a value")


def _store(
    given: dict[str, tuple[Any, str]], option: _Option, shown: str, text: str | None
) -> None:
    """Store the value of an option.

    Raises:
        ValueError: The text is not a value of the option's type, or the option was already given
            with another value.
    """
    parameter = option.parameter
    value = not option.negated if text is None else _read(parameter, text)
    converter = parameter.converter
    if parameter.name in given and converter is not None:
        earlier, earlier_shown = given[parameter.name]
        if converter.is_repeatable:
            value = converter.join(earlier, value)
        elif earlier != value:
            also = f" (by {earlier_shown})" if earlier_shown != shown else ""
            hidden = is_secret(parameter.name)
            first, second = (MASK if hidden else repr(v) for v in (earlier, value))
            raise ValueError(f"given twice: {first}{also} and {second}")
    given[parameter.name] = (value, shown)


def bind(
    signature: ComponentSignature,
    parsed: ParsedArguments,
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Any]]:
    """Return the value of every parameter, and the values of ``*args``.

    The command line wins over ``config``, ``config`` over ``defaults``, and ``defaults`` over the
    defaults in the signature.

    Raises:
        ComponentArgumentError: Arguments are wrong or missing; the message lists all problems.
    """
    problems = list(parsed.problems)
    at_fault = {name for _, name in problems}
    values: dict[str, Any] = {}
    missing: list[str] = []
    for parameter in signature.parameters:
        name = parameter.name
        if name in at_fault:
            continue
        if name in parsed.values:
            values[name] = parsed.values[name]
        elif name in config or name in defaults:
            try:
                values[name] = _from_sources(parameter, config, defaults)
            except ValueError as e:
                where = name if name in config else f"{name} (a configured default)"
                problems.append((f"{where}: {e}", name))
        elif not parameter.is_required:
            values[name] = parameter.default
        elif parameter.converter is None:
            problems.append((f"{name}: {unsupported(parameter)}", name))
        else:
            missing.append(name)
    varargs: list[Any] = []
    if signature.varargs is not None:
        try:
            varargs = _bind_varargs(signature.varargs, parsed.varargs, config, defaults)
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


def _error(message: str, parameter: str | None = None) -> ComponentArgumentError:
    # An error message is one line, but may quote arguments with line breaks.
    return ComponentArgumentError("\\n".join(message.splitlines()), parameter)


def _from_sources(
    parameter: ComponentParameter, config: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Any:
    if parameter.name in config:
        return _checked(parameter, config[parameter.name])
    value = defaults[parameter.name]
    return _read(parameter, value) if isinstance(value, str) else _checked(parameter, value)


def _checked(parameter: ComponentParameter, value: Any) -> Any:
    """Check a typed value; a value of an unsupported type is passed to the component unchecked."""
    if parameter.converter is None and not isinstance(value, str):
        return value
    return _converter_of(parameter).from_value(value)


def _read(parameter: ComponentParameter, text: str) -> Any:
    return _converter_of(parameter).from_text(text)


def _converter_of(parameter: ComponentParameter) -> Converter:
    if parameter.converter is None:
        raise ValueError(unsupported(parameter))
    return parameter.converter


def _bind_varargs(
    parameter: ComponentParameter,
    arguments: list[str] | None,
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> list[Any]:
    if arguments is not None:
        return [_read(parameter, argument) for argument in arguments]
    source = config if parameter.name in config else defaults
    given = source.get(parameter.name)
    if given is None:
        return []
    if isinstance(given, str):
        import shlex

        return [_read(parameter, argument) for argument in shlex.split(given)]
    if not isinstance(given, (list, tuple)):
        raise ValueError(f"expected a list, got {given!r} ({type(given).__name__})")
    return [_checked(parameter, value) for value in given]


def unsupported(parameter: ComponentParameter) -> str:
    """Return the error message for a parameter whose type has no converter."""
    return f"type '{parameter.type_name}' is not supported; supported types: {SUPPORTED_TYPES}"


def unknown_names(signature: ComponentSignature, names: Iterable[str]) -> list[str]:
    """Return an error message for each name that is not a parameter."""
    return [
        f"{signature.name} has no parameter '{name}';{nearest(name, signature.names)}".rstrip(";")
        for name in names
        if signature.get(name) is None
    ]


def _looks_like_option(argument: str) -> bool:
    """Return True if an argument begins with ``-`` and is not ``-`` or a negative number."""
    if len(argument) < 2 or argument[0] != "-":
        return False
    digits = argument[2:] if argument[1] == "." else argument[1:]
    return not digits[:1].isdigit() and argument.lower() not in ("-inf", "-nan")


def _folded(option: str) -> str:
    return option.lstrip("-").replace("-", "_")
