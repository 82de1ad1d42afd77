"""Tests with monarch 0.7.0: the tests of its tools pass, and the tools run and dry-run jobs."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., "subprocess.CompletedProcess[str]"]

SITE = Path(str(importlib.util.find_spec("monarch").origin)).parents[1]


@pytest.mark.parametrize(("folder", "minimum"), [("tests/_src/tools", 25), ("tests/tools", 66)])
def test_the_tests_of_monarch_tools_pass(call: Call, folder: str, minimum: int) -> None:
    # Use --noconftest, because monarch's conftest.py loads plugins that are not in the wheel.
    done = call(
        "pytest", "-q", "--noconftest", "-p", "no:cacheprovider", "--rootdir", SITE, SITE / folder
    )
    assert done.returncode == 0, done.stdout
    passed = int(done.stdout.rstrip().splitlines()[-1].split(" passed")[0].split()[-1])
    assert passed >= minimum


CREATE = """
import asyncio, json, os, sys, time
from datetime import timedelta
from pathlib import Path
from monarch.tools.commands import create, info, kill, server_ready
from monarch.tools.config import Config
from monarch.tools.config.workspace import Workspace
from monarch.tools.mesh_spec import MeshSpec, tag_as_metadata
from torchx.specs import AppDef, AppState, Resource, Role

def app(image=""):
    mesh = Role(
        "trainer", image, entrypoint="sh", args=["-c", "echo in ${app_id}; sleep 86400"],
        num_replicas=2, resource=Resource(cpu=1, gpu=0, memMB=100), port_map={"mesh": 26600},
    )
    made = AppDef("server", [mesh])
    tag_as_metadata(MeshSpec("trainer", 2, "gpu.small", 1), made)
    return made
"""


def test_a_server_is_created_found_and_killed_by_separate_runners(
    script: Callable[..., str],
) -> None:
    shown = script(
        CREATE
        + """
config = Config(scheduler="local_cwd", scheduler_args={"detach": True}, appdef=app())
handle = create(config, name="server-1")
assert os.environ["TORCHX_CONTEXT_NAME"] == "monarch"
found = asyncio.run(server_ready(handle, check_interval=timedelta(seconds=0.2)))
assert handle.startswith("local_cwd:///server-1"), handle
assert found.is_running and found.state <= AppState.RUNNING
assert found.server_handle == handle
(mesh,) = found.meshes
print(mesh.name, mesh.num_hosts, mesh.host_type, mesh.gpus, mesh.port, mesh.state.name)
print(found.host0("trainer"), json.dumps(found.to_json()["meshes"]["trainer"]["hosts"]))
kill(handle)
while info(handle).state == AppState.RUNNING:
    time.sleep(0.1)
print(info(handle).state.name)
print(info("local_cwd:///server-nobody"))
"""
    )
    assert shown.splitlines() == [
        "trainer 2 gpu.small 1 26600 RUNNING",
        "localhost 2",
        "CANCELLED",
        "None",
    ]


@pytest.mark.parametrize("scheduler", ["slurm", "k8s"])
def test_a_dry_run_shows_the_request_to_a_cluster(
    script: Callable[..., str], scheduler: str
) -> None:
    if scheduler == "k8s":
        pytest.importorskip("torchx_sched_k8s", reason="torchx-sched-k8s is not installed")
    arguments = {"slurm": {"partition": "prod"}, "k8s": {"queue": "q", "namespace": "ns"}}
    shown = script(
        CREATE
        + f"""
config = Config(scheduler={scheduler!r}, scheduler_args={arguments[scheduler]!r}, dryrun=True)
config.appdef = app("image:1")
made = create(config, name="job-1")
assert made._app.name == "job-1", made._app.name
assert made._scheduler == {scheduler!r}
assert dict(made._cfg)[{next(iter(arguments[scheduler]))!r}]
print(made._fmt(made.request))
"""
    )
    expected = {
        "slurm": ["--partition=prod", "--job-name=job-1"],
        "k8s": ["name: job-1", "queue: q", "image:1"],
    }
    for text in expected[scheduler]:
        assert text in shown


def test_folders_are_merged_into_one_workspace(script: Callable[..., str]) -> None:
    shown = script(
        CREATE
        + """
for name in ("one", "two"):
    os.makedirs(name)
    Path(name, name + ".py").write_text(name)
config = Config(
    scheduler="slurm", scheduler_args={"job_dir": "job"}, appdef=app(),
    workspace=Workspace(dirs=[Path("one"), Path("two")]),
)
# monarch's own tests patch this path too
from unittest import mock
with mock.patch(
    "torchx.schedulers.slurm_scheduler.SlurmScheduler.schedule", return_value="77"
) as submitted:
    print(create(config, name="job-2"))
(info,) = submitted.call_args.args
(role,) = info._app.roles
print(role.image == os.path.abspath("job"), role.env["WORKSPACE_DIR"])
print(os.path.abspath("job") + "/workspace" in str(info), os.path.exists("job"))
"""
    )
    assert shown.splitlines() == ["slurm:///77", "True ${img_root}/workspace", "True False"]
