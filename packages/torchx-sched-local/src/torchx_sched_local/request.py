"""The request of ``local_cwd``: a description of the processes to start."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from torchx_kit.jobs.attempts import AttemptRules
from torchx_specs.redaction import masked
from torchx_specs.settings import ENV_TORCHX_RESUME_DIR

#: The variable that names the file to which a failing process writes its error, as JSON.
ENV_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
#: How many replicas of each role the text of a request shows.
LARGEST_SHOWN = 100
#: The name, the arguments and the variables of an element of an array, with macros.
Element = tuple[str, list[str], dict[str, str]]


@dataclass
class ReplicaParam:
    """How to start one replica.

    Args:
        args: The program and its arguments.
        env: Environment variables, which are added to the environment of this process.
        stdout: Path of the file for standard output.
        stderr: Path of the file for standard error.
        combined: Path of the file for the lines of both streams.
        cwd: The working directory; None means the working directory of this process.
    """

    args: list[str]
    env: dict[str, str]
    stdout: str | None = None
    stderr: str | None = None
    combined: str | None = None
    cwd: str | None = None


@dataclass
class PopenRequest:
    """The request to start the processes of an app.

    Args:
        app_id: The app's id.
        log_dir: The app's folder.
        role_params: By role, how to start each of its replicas.
        role_log_dirs: By role, the folder of each of its replicas.
        max_parallel: How many replicas run at the same time; None means all.
        elements: If the replicas are the elements of an array, the name, the arguments and the
            variables of each element, with macros.
        gpus: By role, how many GPUs each replica claims when it starts; None means no claims.
        time_limit: How long a replica may run, in seconds; None means without a limit.
        attempts: When the app starts again, with the option ``requeue``; None without it.
        workspaces: The projects of each workspace to copy, by the folder of its copy.
    """

    app_id: str
    log_dir: str
    role_params: dict[str, list[ReplicaParam]]
    role_log_dirs: dict[str, list[str]]
    max_parallel: int | None = None
    elements: list[Element] | None = None
    gpus: dict[str, int] | None = None
    time_limit: float | None = None
    attempts: AttemptRules | None = None
    workspaces: dict[str, dict[str, str]] | None = None

    @property
    def params(self) -> Iterator[ReplicaParam]:
        """How to start each replica, role by role."""
        return chain.from_iterable(self.role_params.values())

    @property
    def resume_dir(self) -> str | None:
        """The folder that all attempts share; None if there is none."""
        return next((param.env.get(ENV_TORCHX_RESUME_DIR) for param in self.params), None)


def request_to_dict(request: PopenRequest) -> dict[str, Any]:
    """Return a request as plain data, which must not be changed: it shares the request's dicts."""
    # dataclasses.asdict copies everything, which takes longer than the rest of a dry run.
    role_params = {
        role: [vars(param) for param in params] for role, params in request.role_params.items()
    }
    attempts = request.attempts and request.attempts._asdict()
    return {**vars(request), "role_params": role_params, "attempts": attempts}


def request_from_dict(data: Mapping[str, Any]) -> PopenRequest:
    """Return the request from which :func:`request_to_dict` made ``data``."""
    role_params = {
        role: [ReplicaParam(**param) for param in params]
        for role, params in data["role_params"].items()
    }
    attempts = data["attempts"] and AttemptRules(**data["attempts"])
    return PopenRequest(**{**data, "role_params": role_params, "attempts": attempts})


def format_request(request: Any) -> str:
    """Return a readable text of a request, with secrets masked.

    Of a role with many replicas, the text shows the first ``LARGEST_SHOWN``: masking and
    formatting a replica takes almost a millisecond.
    """
    from torchx_kit.text.tables import format_data

    data = {
        **{name: value for name, value in vars(request).items() if value is not None},
        "role_params": {
            role: _first(params, masked) for role, params in request.role_params.items()
        },
        "role_log_dirs": {
            role: _first(folders, str) for role, folders in request.role_log_dirs.items()
        },
    }
    return format_data(data)


def _first(items: Sequence[Any], convert: Callable[[Any], Any]) -> list[Any]:
    """Return the converted first items, and a remark on the others."""
    shown = [convert(item) for item in items[:LARGEST_SHOWN]]
    if len(items) > LARGEST_SHOWN:
        shown.append(f"... {len(items) - LARGEST_SHOWN} more replicas; `-o json` shows all")
    return shown
