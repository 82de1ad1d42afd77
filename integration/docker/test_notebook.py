"""Test of a notebook: code in one of its cells runs in a container."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
import pytest
from docker_engine import PYTHON
from nbclient import NotebookClient

CELLS = (
    "import torchx.notebook\nfrom torchx.notebook import get_workspace",
    "%%workspacefile my_app/train.py\nimport sys\nprint('trained with', sys.argv[1])",
    f"""
from torchx.components import utils
from torchx.runner import get_runner
with get_runner() as runner:
    app = utils.python("3", m="my_app.train", image={PYTHON!r})
    handle = runner.run(app, "local_docker", {{"pull": "never"}}, workspace=get_workspace())
    status = runner.wait(handle, wait_interval=0.1)
    print(status.state, *runner.log_lines(handle, "python"), sep="\\n", end="")
    runner.delete(handle)
""",
)


def test_cells_run_in_a_container(
    engine: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**engine, "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.create_kernel_manager()
    client.km.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute()
    outputs = [
        "".join(o.text for o in c.outputs if o.get("name") == "stdout") for c in notebook.cells
    ]
    assert outputs[1] == "Added my_app/train.py to workspace memory://torchx-workspace/\n"
    assert outputs[2] == "SUCCEEDED\ntrained with 3\n"
