"""What ``torchx run`` is asked to do, by flags or by a JSON object."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from torchx_specs.errors import RequestError, nearest

#: The types that the fields have in JSON.
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
    """A run as ``torchx run --stdin`` reads it.

    Args:
        component_name: what to run
        scheduler: where to
        scheduler_args: options of the scheduler, as given
        scheduler_cfg: the same checked; made from ``scheduler_args``
        dryrun: only show what would be submitted
        wait: wait for the end
        log: show the logs and wait for the end
        workspace: text of the workspace; empty for the working directory
        parent_run_id: the run that this one belongs to
        tee_logs: kept for older scripts
        component_args: typed arguments by parameter
        component_args_str: arguments as words; if there are any, ``component_args`` does not count
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
    """Returns a run from an object read from JSON; an empty workspace is the working directory.

    Raises:
        RequestError: keys are missing, unknown, or of the wrong type; all are told
    """
    known = {f.name: f for f in fields(TorchXRunArgs)}
    problems = [
        f"required field '{name}' is missing"
        for name, f in known.items()
        if name not in json_data and f.default is MISSING and f.default_factory is MISSING
    ]
    for name, value in json_data.items():
        if name not in known:
            problems.append(f"there is no field '{name}';{nearest(name, known)}".rstrip(";"))
        elif not isinstance(value, _JSON_TYPES[name]):
            problems.append(f"field '{name}' must be {_TYPE_NAMES[_JSON_TYPES[name][0]]}")
    words = json_data.get("component_args_str")
    if isinstance(words, list) and not all(isinstance(word, str) for word in words):
        problems.append("field 'component_args_str' must be a list of strings")
    if problems:
        raise RequestError([f"standard input: {problem}" for problem in problems])
    args = TorchXRunArgs(**json_data)
    if not args.workspace:
        args.workspace = os.getcwd()
    return args


def read_stdin_json(text: str) -> TorchXRunArgs:
    """Returns a run from the text of a JSON object.

    Raises:
        RequestError: it is no such object
    """
    from torchx_specs.formats.documents import parse_json

    data = parse_json(text, "standard input")
    if not isinstance(data, Mapping):
        raise RequestError(
            f"standard input: expected a JSON object, got {type(data).__name__} {data!r:.60}"
        )
    return torchx_run_args_from_json(dict(data))
