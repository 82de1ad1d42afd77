"""Converts an app and its scheduler request to text, plain data and documents."""

from __future__ import annotations

import copy
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from torchx_cli.output.colors import is_terminal
from torchx_cli.output.printing import JSON, YAML, to_plain_data
from torchx_cli.output.terminal import read_utf8
from torchx_runner import workspaces
from torchx_specs.redaction import masked

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef, AppDryRunInfo
    from torchx_specs.workspace import Workspace

logger = logging.getLogger(__name__)

_SUFFIXES = (".yaml", ".yml", ".json")


def app_text(app: AppDef) -> str:
    """Return an app as indented text; values that look like secrets are masked."""
    from torchx_kit.text.tables import format_data

    return format_data(masked(app))


def app_document(app: AppDef, output_format: str) -> str:
    """Return an app as a JSON or YAML document that ``torchx run`` accepts."""
    from torchx_specs.formats import serialize

    return serialize.to_json(app) if output_format == JSON else serialize.to_yaml(app)


def is_document(component: str) -> bool:
    """Return True if a component is a file that defines an app: ``job.yaml``, or ``-``."""
    return component == "-" or component.endswith(_SUFFIXES)


def read_document(path: str) -> AppDef:
    """Return the app in a file.

    Args:
        path: The file; ``-`` is standard input.

    Raises:
        RequestError: The file cannot be read, or does not define an app.
    """
    from torchx_specs.formats import serialize

    if path == "-":
        name = "standard input"
        return serialize.load(read_utf8(name), called=name)
    from pathlib import Path

    return serialize.load(Path(path))


def dryrun_text(info: AppDryRunInfo[Any]) -> str:
    """Return a dry run as text: the app and the scheduler's request."""
    app = "" if info.app is None else app_text(info.app)
    return f"\n=== APPLICATION ===\n{app}\n\n=== SCHEDULER REQUEST ===\n{info}"


def dryrun_document(
    app: AppDef, info: AppDryRunInfo[Any], workspace: Workspace | str | None
) -> str:
    """Return a dry run as YAML that ``torchx run`` accepts.

    The document defines the app without the scheduler's changes; comments contain the scheduler's
    request.

    Args:
        app: The app.
        info: The dry run of the app.
        workspace: The workspace of the run, which becomes part of the document.
    """
    app = copy.deepcopy(app)
    workspaces.set_workspace(app.roles, workspace)
    comments = [f"scheduler: {info._scheduler}", "scheduler request:", *str(info).splitlines()]
    return app_document(app, YAML) + "".join(f"# {line}".rstrip() + "\n" for line in comments)


def dryrun_data(info: AppDryRunInfo[Any]) -> dict[str, Any]:
    """Return a dry run as plain data."""
    return {
        "scheduler": info._scheduler,
        "cfg": dict(info.cfg),
        "app": None if info.app is None else asdict(info.app),
        "request": request_data(info),
    }


def request_data(info: AppDryRunInfo[Any]) -> Any:
    """Return a scheduler's request: a dict for a dataclass or mapping, otherwise text."""
    request = info.request
    if is_dataclass(request) and not isinstance(request, type):
        return asdict(request)
    return dict(request) if isinstance(request, Mapping) else str(info)


def warn_of_secrets(data: Any) -> None:
    """Log a warning with the names of a document's secrets, if standard error is a terminal.

    The document is printed with its secrets, because another command may take it as input.

    Args:
        data: The data of the document.
    """
    if not is_terminal(sys.stderr):
        return
    from torchx_runner.submissions.changes import flattened

    plain = to_plain_data(data)
    shown = flattened(masked(plain))
    names = dict.fromkeys(
        _field(path) for path, value in flattened(plain).items() if shown.get(path) != value
    )
    if names:
        logger.warning(
            "the output contains values that look like secrets: %s; a file with them should have"
            " the mode 0600",
            ", ".join(names),
        )


def _field(path: str) -> str:
    """Return the name of a field: ``TOKEN`` for ``roles.r.env.TOKEN`` and ``env.TOKEN.value``."""
    return path.removesuffix(".value").rpartition(".")[2].partition("[")[0]
