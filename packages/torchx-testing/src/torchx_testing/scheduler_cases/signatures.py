"""Compares the signatures of a scheduler's methods with those of the contract."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any

from torchx_specs.schedulers import Scheduler
from torchx_specs.schedulers.arrays import Arrays
from torchx_specs.schedulers.logs import Logs
from torchx_specs.schedulers.sessions import Sessions

#: For each class of the contract: the methods that it implements and that a subclass may override.
OPTIONAL_METHODS: Mapping[type[Any], Sequence[str]] = {
    Scheduler: (
        "close",
        "describe_native",
        "exists",
        "cancel",
        "delete",
        "kill",
        "wait",
        "with_dependency",
        "lives_in_client",
        "gpus",
        "log_iter",
    ),
    Logs: ("read", "read_many"),
    Sessions: ("open", "connect", "read_archive", "write_archive"),
    Arrays: ("submit", "cancel", "delete"),
}

_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def signature_problems(kind: type[Any]) -> Iterator[str]:
    """Yield a message for each difference between optional methods and those of the contract.

    An overriding method must accept every call that the method of the contract accepts. So it
    needs the same parameters, by position and by name. It may add defaults, and may add parameters
    that have a default. It may omit keyword-only parameters.

    Args:
        kind: A subclass of ``Scheduler``, ``Logs``, ``Sessions`` or ``Arrays``.
    """
    for contract, names in OPTIONAL_METHODS.items():
        for name in names if issubclass(kind, contract) else ():
            if getattr(kind, name) is not getattr(contract, name):
                for problem in _differences(getattr(kind, name), getattr(contract, name)):
                    yield f"{kind.__qualname__}.{name}: {problem}"


def _differences(method: Any, contract: Any) -> Iterator[str]:
    given = list(inspect.signature(method).parameters.values())[1:]
    contract_parameters = list(inspect.signature(contract).parameters.values())[1:]
    wanted = [p for p in contract_parameters if p.kind is not Parameter.KEYWORD_ONLY]
    takes_any_position = any(p.kind is Parameter.VAR_POSITIONAL for p in given)
    takes_any_name = any(p.kind is Parameter.VAR_KEYWORD for p in given)
    by_name = {p.name: p for p in given}
    positional = [p for p in given if p.kind in _POSITIONAL]
    for index, parameter in enumerate(wanted):
        at_index = positional[index] if index < len(positional) else None
        if at_index is None and not takes_any_position:
            yield f"it does not accept '{parameter.name}' as positional argument {index + 1}"
        elif at_index is not None and at_index.name != parameter.name:
            yield f"positional argument {index + 1} is '{at_index.name}', not '{parameter.name}'"
        if parameter.name not in by_name and not takes_any_name:
            yield f"it has no parameter '{parameter.name}'"
        has_default = parameter.default is not Parameter.empty
        mine = by_name.get(parameter.name)
        if has_default and mine is not None and mine.default is Parameter.empty:
            yield f"parameter '{parameter.name}' has no default; the contract has one"
    names = {p.name for p in contract_parameters}
    for parameter in given:
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            continue
        if parameter.name not in names and parameter.default is Parameter.empty:
            yield f"parameter '{parameter.name}' is not in the contract and has no default"
