"""An app, and what a scheduler would be given for it, as text and as plain data."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

from torchx_cli.output.printing import JSON, YAML
from torchx_cli.output.standard_streams import read_utf8
from torchx_runner import workspaces

if TYPE_CHECKING:
    from torchx_specs.model.app import AppDef
    from torchx_specs.model.dryrun import AppDryRunInfo
    from torchx_specs.workspace import Workspace

_SUFFIXES = (".yaml", ".yml", ".json")


def app_text(app: AppDef) -> str:
    """Returns an app for people to read, with values masked that look like secrets."""
    from pprint import pformat

    from torchx_specs.redaction import masked

    return pformat(masked(app_dict(app)), indent=2, width=80)


def app_dict(app: AppDef) -> dict[str, Any]:
    """Returns an app as nested dicts, in the shape that scripts know."""
    return asdict(app)


def app_document(app: AppDef, output_format: str) -> str:
    """Returns an app as a document that ``torchx run`` takes; ``form`` is ``json`` or ``yaml``."""
    from torchx_specs.formats import serialize

    return serialize.to_json(app) if output_format == JSON else serialize.to_yaml(app)


def is_document(component: str) -> bool:
    """Returns True if a component's name is that of a file with an app: ``job.yaml``, or ``-``."""
    return component == "-" or component.endswith(_SUFFIXES)


def read_document(path: str) -> AppDef:
    """Returns the app in a file.

    Args:
        path: the file; ``-`` is standard input

    Raises:
        RequestError: it cannot be read, or has no app in it
    """
    from torchx_specs.formats import serialize

    if path == "-":
        name = "standard input"
        return serialize.load(read_utf8(name), called=name)
    from pathlib import Path

    return serialize.load(Path(path))


def dryrun_text(info: AppDryRunInfo[Any]) -> str:
    """Returns what would be submitted, for people to read."""
    app = "" if info.app is None else app_text(info.app)
    return f"\n=== APPLICATION ===\n{app}\n\n=== SCHEDULER REQUEST ===\n{info}"


def dryrun_document(
    app: AppDef, info: AppDryRunInfo[Any], workspace: Workspace | str | None
) -> str:
    """Returns an app as it was before the scheduler saw it, as YAML that ``torchx run`` takes.

    What the scheduler would be given stands in comments.

    Args:
        app: the app
        info: the dry run made of it
        workspace: the workspace that was asked for; the document has it too
    """
    app = copy.deepcopy(app)
    workspaces.set_workspace(app.roles, workspace)
    comments = [f"scheduler: {info._scheduler}", "scheduler request:", *str(info).splitlines()]
    return app_document(app, YAML) + "".join(f"# {line}".rstrip() + "\n" for line in comments)


def dryrun_data(info: AppDryRunInfo[Any]) -> dict[str, Any]:
    """Returns what would be submitted, as plain data."""
    return {
        "scheduler": info._scheduler,
        "cfg": dict(info.cfg),
        "app": None if info.app is None else app_dict(info.app),
        "request": request_data(info),
    }


def request_data(info: AppDryRunInfo[Any]) -> Any:
    """Returns a scheduler's request: a dict if it is a dataclass or a mapping, else its text."""
    request = info.request
    if is_dataclass(request) and not isinstance(request, type):
        return asdict(request)
    return dict(request) if isinstance(request, Mapping) else str(info)
