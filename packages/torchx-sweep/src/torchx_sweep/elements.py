"""Makes the apps of a sweep from sets of parameters, and reports all invalid sets at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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
) -> list[AppDef]:
    """Return the app of each set of parameters.

    Args:
        component: The component.
        arguments: Arguments that all elements share, as on a command line.
        defaults: Values of parameters from a configuration file, as text.
        axes: The axes of the sweep.
        parameter_sets: The sets of parameters.

    Raises:
        RequestError: Parameters are unknown, missing or of the wrong type, or the component raised
            an exception. The message has the first problems and the number of the others.
        ComponentHelpRequested: ``--help`` was among the arguments.
    """
    signature = read_signature(component)
    check_names(axes, signature.name, signature.names)
    apps: list[AppDef] = []
    problems: list[str] = []
    for parameters in parameter_sets:
        try:
            app = materialize_appdef(component, arguments, defaults, parameters.values)
            _check_not_shadowed(component, signature, arguments, parameters)
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


def has_unusual_text(app: AppDef) -> bool:
    """Return True if an argument or a variable may be impossible to pass to a process.

    It is then not a string, or has a NUL character or a lone surrogate.
    """
    for role in app.roles:
        if not isinstance(role.args, (list, tuple)) or not isinstance(role.env, Mapping):
            return True
        for text in (*role.args, *role.env.values()):
            if not isinstance(text, str) or text_problem(text, "a process"):
                return True
    return False


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
