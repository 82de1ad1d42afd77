"""The JSON object that ``torchx run --stdin`` reads."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from torchx_specs.errors import RequestError, nearest

#: The valid types of each field of the JSON object.
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "component_name": (str,),
    "scheduler": (str,),
    "scheduler_args": (dict,),
    "scheduler_cfg": (dict,),
    "dryrun": (bool,),
    "wait": (bool,),
    "log": (bool,),
    "workspace": (str,),
    "parent_run_id": (str, type(None)),
    "tee_logs": (bool,),
    "component_args": (dict,),
    "component_args_str": (list,),
}
_TYPE_NAMES = {str: "a string", dict: "an object", bool: "true or false", list: "a list"}


@dataclass
class TorchXRunArgs:
    """The fields of the JSON object that ``torchx run --stdin`` reads.

    Args:
        component_name: The component, as on the command line.
        scheduler: Name of the scheduler.
        scheduler_args: Options of the scheduler.
        scheduler_cfg: Accepted without effect: ``torchx run`` uses ``scheduler_args``.
        dryrun: Whether to show the request without submitting it.
        wait: Whether to wait until the app has ended.
        log: Whether to show the logs, and wait until the app has ended.
        workspace: The workspace; an empty string means the working directory.
        parent_run_id: The id of the parent run, for trackers.
        tee_logs: Accepted without effect, for older scripts.
        component_args: Typed arguments of the component, by parameter.
        component_args_str: Arguments as on a command line; if given, they replace
            ``component_args``.
    """

    component_name: str
    scheduler: str
    scheduler_args: dict[str, Any]
    scheduler_cfg: dict[str, Any] = field(default_factory=dict)
    dryrun: bool = False
    wait: bool = False
    log: bool = False
    workspace: str = ""
    parent_run_id: str | None = None
    tee_logs: bool = False
    component_args: dict[str, Any] = field(default_factory=dict)
    component_args_str: list[str] = field(default_factory=list)


def torchx_run_args_from_json(json_data: dict[str, Any]) -> TorchXRunArgs:
    """Return the run that a JSON object describes; an empty workspace is the working directory.

    Raises:
        RequestError: Fields are missing, unknown, or of the wrong type; the error names all of
            them.
    """
    known = {f.name: f for f in fields(TorchXRunArgs)}
    problems = [
        f"required field '{name}' is missing"
        for name, f in known.items()
        if name not in json_data and f.default is MISSING and f.default_factory is MISSING
    ]
    for name, value in json_data.items():
        if name not in known:
            problems.append(f"unknown field '{name}';{nearest(name, known)}".rstrip(";"))
        elif not isinstance(value, _JSON_TYPES[name]):
            problems.append(f"field '{name}' must be {_TYPE_NAMES[_JSON_TYPES[name][0]]}")
    arguments = json_data.get("component_args_str")
    if isinstance(arguments, list) and not all(isinstance(a, str) for a in arguments):
        problems.append("field 'component_args_str' must be a list of strings")
    if problems:
        raise RequestError([f"standard input: {problem}" for problem in problems])
    args = TorchXRunArgs(**json_data)
    if not args.workspace:
        args.workspace = os.getcwd()
    return args
