"""The notebook's workspace: a memory file system of fsspec."""

from __future__ import annotations

import posixpath

from torchx_specs.errors import WorkspaceError

WORKSPACE = "memory://torchx-workspace/"


def get_workspace() -> str:
    """Return the URL of the workspace to which ``%%workspacefile`` writes.

    Pass it to a runner as ``workspace=``. The workspace is in the memory of this process, so the
    runner must be in the same kernel.
    """
    return WORKSPACE


def write_file(path: str, text: str) -> str:
    """Write ``text`` to the file ``path`` of the workspace; replace an existing file.

    Args:
        path: The path relative to the workspace. Missing folders are created.
        text: The content of the file.

    Returns:
        The normalized path: ``a/b`` for ``./a/c/../b``.

    Raises:
        WorkspaceError: The path is empty or absolute, leads out of the workspace, or is a folder.
    """
    import fsspec

    name = posixpath.normpath(path) if path else ""
    if not path or name == "." or path.endswith("/"):
        raise WorkspaceError(
            f"workspace file '{path}': not the path of a file; give one, such as"
            " `%%workspacefile src/train.py`"
        )
    if name == ".." or name.startswith(("/", "../")):
        raise WorkspaceError(
            f"workspace file '{path}': not in the workspace; give a relative path without '..'"
        )
    fs, root = fsspec.core.url_to_fs(WORKSPACE)
    target = posixpath.join(root, name)
    if fs.isdir(target):
        raise WorkspaceError(f"workspace file '{path}': is a folder; give the path of a file")
    fs.makedirs(posixpath.dirname(target), exist_ok=True)
    with fs.open(target, "w", encoding="utf-8") as file:
        file.write(text)
    return name


def workspacefile(line: str, cell: str) -> None:
    """Write the cell's text to the file that follows the magic's name.

    ::

        %%workspacefile my_app/train.py
        print("runs in the job")
    """
    from IPython.core.error import UsageError

    try:
        name = write_file(_unquoted(line.strip()), cell)
    except WorkspaceError as e:
        # IPython prints a UsageError in one line, and other exceptions with a traceback.
        raise UsageError(str(e)) from None
    print(f"Added {name} to workspace {WORKSPACE}")


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text
