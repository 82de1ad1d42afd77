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


def signature_problems(kind: type[Any]) -> Iterator[str]:
    """Yield a message for each optional method that refuses calls which the contract allows.

    An overriding method may add parameters that have a default, and may omit keyword-only
    parameters.

    Args:
        kind: A subclass of ``Scheduler``, ``Logs``, ``Sessions`` or ``Arrays``.
    """
    for contract, names in OPTIONAL_METHODS.items():
        for name in names if issubclass(kind, contract) else ():
            for problem in _refused_calls(getattr(kind, name), getattr(contract, name)):
                yield f"{kind.__qualname__}.{name}: {problem}"


def _refused_calls(method: Any, contract: Any) -> Iterator[str]:
    own, *parameters = inspect.signature(contract).parameters.values()
    wanted = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
    names = [p.name for p in wanted]
    required = [p.name for p in wanted if p.default is Parameter.empty]
    signature = inspect.signature(method)
    for call, arguments, named in (
        ("all arguments by position", names, []),
        ("all arguments by name", [], names),
        ("the required arguments", required, []),
    ):
        try:
            signature.bind(own, *arguments, **dict.fromkeys(named))
        except TypeError as e:
            yield f"a call with {call} is not possible: {e}"
