"""The native request: which processes to start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torchx_kit.scripts.shell import encode
from torchx_specs.errors import RequestError
from torchx_specs.model.app import AppDef, Role
from torchx_specs.model.constants import MISSING

HIDDEN = "<hidden>"

#: Names the file in which a process leaves the error it ended with, as JSON.
ENV_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"

_SECRET_WORDS = frozenset(
    {"APIKEY", "CREDENTIAL", "CREDENTIALS", "KEY", "KEYS", "PASSPHRASE", "PASSWD", "PASSWORD"}
    | {"PASSWORDS", "SECRET", "SECRETS", "TOKEN", "TOKENS"}
)


@dataclass
class ReplicaParam:
    """How to start one replica.

    Args:
        args: the program and its arguments
        env: environment variables beside those of this process
        stdout: path of the file for its standard output
        stderr: path of the file for its standard error
        combined: path of the file for both, line by line
        cwd: working directory
    """

    args: list[str]
    env: dict[str, str]
    stdout: str | None = None
    stderr: str | None = None
    combined: str | None = None
    cwd: str | None = None


@dataclass
class PopenRequest:
    """The processes of an app.

    Args:
        app_id: the app's id
        log_dir: its folder
        role_params: the replicas of each role
        role_log_dirs: the folders of the replicas of each role
    """

    app_id: str
    log_dir: str
    role_params: dict[str, list[ReplicaParam]]
    role_log_dirs: dict[str, list[str]]


def as_data(request: PopenRequest) -> dict[str, Any]:
    """Returns a request as plain data, which is not to be changed."""
    # dataclasses.asdict would copy everything, and takes longer than all the rest of it
    role_params = {
        role: [vars(param) for param in params] for role, params in request.role_params.items()
    }
    return {**vars(request), "role_params": role_params}


def request_from_dict(data: Mapping[str, Any]) -> PopenRequest:
    """Returns the request of which ``data`` is the :func:`as_data`."""
    return PopenRequest(
        data["app_id"],
        data["log_dir"],
        {role: [ReplicaParam(**p) for p in params] for role, params in data["role_params"].items()},
        data["role_log_dirs"],
    )


def format_request(request: Any) -> str:
    """Returns a request for people to read; values of variables named like secrets are hidden."""
    import pprint

    data = asdict(request)
    for params in data["role_params"].values():
        for param in params:
            param["env"] = hide_secrets(param["env"])
    return pprint.pformat(data, indent=2, width=80)


def hide_secrets(env: Mapping[str, str]) -> dict[str, str]:
    """Returns ``env`` with :data:`HIDDEN` for what is named like a secret.

    >>> hide_secrets({"HF_TOKEN": "x", "TOKENIZERS_PARALLELISM": "0", "api-key": "y"})
    {'HF_TOKEN': '<hidden>', 'TOKENIZERS_PARALLELISM': '0', 'api-key': '<hidden>'}
    """
    return {key: HIDDEN if value and _is_secret(key) else value for key, value in env.items()}


def _is_secret(name: str) -> bool:
    return not _SECRET_WORDS.isdisjoint(re.split("[^A-Z0-9]+", name.upper()))


def problems_of(role: Role) -> list[str]:
    """Returns why a role's process cannot be started, one line each."""
    if not role.entrypoint or role.entrypoint == MISSING:
        return [f"role '{role.name}': no entrypoint; set Role.entrypoint to the program to run"]
    problems = []
    words = {"entrypoint": role.entrypoint}
    words.update({f"args[{i}]": arg for i, arg in enumerate(role.args)})
    for key, value in role.env.items():
        if not key or "=" in key:
            problems.append(f"role '{role.name}': env has {key!r}, which is no variable's name")
        words[f"env['{key}']"] = f"{key}={value}"
    # a process cannot be given a NUL, nor text that stands for no bytes
    everything = "".join(words.values())
    if "\0" in everything or not _can_be_encoded(everything):
        for where, word in words.items():
            if "\0" in word:
                problems.append(f"role '{role.name}': {where} holds a NUL character")
            elif not _can_be_encoded(word):
                problems.append(f"role '{role.name}': {where} holds what stands for no byte")
    return problems


def check(app: AppDef) -> None:
    """Checks that an app's processes can be started, as far as that shows without trying.

    Raises:
        RequestError: names everything that is wrong
    """
    problems = [problem for role in app.roles for problem in problems_of(role)]
    if problems:
        raise RequestError(problems)


def _can_be_encoded(text: str) -> bool:
    try:
        encode(text)
    except RequestError:
        return False
    return True
