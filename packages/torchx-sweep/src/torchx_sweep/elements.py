"""Makes the apps of a sweep from sets of parameters, and reports all invalid sets at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchx_specs.components.materialize import component_args_from_str, materialize_appdef
from torchx_specs.components.signature import ComponentSignature, read_signature
from torchx_specs.errors import RequestError, TorchXError, one_line
from torchx_specs.redaction import masked, masked_value
from torchx_specs.schedulers.request_checks import text_problem
from torchx_sweep.parameters import Axis, ParameterSet, check_names, shortened

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef

# How many characters of a value a message shows.
_LONGEST_VALUE = 100


def integer_parameters(signature: ComponentSignature) -> set[str]:
    """Return the names of the parameters of type int, whose values may be a range."""
    return {
        p.name
        for p in signature.parameters
        if "int" in (types := set(p.type_name.split(" | "))) and types <= {"int", "None"}
    }


def make_apps(
    component: Callable[..., AppDef],
    arguments: Sequence[str],
    defaults: Mapping[str, str] | None,
    axes: Sequence[Axis],
    parameter_sets: Sequence[ParameterSet],
    *,
    program: str | None = None,
    name: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[AppDef]:
    """Return the app of each set of parameters.

    In the arguments of a program, and in ``name`` and ``env``, ``{lr}`` stands for the value of the
    parameter ``lr``. A program gets the parameters that are neither in its arguments nor in ``env``
    as options, ``--lr VALUE``.

    Args:
        component: The component.
        arguments: Arguments that all elements share, as on a command line.
        defaults: Values of parameters from a configuration file, as text.
        axes: The axes of the sweep.
        parameter_sets: The sets of parameters.
        program: The script or command that the component runs with the last arguments, which gets
            the parameters; None if they are parameters of the component.
        name: The name of the apps; None keeps the component's.
        env: Variables that are set in every role.

    Raises:
        RequestError: Parameters are unknown, missing or of the wrong type, or the component raised
            an exception. The message has the first problems and the number of the others.
        ComponentHelpRequested: ``--help`` was among the arguments.
    """
    signature = read_signature(component)
    if program is None:
        check_names(axes, signature.name, signature.names)
    apps: list[AppDef] = []
    problems: list[str] = []
    for parameters in parameter_sets:
        try:
            if program is None:
                app = materialize_appdef(component, arguments, defaults, parameters.values)
                _check_not_shadowed(component, signature, arguments, parameters)
            else:
                texts = [*arguments, *(env or {}).values()]
                words = [*arguments, *_options(texts, parameters)]
                placed = [place(word, parameters.values) for word in words]
                app = materialize_appdef(component, placed, defaults)
            if name:
                app.name = place(name, parameters.values)
            for role in app.roles:
                added = {key: place(value, parameters.values) for key, value in (env or {}).items()}
                role.env = {**role.env, **added}
            apps.append(app)
        except TorchXError as e:
            if type(e).exit_code == 0:  # the arguments contain --help
                raise
            problems.append(f"{parameters.origin}: {one_line(e)}")
        except (Exception, SystemExit) as e:
            problems.append(
                f"{parameters.origin}: {signature.name} failed: {type(e).__name__}: {one_line(e)}"
            )
    if problems:
        raise RequestError(shortened(problems))
    return apps


def place(text: str, values: Mapping[str, Any]) -> str:
    """Return a text with values in place of names of parameters.

    >>> place("{lr} {x} of {seed}", {"lr": "1e-3", "seed": 7})
    '1e-3 {x} of 7'
    """
    names = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({names})\}}", lambda m: shown_value(values[m[1]]), text) if names else text


def _options(texts: Sequence[str], parameters: ParameterSet) -> list[str]:
    """Return the options of a program for the parameters that no text has as ``{NAME}``."""
    options: list[str] = []
    for name, value in parameters.values.items():
        if any(f"{{{name}}}" in text for text in texts):
            continue
        text = shown_value(value)
        # In a word of its own, a value with a hyphen looks like an option.
        options += [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]
    return options


def kind_of(app: AppDef) -> str:
    """Return a text that is the same for apps that pass the same checks of a scheduler.

    Such apps differ only in arguments and in values of variables that every process can receive.
    """
    try:
        roles = [
            {
                **vars(role),
                "args": [type(role.args), bool(role.args), *_unusual(role.args)],
                "env": [*role.env, *_unusual(role.env.values())],
            }
            for role in app.roles
        ]
    except (AttributeError, TypeError):  # the check reports values of wrong types
        return repr(app)
    return repr({**vars(app), "roles": roles})


def _unusual(texts: Iterable[object]) -> list[object]:
    """Return the values that it may be impossible to pass to a process.

    Such a value is not a string, or has a NUL character or a lone surrogate.
    """
    return [t for t in texts if not isinstance(t, str) or text_problem(t, "a process")]


def shown_value(value: Any) -> str:
    """Return the value of a parameter or a metric as text for a table."""
    return value if isinstance(value, str) else json.dumps(value, default=str)


def shown_parameter(name: str, value: Any) -> str:
    """Return the value of a parameter as text for a table, with secrets masked."""
    # The value of a parameter such as num_token is not a secret if it is a number.
    return shown_value(masked_value(name, value) if isinstance(value, str) else masked(value))


def shortened_parameter(name: str, value: Any) -> str:
    """Return the value of a parameter as text for a message: masked, and of limited length."""
    text = shown_parameter(name, value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _check_not_shadowed(
    component: Callable[..., AppDef],
    signature: ComponentSignature,
    arguments: Sequence[str],
    parameters: ParameterSet,
) -> None:
    """Raise RequestError if the arguments replace a parameter of the sweep."""
    if not arguments:
        return
    args = component_args_from_str(component, arguments, None, parameters.values)
    used = {**args.positional_args, **args.kwargs}
    for parameter in signature.parameters:
        name = parameter.name
        if name in parameters.values:
            expected = parameter.read(parameters.values[name], typed=True)
            if used[name] != expected and expected == expected:  # NaN differs from itself
                raise RequestError(
                    f"the parameter '{name}' is among the arguments of {signature.name}, and in"
                    " the sweep; remove one of them"
                )
