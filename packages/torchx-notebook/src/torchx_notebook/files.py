"""The workspace of a notebook: files in the memory of this process, read through fsspec."""

from __future__ import annotations

import posixpath

from torchx_specs.errors import WorkspaceError

WORKSPACE = "memory://torchx-workspace/"


def get_workspace() -> str:
    """Return the workspace that ``%%workspacefile`` writes to, for ``Runner.run(workspace=...)``.

    The workspace is in the memory of this process: use a runner in the same kernel.
    """
    return WORKSPACE


def write_file(path: str, text: str) -> str:
    """Write ``text`` to a file of the workspace, and replace an existing file.

    Args:
        path: The path relative to the workspace; missing folders are created.
        text: The content of the file.

    Returns:
        The normalized path.

    Raises:
        WorkspaceError: The path is empty, absolute, leads out of the workspace, or names a folder.
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
    """Write the text of a cell to the file that the first line names.

    ::

        %%workspacefile my_app/train.py
        print("runs in the job")
    """
    from IPython.core.error import UsageError

    try:
        name = write_file(line.strip().strip("'\""), cell)
    except WorkspaceError as e:
        # IPython prints a UsageError as one line, and any other error as a traceback.
        raise UsageError(str(e)) from None
    print(f"Added {name} to workspace {WORKSPACE}")
