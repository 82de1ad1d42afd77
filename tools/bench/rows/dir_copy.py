"""Copy a workspace of 20,000 small files to a job's folder."""

from __future__ import annotations

import os
import time

from api import specs

FILES = 20_000

try:
    from torchx_kit.workspace.dir_builder import DirWorkspaceMixin
except ModuleNotFoundError:  # This side is the peer, upstream's TorchX.
    from torchx.workspace.dir_workspace import DirWorkspaceMixin

for number in range(FILES):
    folder = f"workspace/package{number % 200}"
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/module{number}.py", "w") as file:
        file.write(f"VALUE = {number}\n" * 40)
role = specs.Role(
    name="role", image="", workspace=specs.Workspace({os.path.abspath("workspace"): ""})
)
begun = time.perf_counter()
DirWorkspaceMixin().caching_build_workspace_and_update_role(
    role, {"job_dir": os.path.abspath("copy")}, {}
)
seconds = time.perf_counter() - begun
assert role.image == os.path.abspath("copy")
assert sum(len(files) for _, _, files in os.walk("copy")) == FILES
print({"seconds": seconds})
