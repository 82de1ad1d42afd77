"""The notebook's workspace: files in this process's memory, which fsspec serves."""

from __future__ import annotations

import posixpath

from torchx_specs.errors import WorkspaceError

WORKSPACE = "memory://torchx-workspace/"


def get_workspace() -> str:
    """Returns the workspace that ``%%workspacefile`` writes to, for ``workspace=`` of a runner.

    It is in the memory of this process: only a runner in the same kernel finds it.
    """
    return WORKSPACE


def write_file(path: str, text: str) -> str:
    """Writes ``text`` to the file ``path`` of the workspace, in place of what was there.

    Args:
        path: relative to the workspace; missing folders are made
        text: its content

    Returns:
        the path, without detours

    Raises:
        WorkspaceError: the path is empty, absolute, leads out of the workspace, or names a folder
    """
    import fsspec

    name = posixpath.normpath(path) if path else ""
    if not path or name == "." or path.endswith("/"):
        raise WorkspaceError(
            f"workspace file '{path}': name a file, such as `%%workspacefile src/train.py`"
        )
    if name == ".." or name.startswith(("/", "../")):
        raise WorkspaceError(
            f"workspace file '{path}': must be below the workspace; give a relative path"
        )
    fs, root = fsspec.core.url_to_fs(WORKSPACE)
    target = posixpath.join(root, name)
    if fs.isdir(target):
        raise WorkspaceError(f"workspace file '{path}': is a folder")
    fs.makedirs(posixpath.dirname(target), exist_ok=True)
    with fs.open(target, "w", encoding="utf-8") as file:
        file.write(text)
    return name


def workspacefile(line: str, cell: str) -> None:
    """Adds the cell's text to the workspace, as the file named behind the magic.

    ::

        %%workspacefile my_app/train.py
        print("runs in the job")
    """
    from IPython.core.error import UsageError

    try:
        name = write_file(_unquoted(line.strip()), cell)
    except WorkspaceError as e:
        # one line below the cell, where any other error is a traceback
        raise UsageError(str(e)) from None
    print(f"Added {name} to workspace {WORKSPACE}")


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
