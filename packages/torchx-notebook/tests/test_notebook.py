"""Tests of the cell magic in notebooks with separate kernels, and of the workspace's functions."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import torchx_notebook
from patience import PATIENCE
from torchx_kit.workspace import copy_workspace
from torchx_notebook import get_workspace, write_file
from torchx_specs.errors import WorkspaceError
from torchx_specs.workspace import Workspace

Execute = Callable[..., "list[str]"]

# The first cell of a notebook: a scheduler that runs each job as a process in the folder to which
# the workspace was copied, and a function that submits a job.
SCHEDULER = """
import subprocess
from torchx_runner import Runner
from torchx_specs import AppDef, AppDryRunInfo, Resource, Role
from torchx_specs.schedulers import Scheduler
from torchx_kit.workspace.dir_builder import TmpDirWorkspaceMixin
from torchx_notebook import get_workspace

class InFolder(TmpDirWorkspaceMixin, Scheduler):
    def __init__(self, session_name, **kwargs):
        super().__init__("in_folder", session_name)
    def _submit_dryrun(self, app, cfg):
        return AppDryRunInfo(app, repr)
    def schedule(self, info):
        role = info.request.roles[0]
        command = [role.entrypoint, *role.args]
        print(subprocess.check_output(command, cwd=role.image, text=True), end='')
        return "job"
    def describe(self, app_id): ...
    def list(self, cfg=None): return []
    def _cancel_existing(self, app_id): ...

def launch(*args):
    role = Role("r", "", entrypoint="cat", args=list(args), resource=Resource(1, 0, 1))
    with Runner("nb", {"in_folder": InFolder}) as runner:
        return runner.run(AppDef("app", [role]), "in_folder", workspace=get_workspace())
"""


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Yield a folder whose path is short enough for sockets; tmp_path may be too long."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def execute(tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch) -> Execute:
    """Return a function that runs cells as a notebook, and returns the output of each cell."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))

    def run(*cells: str) -> list[str]:
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        # The kernel is the Python of the tests, not an installed kernel spec.
        # With the defaults, a kernel has 60 s to start, and output that is late by 4 s is lost.
        patience = {"startup_timeout": int(PATIENCE), "iopub_timeout": int(PATIENCE)}
        client = NotebookClient(notebook, resources={"metadata": {"path": tmp_path}}, **patience)
        client.create_kernel_manager()
        # Another process may take a free port before the kernel binds it.
        client.km.transport = "ipc"
        client.km.ip = str(sockets / "kernel")
        client.km.kernel_cmd = [
            sys.executable,
            "-m",
            "ipykernel_launcher",
            "-f",
            "{connection_file}",
        ]
        client.execute()
        return [
            "".join(
                o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout"
            )
            for cell in notebook.cells
        ]

    return run


def test_job_reads_the_file_of_a_cell(execute: Execute) -> None:
    out = execute(
        SCHEDULER,
        "%%workspacefile app/data.txt\nfirst: é ${app_id} $$",
        "launch('app/data.txt')",
        "%%workspacefile app/data.txt\nsecond",
        "launch('app/data.txt')",
    )
    assert out == [
        "",
        "Added app/data.txt to workspace memory://torchx-workspace/\n",
        "first: é ${app_id} $$\n",
        "Added app/data.txt to workspace memory://torchx-workspace/\n",
        "second\n",
    ]


@pytest.mark.parametrize("code", ["%load_ext torchx_notebook", "from torchx_notebook import *"])
def test_import_adds_the_magic(execute: Execute, code: str) -> None:
    out = execute(code, "%%workspacefile ' a b.txt'\nx")
    assert out[-1] == "Added  a b.txt to workspace memory://torchx-workspace/\n"


def test_bad_path_is_one_line_of_error(execute: Execute) -> None:
    with pytest.raises(CellExecutionError) as failed:
        execute("import torchx_notebook", "%%workspacefile ../x\nprint(1)")
    assert failed.value.ename == "UsageError"
    assert "workspace file '../x': must be below the workspace" in str(failed.value)
    assert "Traceback" not in str(failed.value)


def test_a_magic_runs_a_script_and_returns_a_job(
    execute: Execute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchx_sched_local")
    pytest.importorskip("torchx_components")
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    out = execute(
        "import torchx_notebook",
        "%%torchx run hello.py --name Ada\nimport sys; print('hello', *sys.argv[1:])",
        "job = %torchx run --name again hello.py --x 1\njob.wait().log()",
        "print(job.handle, job.status().state.name)",
        "job",
        "%torchx list -s local_cwd --name again",
        "from types import SimpleNamespace as Event",
        "event = Event(text_until_cursor='%torchx sta')",
        "print(torchx_notebook.magics.completer(None, event))",
    )
    assert "hello.py" in {path.name for path in tmp_path.iterdir()}
    assert "hello --x 1" in out[2]
    assert out[3].startswith("local_cwd://torchx/again-")
    assert out[3].endswith(" SUCCEEDED\n")
    assert "again" in out[5]
    assert out[8] == "['status']\n"


def test_an_error_of_the_command_returns_no_job(execute: Execute) -> None:
    out = execute("import torchx_notebook", "print(torchx_notebook.torchx('run no-such.py'))")
    assert out[-1] == "None\n"


@pytest.fixture
def empty_workspace() -> None:
    fs = fsspec.filesystem("memory")
    if fs.exists("/torchx-workspace"):
        fs.rm("/torchx-workspace", recursive=True)


@pytest.mark.usefixtures("empty_workspace")
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", "name a file"),
        (".", "name a file"),
        ("folder/", "name a file"),
        ("/etc/x", "below the workspace"),
        ("..", "below the workspace"),
        ("a/../../x", "below the workspace"),
        ("folder", "is a folder"),
    ],
)
def test_path_outside_the_workspace_is_an_error(path: str, says: str) -> None:
    write_file("folder/file", "")
    with pytest.raises(WorkspaceError, match=says):
        write_file(path, "text")
    assert fsspec.filesystem("memory").find("/torchx-workspace") == [
        "/torchx-workspace/folder/file"
    ]


@pytest.mark.usefixtures("empty_workspace")
def test_copy_of_the_workspace_contains_the_files(tmp_path: Path) -> None:
    assert write_file("./a/../b/c.txt", "x\n") == "b/c.txt"
    write_file("b/c.txt", "new\n")
    copy_workspace(Workspace.from_str(get_workspace()), str(tmp_path / "out"))
    found = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [(p.name, p.read_text()) for p in found] == [("c.txt", "new\n")]


def test_import_works_without_ipython(tmp_path: Path) -> None:
    code = "import sys, torchx_notebook; print(sorted({'IPython', 'fsspec'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout == "[]\n"
    assert torchx_notebook.get_workspace() == "memory://torchx-workspace/"
