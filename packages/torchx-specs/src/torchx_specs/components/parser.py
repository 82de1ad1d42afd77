"""Turns the words after a component's name into values for its parameters.

Not argparse: what follows ``--`` or the first positional word is the component's own business, word
by word; a bad argument is an exception; and importing argparse costs more than all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torchx_specs.components.converters import SUPPORTED_TYPES
from torchx_specs.components.signature import ComponentParameter, ComponentSignature
from torchx_specs.errors import ComponentArgumentError, ComponentTypeError, TorchXError, nearest


class ComponentHelpRequested(TorchXError):
    """``--help`` was among the arguments; ``text`` is what to print.

    Not a failure: the command prints the text on standard output and exits with 0.

    Args:
        text: help for the component, called by its own name
        component: the component, for a text that calls it otherwise (:func:`component_help`)
    """

    exit_code = 0

    def __init__(self, text: str, component: Callable[..., Any]) -> None:
        super().__init__(text)
        self.text = text
        self.component = component


class HelpWanted(Exception):
    """``--help`` was met; whoever has the component makes a ComponentHelpRequested of it."""


class _Option(NamedTuple):
    parameter: ComponentParameter
    negated: bool = False


class Options:
    """The option strings of a component.

    Raises:
        ComponentTypeError: two parameters claim one option string
    """

    def __init__(self, signature: ComponentSignature) -> None:
        self._long: dict[str, _Option] = {}
        self._negated: dict[str, _Option] = {}
        self._short: dict[str, _Option] = {}
        for parameter in signature.parameters:
            self._long[parameter.name] = _Option(parameter)
        for parameter in signature.parameters:
            for alias in parameter.aliases:
                if alias.startswith("--"):
                    self._claim(self._long, _fold(alias), alias, parameter, signature)
                else:
                    self._claim(self._short, alias, alias, parameter, signature)
            if len(parameter.name) == 1:
                option = f"-{parameter.name}"
                self._claim(self._short, option, option, parameter, signature)
            if parameter.converter is not None and parameter.converter.is_flag:
                for name in (parameter.name, *(a for a in parameter.aliases if a[:2] == "--")):
                    negated = f"no_{_fold(name)}"
                    if negated not in self._long:
                        self._negated[negated] = _Option(parameter, negated=True)

    @staticmethod
    def _claim(
        table: dict[str, _Option],
        key: str,
        shown: str,
        parameter: ComponentParameter,
        signature: ComponentSignature,
    ) -> None:
        owner = table.setdefault(key, _Option(parameter)).parameter
        if owner.name != parameter.name:
            raise ComponentTypeError(
                f"{signature.name}: parameters '{owner.name}' and '{parameter.name}'"
                f" both have the option {shown}"
            )

    def find(self, word: str) -> tuple[_Option, str | None]:
        """Finds the option that ``word`` is, and the value that may be attached to it.

        Raises:
            ValueError: there is no such option, or several that the abbreviation could mean
        """
        if not word.startswith("--"):
            return self._find_short(word)
        name, equal, value = word.partition("=")
        return self._find_long(name), value if equal else None

    def _find_long(self, word: str) -> _Option:
        name = _fold(word)
        found = self._long.get(name) or self._negated.get(name)
        if found:
            return found
        if name == "help":
            raise HelpWanted
        if not name:
            raise ValueError(f"'{word}' is not an option")
        # an abbreviation of a negation has to show that it is one
        tables = [self._long, self._negated] if name.startswith("no_") else [self._long]
        meant = {key: table[key] for table in tables for key in table if key.startswith(name)}
        help_meant = "help".startswith(name)
        if help_meant and not meant:
            raise HelpWanted
        if len({(o.parameter.name, o.negated) for o in meant.values()}) == 1 and not help_meant:
            return next(iter(meant.values()))
        if meant:
            names = sorted(f"--{key}" for key in (*meant, *(["help"] if help_meant else [])))
            raise ValueError(f"{word} could be any of {', '.join(names)}")
        raise ValueError(f"unknown option {word};{self._hint(word)}".rstrip(";"))

    def _find_short(self, word: str) -> tuple[_Option, str | None]:
        name, equal, value = word.partition("=")
        if name in self._short:
            return self._short[name], value if equal else None
        # `-name x` is a slip for `--name x`, not `-n ame` and a word
        if word[:2] in self._short and _fold(name) not in self._long:
            option = self._short[word[:2]]
            if not _is_flag(option):
                return option, word[2:]
        raise ValueError(f"unknown option {name};{self._hint(name)}".rstrip(";"))

    def _hint(self, word: str) -> str:
        if len(word) == 2:
            return " did you mean '--help'?" if word == "-h" else ""
        known = [f"--{name}" for name in (*self._long, "help")]
        return nearest(f"--{word.lstrip('-')}", known)


class ParsedWords(NamedTuple):
    """What stood on the command line.

    Attributes:
        values: by parameter, what was given for it
        varargs: the words for ``*args``, None if there were none
        problems: what was wrong, each with the name of its parameter
    """

    values: dict[str, Any]
    varargs: list[str] | None
    problems: list[tuple[str, str | None]]


def parse_words(signature: ComponentSignature, words: Sequence[str]) -> ParsedWords:
    """Reads the words after a component's name.

    Raises:
        ComponentArgumentError: a word that cannot be made sense of
        HelpWanted: ``--help`` was among the options
    """
    options = Options(signature)
    given: dict[str, tuple[Any, str]] = {}
    problems: list[tuple[str, str | None]] = []
    rest = list(words)
    varargs: list[str] | None = None
    while rest:
        word = rest.pop(0)
        if word == "--" and signature.varargs is None:
            continue  # `torchx run COMPONENT -- --option`: there are no words it could set apart
        if word == "--" or not _looks_like_option(word):
            varargs = rest if word == "--" else [word, *rest]
            break
        try:
            option, value = options.find(word)
            text = _value_of(option, word, value, rest)
        except ValueError as e:
            raise _refusal(f"{signature.name}: {e}") from None
        shown = word.partition("=")[0] if value is not None and "=" in word else word
        try:
            _give(given, option, shown, text)
        except ValueError as e:
            reason = f"{shown}: {e}"
            if text and value is None and _is_flag(option) and signature.varargs is not None:
                reason += f" (write '--' before words for *{signature.varargs.name})"
            problems.append((reason, option.parameter.name))
    if signature.varargs is None and varargs:
        raise _refusal(f"{signature.name} {_unexpected(signature, varargs[0])}")
    values = {name: value for name, (value, _) in given.items()}
    return ParsedWords(values, varargs, problems)


def _value_of(option: _Option, word: str, attached: str | None, rest: list[str]) -> str | None:
    """Returns the text of an option's value; None for a flag that stands alone."""
    if option.negated:
        if attached is not None:
            raise ValueError(f"{word}: a negated flag takes no value")
        return None
    if attached is not None:
        return attached
    if rest and rest[0] != "--" and not _looks_like_option(rest[0]):
        return rest.pop(0)
    if _is_flag(option):
        return None
    if rest and rest[0] != "--":
        raise ValueError(
            f"{word} needs a value; if '{rest[0]}' is meant, write {word}={_shell_word(rest[0])}"
        )
    raise ValueError(f"{word} needs a value")


