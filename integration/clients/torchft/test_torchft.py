"""Tests with torchft 0.2.0: its component file, an example's configuration, its Slurm launcher."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import torchx.runner
from torchx.runner import Runner
from torchx.schedulers.api import ListAppResponse
from torchx.specs import AppState

Call = Callable[..., "subprocess.CompletedProcess[str]"]

INSTALLED = Path(str(importlib.util.find_spec("torchft").origin)).parent
COMPONENTS = INSTALLED / "torchx.py"


def test_the_component_file_describes_one_role_for_each_replica_group(call: Call) -> None:
    done = call(
        *("torchx", "run", "--dryrun", "--json", "-s", "local_cwd", f"{COMPONENTS}:hsdp"),
        *("--replicas", 3, "--env", "A=1,B=x=y", "--script", "train.py", "--", "--lr", "0.1"),
    )
    assert done.returncode == 0, done.stderr
    app = json.loads(done.stdout)["app"]
    assert [role["name"] for role in app["roles"]] == ["replica_0", "replica_1", "replica_2"]
    last = app["roles"][2]
    assert last["entrypoint"] == "torchrun"
    assert last["args"][0] == "--master_port=29602"
    assert last["args"][-3:] == ["train.py", "--lr", "0.1"]
    assert (last["min_replicas"], last["num_replicas"]) == (1, 1)
    assert (last["env"]["A"], last["env"]["B"]) == ("1", "x=y")
    assert last["env"]["REPLICA_GROUP_ID"] == "2"


def test_a_torchxconfig_sets_the_default_component(call: Call, monkeypatch: Any) -> None:
    # Create the layout of torchft's repository.
    Path("torchft").symlink_to(INSTALLED)
    example = Path("examples/diloco")
    example.mkdir(parents=True)
    component = "../../torchft/torchx.py:hsdp"
    (example / ".torchxconfig").write_text(
        f"[cli:run]\ncomponent={component}\nscheduler=local_cwd\n\n\n"
        f"[component:{component}]\nscript=train_diloco.py\n"
    )
    monkeypatch.chdir(example)
    done = call("torchx", "run", "--dryrun", "--json", "--", "--replicas", "10")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["scheduler"] == "local_cwd"
    assert len(shown["app"]["roles"]) == 10
    assert shown["app"]["roles"][9]["args"][-1] == "train_diloco.py"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, INSTALLED / "examples/slurm" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ARGUMENTS = Namespace(
    nodes=2,
    nproc_per_node=4,
    replica_count=3,
    process_group="gloo",
    enable_semi_sync=True,
    semi_sync_method="diloco",
    num_fragments=2,
)


def test_the_slurm_launcher_submits_a_batch_script() -> None:
    app = example("runner")._make_app(1, ARGUMENTS)
    with torchx.runner.get_runner() as runner:
        info = runner.dryrun(app, "slurm")
    (role,) = info.app.roles
    assert role.name == "ft_1"
    assert (role.num_replicas, role.resource.gpu) == (2, 4)
    # The launcher sets a variable whose value contains "=".
    assert role.env["TORCH_CUDA_SANITIZER"] == "1=1"
    script = str(info)
    assert "#SBATCH --job-name=ft_1\n" in script
    assert "--fault_tolerance.replica_id=1" in script


def test_the_launcher_and_the_punisher_act_on_listed_jobs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run both programs with patched methods of the runner; integration/slurm runs real jobs."""

    def list_apps(self: Runner, scheduler: str, cfg: object = None) -> list[ListAppResponse]:
        assert scheduler == "slurm"
        states = {"ft_0-x": AppState.RUNNING, "ft_1": AppState.CANCELLED, "ft_2": AppState.RUNNING}
        return [
            ListAppResponse(str(i), state, f"slurm://torchx/{i}", name)
            for i, (name, state) in enumerate(states.items())
        ]

    launched: list[str] = []
    cancelled: list[str] = []
    monkeypatch.setattr("torchx.runner.Runner.list", list_apps)
    monkeypatch.setattr(
        "torchx.runner.Runner.run", lambda self, app, scheduler: launched.append(app.name)
    )
    monkeypatch.setattr(
        "torchx.runner.Runner.cancel", lambda self, handle: cancelled.append(handle)
    )
    with torchx.runner.get_runner() as runner:
        example("runner").monitor(runner, ARGUMENTS)
        example("punisher").kill_one(runner)
        example("punisher").kill_all(runner)
    assert launched == ["ft_1"]
    assert cancelled == ["slurm://torchx/2", "slurm://torchx/0", "slurm://torchx/2"]
    assert "replica_id= 0: ALIVE slurm://torchx/0" in capsys.readouterr().out
