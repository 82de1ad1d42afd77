"""The local directories to upload into a job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torchx_specs.errors import RequestError, WorkspaceError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(eq=False)
class Workspace:
    """Maps local project directories to directories of the remote workspace.

    >>> ws = Workspace(projects={"~/github/torch": "torch"})  # to $REMOTE_ROOT/torch/**
    >>> ws = Workspace(projects={"~/github/torch": ""})  # to $REMOTE_ROOT/**
    >>> ws.is_unmapped_single_project()
    True

    The scheduler determines ``$REMOTE_ROOT``.

    Args:
        projects: ``{local path or fsspec URL: remote sub-directory}``; a path may be a file.
    """

    projects: dict[str, str]

    #: Whether a scheduler that cannot upload workspaces must report an error. If False,
    #: the scheduler may ignore the workspace.
    required: ClassVar[bool] = True

    def __bool__(self) -> bool:
        """Return False if there are no projects."""
        return bool(self.projects)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workspace) and self.projects == other.projects

    def __hash__(self) -> int:
        return hash(frozenset(self.projects.items()))

    def __str__(self) -> str:
        """Return the path of a single unmapped project, else ``src:dst;src2``."""
        return ";".join(f"{src}:{dst}" if dst else src for src, dst in self.projects.items())

    def is_unmapped_single_project(self) -> bool:
        """Return True for a single project without a target sub-directory."""
        return len(self.projects) == 1 and not next(iter(self.projects.values()))

    def merge_into(self, outdir: str | Path) -> None:
        """Copy each project into ``{outdir}/{target}``; ``~`` in a project is the home directory.

        The names in :mod:`torchx_specs.workspace.excluded_names` are left out. Ignore files are
        copied, but not applied: schedulers of older releases, which call this method, apply the
        ignore files in ``outdir``.

        Raises:
            WorkspaceError: A project does not exist.
        """
        import shutil

        from torchx_specs.workspace.excluded_names import DEFAULT_EXCLUDES, RECORDS_PREFIX

        for src, dst in self.projects.items():
            source = os.path.expanduser(src)
            target = os.path.join(outdir, dst) if dst else os.fspath(outdir)
            if os.path.isdir(source):
                excluded = shutil.ignore_patterns(*DEFAULT_EXCLUDES, f"{RECORDS_PREFIX}*")
                shutil.copytree(source, target, ignore=excluded, dirs_exist_ok=True)
            elif os.path.isfile(source):
                os.makedirs(os.path.dirname(target) if dst else target, exist_ok=True)
                shutil.copy2(source, target)
            else:
                raise WorkspaceError(f"workspace project does not exist: {src}")

    @staticmethod
    def from_str(workspace: str | None) -> Workspace:
        """Parse a path, or a YAML mapping of local paths to sub-directories.

        An empty string means no workspace. A plain path needs no YAML library.

        Raises:
            WorkspaceError: The text is neither a path nor such a mapping.
        """
        if not workspace:
            return Workspace({})
        text = workspace.strip()
        if not ("\n" in text or ": " in text or text.endswith(":") or text[:1] in "{[\"'"):
            return Workspace({text: ""})
        from torchx_specs.formats.documents import parse_yaml

        where = f"workspace '{workspace}'"
        try:
            data = parse_yaml(workspace, where)
        except RequestError as e:
            raise WorkspaceError(str(e)) from None
        if isinstance(data, str):
            return Workspace({data: ""})
        if not isinstance(data, Mapping):
            raise WorkspaceError(
                f"{where} must be a path or a mapping of paths to sub-directories,"
                f" not a {type(data).__name__}"
            )
        for source, target in data.items():
            if isinstance(target, (Mapping, list, tuple)):
                raise WorkspaceError(
                    f"{where}: the sub-directory of '{source}' must be text, not a"
                    f" {type(target).__name__}"
                )
        return Workspace({str(k): "" if v is None else str(v) for k, v in data.items()})