def _is_flag(option: _Option) -> bool:
    converter = option.parameter.converter
    return converter is not None and converter.is_flag


def _give(given: dict[str, tuple[Any, str]], option: _Option, shown: str, text: str | None) -> None:
    """Notes the value of an option.

    Raises:
        ValueError: the text is none of its type, or another value was given before
    """
    parameter = option.parameter
    converter = parameter.converter
    if converter is None:
        raise ValueError(unsupported(parameter))
    value = not option.negated if text is None else converter.from_text(text)
    if parameter.name in given:
        earlier, earlier_shown = given[parameter.name]
        if converter.is_repeatable:
            value = converter.join(earlier, value)
        elif earlier != value:
            also = f" (by {earlier_shown})" if earlier_shown != shown else ""
            raise ValueError(f"given twice: {earlier!r}{also} and {value!r}")
    given[parameter.name] = (value, shown)


def bind(
    signature: ComponentSignature,
    parsed: ParsedWords,
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> tuple[dict[str, Any], list[Any]]:
    """Returns the value of every parameter, and those of ``*args``.

    What was given explicitly wins, then ``config``, then ``defaults``, then the signature.

    Raises:
        ComponentArgumentError: everything that is wrong or missing, in one message
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
            continue
        if name in config or name in defaults:
            try:
                values[name] = _from_sources(parameter, config, defaults)
            except ValueError as e:
                # nobody looks for it among the words of the command line
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
        what = "argument" if len(missing) == 1 else "arguments"
        problems.append((f"missing required {what}: {names}", missing[0]))
    if problems:
        raise _refusal(
            f"{signature.name}: " + "; ".join(text for text, _ in problems),
            problems[0][1] if len(problems) == 1 and len(missing) < 2 else None,
        )
    return values, varargs


def _refusal(message: str, parameter: str | None = None) -> ComponentArgumentError:
    # the words it cites may have line breaks; it has none
    return ComponentArgumentError("\\n".join(message.splitlines()), parameter)


def _from_sources(
    parameter: ComponentParameter, config: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Any:
    if parameter.name in config:
        return _checked(parameter, config[parameter.name])
    value = defaults[parameter.name]
    return _read(parameter, value) if isinstance(value, str) else _checked(parameter, value)


def _checked(parameter: ComponentParameter, value: Any) -> Any:
    """Checks a typed value; one of an unsupported type is the component's business."""
    if parameter.converter is not None:
        return parameter.converter.from_value(value)
    if isinstance(value, str):
        raise ValueError(unsupported(parameter))
    return value


def _read(parameter: ComponentParameter, text: str) -> Any:
    if parameter.converter is None:
        raise ValueError(unsupported(parameter))
    return parameter.converter.from_text(text)


def _bind_varargs(
    parameter: ComponentParameter,
    words: list[str] | None,
    config: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> list[Any]:
    if words is not None:
        return [_read(parameter, word) for word in words]
    source = config if parameter.name in config else defaults
    given = source.get(parameter.name)
    if given is None:
        return []
    if isinstance(given, str):
        import shlex

        return [_read(parameter, word) for word in shlex.split(given)]
    if not isinstance(given, (list, tuple)):
        raise ValueError(f"expected a list, got {given!r} ({type(given).__name__})")
    return [_checked(parameter, value) for value in given]


def unsupported(parameter: ComponentParameter) -> str:
    """Returns why values of this parameter cannot be read."""
    return f"type '{parameter.type_name}' is not supported; supported types: {SUPPORTED_TYPES}"


def unknown_names(signature: ComponentSignature, names: Iterable[str]) -> list[str]:
    """Returns one line for each name that is no parameter."""
    return [
        f"{signature.name} has no parameter '{name}';{nearest(name, signature.names)}".rstrip(";")
        for name in names
        if signature.get(name) is None
    ]


def _unexpected(signature: ComponentSignature, word: str) -> str:
    hint = nearest(word, (f"--{name}" for name in signature.names))
    return f"takes options only, not the word '{word}'" + (f";{hint}" if hint else "")


def _looks_like_option(word: str) -> bool:
    """Returns False for negative numbers too: no parameter can be called like one."""
    if len(word) < 2 or word[0] != "-":
        return False
    digits = word[2:] if word[1] == "." else word[1:]
    return not digits[:1].isdigit() and word.lower() not in ("-inf", "-nan")


def _fold(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _shell_word(text: str) -> str:
    import shlex

    return shlex.quote(text)
